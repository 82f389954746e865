//! Calls of `mmscale` on a kernel, and the conditions that their output must fulfil.

use serde_json::Value;

/// A call of the program in a machine that has ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Job {
    /// Its arguments.
    pub(super) args: String,
    /// Its exit code, or the signal that ended it.
    pub(super) ended: String,
    /// Its standard output.
    pub(super) output: String,
}

/// A call of `mmscale`, and what its output must show.
#[derive(Clone, Copy)]
pub(super) struct Check {
    /// The arguments.
    pub(super) args: &'static str,
    /// Returns what the output shows, in a few words.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) read: fn(&Value) -> Result<String, String>,
}

/// The kernel accepts all BPF programs.
pub(super) const DOCTOR: Check = Check { args: "live doctor --format json", read: observes };

const COUNTS_ARGS: &str = "live counts --for 10s --format json";

/// The kernel's upkeep ticks expire when those of the simulator do.
pub(super) const TICK: Check = Check { args: COUNTS_ARGS, read: ticks };

/// All counts of the kernel agree with those of the simulator, those of the upkeep tick among them.
pub(super) const COUNTS: Check = Check { args: COUNTS_ARGS, read: agrees };

const fn study(args: &'static str) -> Check {
    Check { args, read: waits }
}

/// A study on the live kernel observes waits.
pub(super) const STUDIES: [Check; 5] = [
    study("run churn --on live --quick --seeds 1 --arm stock --format json"),
    study("run vmstat --on live --quick --seeds 1 --format json"),
    study("run pcp --on live --quick --seeds 1 --format json"),
    study("run ipi --on live --quick --seeds 1 --format json"),
    study("run reap --on live --quick --seeds 1 --format json"),
];

impl Check {
    /// Returns the name of the check, with what its job shows.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(&self, job: &Job) -> Result<String, String> {
        let name = self.name();
        if job.ended != "0" {
            return Err(format!("`{}` ended with {}", job.args, job.ended));
        }
        // A study has a document for each set of parameters, each in a line.
        let documents: Result<Vec<Value>, _> =
            serde_json::Deserializer::from_str(&job.output).into_iter().collect();
        let documents = documents.map_err(|why| format!("`{}` printed {why}", job.args))?;
        let first = documents.first().ok_or_else(|| format!("`{}` printed nothing", job.args))?;
        let shown = (self.read)(first).map_err(|why| format!("{name}: {why}"))?;
        Ok(format!("{name}: {shown}"))
    }
    pub(super) fn name(&self) -> &'static str {
        let args = ["run ", "live "].iter().find_map(|above| self.args.strip_prefix(above));
        let args = args.unwrap_or(self.args);
        args.split(' ').next().unwrap_or(args)
    }
}

fn observes(document: &Value) -> Result<String, String> {
    let findings = document["findings"].as_array().ok_or("no findings")?;
    let own = findings.iter().find(|finding| finding["what"] == "live kernel");
    let own = own.ok_or("no finding on the live kernel")?;
    match own["state"].as_str() {
        Some("good") => Ok("observes".to_owned()),
        // Functions that are inlined.
        Some("limited") => Ok("observes, some functions are hidden".to_owned()),
        _ => Err(own["seen"].as_str().unwrap_or("unknown").to_owned()),
    }
}

/// Each arm of a run has how many of its seeds observed the kernel.
fn waits(document: &Value) -> Result<String, String> {
    let arms = document["arms"].as_array().ok_or("no arms")?;
    let watched = |arm: &Value| arm["host_metrics"]["watched"] == 1.0;
    match !arms.is_empty() && arms.iter().all(watched) {
        true => Ok("observes".to_owned()),
        false => Err("waits were not observed".to_owned()),
    }
}

fn agrees(document: &Value) -> Result<String, String> {
    equal(document, "")
}

/// The begin of the title of the counts of upkeep ticks.
const TICKS: &str = "upkeep tick";

fn ticks(document: &Value) -> Result<String, String> {
    equal(document, TICKS).map(|shown| format!("ticks: {shown}"))
}

/// Returns how many rows are equal, of the sections whose title begins so.
///
/// # Errors
/// The rows that differ for no known reason.
fn equal(document: &Value, title: &str) -> Result<String, String> {
    let sections = document["sections"].as_array().ok_or("no sections")?;
    let is_meant =
        |section: &&Value| section["title"].as_str().unwrap_or_default().starts_with(title);
    let rows = sections.iter().filter(is_meant).filter_map(|section| section["rows"].as_array());
    let rows: Vec<&Value> = rows.flatten().collect();
    let is = |row: &&&Value, verdict: &str| row["verdict"] == verdict;
    let equal = rows.iter().filter(|row| is(row, "equal")).count();
    let different: Vec<String> = rows
        .iter()
        .filter(|row| is(row, "different"))
        .map(|row| format!("{}: {} and {}", row["what"], row["kernel"], row["simulated"]))
        .collect();
    if different.is_empty() && equal > 0 {
        return Ok(format!("{equal} of {} equal, the others explained", rows.len()));
    }
    Err(format!(
        "{} of {} rows differ for no known reason: {}",
        different.len(),
        rows.len(),
        different.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(output: &Value) -> Job {
        Job { args: "x".to_owned(), ended: "0".to_owned(), output: output.to_string() }
    }

    #[test]
    fn a_kernel_that_refuses_the_programs_fails() {
        let of = |state: &str| {
            let own = json!({ "what": "live kernel", "state": state, "seen": "refused" });
            json!({ "findings": [own] })
        };
        assert_eq!(DOCTOR.of(&job(&of("good"))).unwrap(), "doctor: observes");
        assert_eq!(DOCTOR.of(&job(&of("missing"))).unwrap_err(), "doctor: refused");
        assert!(DOCTOR.of(&job(&json!({ "findings": [] }))).is_err());
        let failed = Job { ended: "1".to_owned(), ..job(&of("good")) };
        assert_eq!(DOCTOR.of(&failed).unwrap_err(), "`x` ended with 1");
        assert!(DOCTOR.of(&Job { output: String::new(), ..job(&of("good")) }).is_err());
    }

    #[test]
    fn a_study_that_observes_nothing_fails() {
        let of = |watched: f64| {
            json!({ "arms": [{ "host_metrics": { "watched": 1.0 } },
                { "host_metrics": { "watched": watched } }] })
        };
        assert!(waits(&of(1.0)).is_ok());
        assert!(waits(&of(0.0)).is_err() && waits(&json!({ "arms": [] })).is_err());
    }

    #[test]
    fn a_row_without_a_reason_fails() {
        let of = |verdict: Value| {
            let row = |verdict| {
                json!({ "what": "a", "kernel": "1", "simulated": "2",
                "verdict": verdict })
            };
            json!({ "sections": [{ "rows": [row(json!("equal")), row(verdict)] }] })
        };
        let explained = of(json!({ "explained": "why" }));
        assert_eq!(agrees(&explained).unwrap(), "1 of 2 equal, the others explained");
        assert!(agrees(&of(json!("different"))).unwrap_err().contains("1 of 2 rows differ"));
        assert!(agrees(&json!({ "sections": [] })).is_err(), "nothing was compared");
        let row = |verdict: &str| json!({ "what": "a", "verdict": verdict });
        let sections = json!({ "sections": [
            { "title": "calls", "rows": [row("different")] },
            { "title": "upkeep tick: expiry", "rows": [row("equal")] },
        ] });
        assert!(agrees(&sections).is_err());
        assert_eq!(ticks(&sections).unwrap(), "ticks: 1 of 1 equal, the others explained");
    }
}
