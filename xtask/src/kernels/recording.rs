//! A recording that is kept in `gallery/kernels`, and the same recording now.

use super::instructions::Compared;
use super::is_absence;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of Debian's kernel, and the script.
pub(super) const VERSION: &str = "6.12";
const SCRIPT: &str = "gallery/populate1.mms";
const KEPT: &str = "gallery/kernels/populate1-6.12.lift";
/// The options with which it was recorded.
const OPTIONS: [&str; 4] = ["--cpus", "8", "--ops", "12"];
/// The largest relative difference of instructions, and of locks that CPUs share.
const TOLERANCE: f64 = 0.01;
const TOLERANCE_OF_LOCKS: f64 = 0.03;
/// Acquisitions an operation below which a lock is not compared: few rounds decide them.
const LEAST: f64 = 0.5;
/// The machine of the replay, and the lock that limits there.
const REPLAY: [&str; 8] =
    ["--profile", "x86-512", "--cpus", "64", "--seeds", "1", "--format", "json"];
const LIMIT: &str = "lruvec";

pub(super) fn called(program: &Path, words: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|why| format!("cannot run {}: {why}", program.display()))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

pub(super) fn document(program: &Path, words: &[&str]) -> Result<Value, String> {
    let bytes = called(program, words)?;
    serde_json::from_slice(&bytes).map_err(|why| format!("{words:?}: {why}"))
}

fn record(root: &Path, program: &Path, to: &Path) -> Result<(), String> {
    let (kernel, script) = (format!("debian:{VERSION}"), root.join(SCRIPT));
    let [script, to] = [script.as_path(), to].map(|path| path.to_str().expect("UTF-8"));
    let words = ["lift", "record", "--kernel", &kernel, script, "-o", to, "--replace"];
    called(program, &[&words[..], &OPTIONS].concat()).map(|_| ())
}

/// Records it again, and keeps it.
pub(super) fn keep(root: &Path, program: &Path) -> Result<(), String> {
    record(root, program, &root.join(KEPT))
}

/// Records it again, compares it with the kept one, and replays it.
///
/// # Errors
/// Why nothing was recorded.
pub(super) fn check(root: &Path, program: &Path) -> Result<Compared, String> {
    let folder = tempfile::tempdir().map_err(|why| format!("cannot create a folder: {why}"))?;
    let now: PathBuf = folder.path().join("now.lift");
    match record(root, program, &now) {
        Ok(()) => {}
        Err(why) if is_absence(&why) => return Ok(Compared::Skipped(why)),
        Err(why) => return Err(why),
    }
    let paths = [root.join(KEPT), now].map(|path| path.to_str().expect("UTF-8").to_owned());
    let show = |path: &String| document(program, &["lift", "show", path, "--format", "json"]);
    let [kept, now] = [show(&paths[0])?, show(&paths[1])?];
    let package = |of: &Value| of["origin"]["package"].clone();
    if package(&kept) != package(&now) {
        let (kept, now) = (package(&kept), package(&now));
        return Ok(Compared::Skipped(format!(
            "recording: {kept} is gone, Debian has {now}: `cargo xtask kernels --keep`"
        )));
    }
    let mut differ = differences(&kept, &now);
    let run = document(program, &[&["run", &paths[1]][..], &REPLAY].concat())?;
    differ.extend(other_limit(&run));
    Ok(match differ.is_empty() {
        true => Compared::Same,
        false => Compared::Different(differ.join("; ")),
    })
}

/// Returns what is wrong with the replay, if its limit is another lock.
fn other_limit(run: &Value) -> Option<String> {
    let locks = run["arms"][0]["locks"].as_array().cloned().unwrap_or_default();
    let waits = |lock: &Value| lock["wait_total_ns"].as_f64().unwrap_or(0.0);
    let longest = locks.iter().max_by(|a, b| waits(a).total_cmp(&waits(b)));
    let class = longest.map_or("none", |lock| lock["class"].as_str().unwrap_or("?"));
    (class != LIMIT).then(|| format!("the replay waits longest for {class}, not {LIMIT}"))
}

/// Instructions of an operation, and acquisitions of shared locks, that differ.
fn differences(kept: &Value, now: &Value) -> Vec<String> {
    let mut differ = Vec::new();
    let mut compare = |what: String, kept: f64, now: f64, tolerance: f64| {
        if (now - kept).abs() > tolerance * kept.abs() {
            differ.push(format!("{what}: {kept:.2} kept, {now:.2} now"));
        }
    };
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or(f64::NAN);
    let all = "instructions_per_op";
    compare("instructions".to_owned(), number(kept, all), number(now, all), TOLERANCE);
    let shared = |of: &Value| -> Vec<(String, f64)> {
        let rows = of["locks"].as_array().cloned().unwrap_or_default();
        let rows = rows.iter().filter(|lock| lock["share"] != "private");
        rows.map(|lock| {
            (format!("{} at {}", lock["class"], lock["place"]), number(lock, "acquisitions_per_op"))
        })
        .filter(|row| row.1 >= LEAST)
        .collect()
    };
    let of_now = shared(now);
    for (place, kept) in shared(kept) {
        let now = of_now.iter().find(|(other, _)| *other == place).map_or(0.0, |row| row.1);
        compare(place, kept, now, TOLERANCE_OF_LOCKS);
    }
    differ
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(instructions: f64, acquisitions: f64) -> Value {
        json!({
            "instructions_per_op": instructions,
            "locks": [
                {"class": "lruvec", "place": ["a", "b"], "share": "node",
                 "acquisitions_per_op": acquisitions},
                {"class": "pte", "place": ["c", "d"], "share": "private",
                 "acquisitions_per_op": 9.0},
            ],
        })
    }

    #[test]
    fn a_further_acquisition_and_more_instructions_are_found() {
        assert!(differences(&shown(1000.0, 2.0), &shown(1005.0, 2.0)).is_empty());
        assert_eq!(differences(&shown(1000.0, 2.0), &shown(1020.0, 2.0)).len(), 1);
        assert_eq!(differences(&shown(1000.0, 2.0), &shown(1000.0, 3.0)).len(), 1);
        assert_eq!(differences(&shown(1000.0, 2.0), &json!({"locks": []})).len(), 1);
    }

    #[test]
    fn another_limit_is_found() {
        let run = |class: &str| {
            let locks =
                json!([{"class": class, "wait_total_ns": 5}, {"class": "pte", "wait_total_ns": 1}]);
            json!({"arms": [{"locks": locks}]})
        };
        assert_eq!(other_limit(&run("lruvec")), None);
        assert!(other_limit(&run("zone")).is_some() && other_limit(&json!({})).is_some());
    }
}
