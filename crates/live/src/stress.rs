//! Runs stress-ng in place of a study's workload, for problems that were reported with it: its
//! command line under mmscale's limits and measurement, and its own metrics next to those of
//! mmscale.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mmscale_document::{Side, Wait, Watch, Watched};
use mmscale_files::{Folder, Limit, ReadError};
use mmscale_linux::{
    Begun, Config, Failure, Foreign, Plan, Sampling, Scratch, WatchError, Watching, find_program,
    run_command,
};
use serde::Serialize;
use thiserror::Error;

use mmscale_harness::Interrupt;

const PROGRAM: &str = "stress-ng";

/// The number of stress-ng workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// As many per CPU as in the report, scaled to the available CPUs.
    Machine,
    /// As many in total as in the report.
    Report,
}

/// A request to run stress-ng.
#[derive(Clone, Debug)]
pub struct StressRequest {
    /// The name of the study: `vmstat` or `churn`.
    pub study: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Duration of each run.
    pub length: Duration,
    /// Number of workers.
    pub scale: Scale,
    /// Number of runs.
    pub runs: u64,
}

/// Why there is no result.
#[derive(Debug, Error)]
pub enum StressError {
    /// The call was wrong.
    #[error("{0}")]
    Call(String),
    /// stress-ng is not installed.
    #[error(
        "stress-ng is not on the PATH: install it (Debian and Ubuntu: apt-get install stress-ng; \
         Fedora: dnf install stress-ng); the study's own workload does the same: mmscale run STUDY \
         --on live"
    )]
    Missing,
    /// The program is not stress-ng, or cannot be executed.
    #[error("cannot get the version of {}: {why}", program.display())]
    Version {
        /// The path of the program.
        program: PathBuf,
        /// The reason.
        why: String,
    },
    /// stress-ng returned an error.
    #[error("stress-ng failed: {0}")]
    Failed(String),
    /// The metrics of stress-ng cannot be parsed.
    #[error(
        "cannot read the metrics of `{version}`: {why}; its format may have changed, or it was \
         killed"
    )]
    Metrics {
        /// The version of stress-ng.
        version: String,
        /// The missing part.
        why: String,
    },
    /// The user interrupted the runs.
    #[error("interrupted after {done} of {all} runs of stress-ng; no result was written")]
    Interrupted {
        /// Number of complete runs.
        done: usize,
        /// Number of requested runs.
        all: u64,
    },
    /// A file operation failed.
    #[error("cannot {what}: {why}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        why: std::io::Error,
    },
    /// The kernel could not be observed.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// A metric with its values over runs.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The name of the metric.
    pub name: &'static str,
    /// The unit of the metric.
    pub unit: &'static str,
    /// The program that measured it: `stress-ng` or `mmscale`.
    pub by: &'static str,
    /// The values, in the order of runs.
    pub values: Vec<f64>,
    /// The median of the values.
    pub median: f64,
}

/// The result of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Stressed {
    /// Always `mmscale/with/1`.
    pub schema: &'static str,
    /// The study whose workload was replaced.
    pub study: String,
    /// The command line of stress-ng.
    pub command: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// The metrics.
    pub figures: Vec<Figure>,
    /// The call paths with the largest total waits in the last run, with their shares of the total.
    pub paths: Vec<(String, f64)>,
    /// The reason why lock waits were not observed, if so.
    pub unwatched: Option<String>,
    /// Other conditions of the result, such as the kernel release.
    pub provenance: BTreeMap<String, String>,
}

/// A workload of stress-ng, as a report used it.
struct Workload {
    study: &'static str,
    stressor: &'static str,
    /// Workers in the report, per CPU and in total; `None` if the report does not say.
    of_report: Option<u64>,
    per_cpu: u64,
    /// Processes per worker, and memory of each in addition to the requested memory, in bytes.
    processes: u64,
    process_bytes: u64,
    /// Selects the waits that the study is about.
    meant: fn(&Wait) -> bool,
}

const WORKLOADS: [Workload; 2] = [
    Workload {
        study: "churn",
        stressor: "mremap",
        of_report: Some(8192),
        per_cpu: 16,
        processes: 2,
        process_bytes: 256 << 10,
        meant: |wait| wait.class == "lruvec",
    },
    Workload {
        study: "vmstat",
        stressor: "vm",
        of_report: None,
        per_cpu: 4,
        processes: 2,
        process_bytes: 1 << 20,
        meant: |wait| wait.class == "zone" && wait.passes_through("free_pcppages_bulk"),
    },
];

/// A checked request that has not been started.
#[derive(Debug)]
pub struct Prepared {
    request: StressRequest,
    workload: usize,
    program: PathBuf,
    version: String,
    args: Vec<String>,
    workers: u64,
    memory_bytes: u64,
}

impl Prepared {
    /// Returns the command line.
    pub fn command(&self) -> String {
        format!("{PROGRAM} {}", self.args.join(" "))
    }
}

/// Returns the CPUs that this program may use.
pub fn max_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Checks a request.
pub fn prepare(request: StressRequest) -> Result<Prepared, StressError> {
    let call = |text: String| Err(StressError::Call(text));
    let Some(workload) = WORKLOADS.iter().position(|known| known.study == request.study) else {
        return call(format!(
            "stress-ng can replace the workloads of vmstat and churn, but not of `{}`: use \
             mmscale run {0} --on live",
            request.study
        ));
    };
    let known = &WORKLOADS[workload];
    let workers = match (request.scale, known.of_report) {
        (Scale::Machine, _) => known.per_cpu * request.cpus as u64,
        (Scale::Report, Some(workers)) => workers,
        (Scale::Report, None) => {
            return call(format!(
                "the report of `{}` used stress-ng --{} with an unknown number of workers: leave \
                 --workers out",
                known.study, known.stressor
            ));
        }
    };
    let program = find_program(PROGRAM).ok_or(StressError::Missing)?;
    let version = version(&program)?;
    // Memory for other programs and for the processes themselves is excluded.
    let available = mmscale_linux::available_bytes().unwrap_or(4 << 30);
    let each = (available / 2 / workers.max(1)).min(1 << 30) >> 20;
    let seconds = request.length.as_secs().max(1);
    let (args, bytes) = match known.stressor {
        "vm" => (format!("--vm {workers} --vm-bytes {each}M"), workers * (each << 20)),
        other => (format!("--{other} {workers} --{other}-bytes 4K"), 0),
    };
    let args = format!("{args} --timeout {seconds}s --metrics --yaml {YAML}");
    let own = workers * known.processes * known.process_bytes;
    Ok(Prepared {
        workload,
        program,
        version,
        args: args.split(' ').map(str::to_owned).collect(),
        workers,
        memory_bytes: bytes + own + SPARE_BYTES,
        request,
    })
}

const YAML: &str = "metrics.yaml";
const SPARE_BYTES: u64 = 256 << 20;
/// Maximum additional time for start and stop.
const PATIENCE: Duration = Duration::from_secs(300);

fn version(program: &Path) -> Result<String, StressError> {
    let failed = |why: String| StressError::Version { program: program.to_owned(), why };
    let asked = Command::new(program).arg("--version").output();
    let asked = asked.map_err(|why| failed(why.to_string()))?;
    let said = String::from_utf8_lossy(&asked.stdout);
    let line = said.lines().next().unwrap_or_default().trim();
    if line.starts_with("stress-ng") {
        Ok(line.to_owned())
    } else {
        Err(failed(format!("its answer was `{line}`")))
    }
}

/// Metrics that stress-ng reports for one stressor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Metrics {
    ops: f64,
    real_s: f64,
    user_s: f64,
    system_s: f64,
}

impl Metrics {
    /// Parses the output of `--yaml`: lines of `key: value` below the stressor's name.
    fn parse(yaml: &str, stressor: &str) -> Result<Self, String> {
        let mut lines = yaml.lines().map(str::trim);
        let head = |line: &str| {
            line.strip_prefix("- stressor:").is_some_and(|name| name.trim() == stressor)
        };
        if !lines.any(head) {
            return Err(format!("the stressor {stressor} is missing"));
        }
        let own: Vec<&str> = lines.take_while(|line| !line.starts_with('-')).collect();
        let number = |key: &str| -> Result<f64, String> {
            let text = own.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            let text = text.ok_or_else(|| format!("{key} is missing"))?.trim();
            text.parse().map_err(|_| format!("{key} is `{text}`"))
        };
        let metrics = Self {
            ops: number("bogo-ops")?,
            real_s: number("wall-clock-time")?,
            user_s: number("user-time")?,
            system_s: number("system-time")?,
        };
        if metrics.ops <= 0.0 || metrics.real_s <= 0.0 {
            return Err(format!(
                "{} operations in {} s cannot be used",
                metrics.ops, metrics.real_s
            ));
        }
        Ok(metrics)
    }
}

/// Runs stress-ng repeatedly; `told` is called at the start of each run.
pub fn stress(
    prepared: &Prepared,
    interrupt: &Interrupt,
    mut told: impl FnMut(u64),
) -> Result<Stressed, StressError> {
    let known = &WORKLOADS[prepared.workload];
    let mut rows = Rows::default();
    let (mut paths, mut unwatched) = (Vec::new(), None);
    for run in 0..prepared.request.runs {
        told(run);
        let (metrics, seen) = one(prepared, interrupt).map_err(|why| match why {
            StressError::Interrupted { .. } => {
                StressError::Interrupted { done: run as usize, all: prepared.request.runs }
            }
            why => why,
        })?;
        rows.of_stress_ng(&metrics);
        match seen {
            Ok(seen) => {
                rows.of_kernel(known, &seen, metrics.real_s * prepared.request.cpus as f64 * 1e9);
                paths = crate::observe::paths(&seen, |wait| ours(wait) && (known.meant)(wait));
            }
            Err(why) => unwatched = Some(why.to_string()),
        }
    }
    let mut provenance = crate::provenance();
    provenance.insert("stress_ng".to_owned(), prepared.version.clone());
    Ok(Stressed {
        schema: "mmscale/with/1",
        study: known.study.to_owned(),
        command: prepared.command(),
        cpus: prepared.request.cpus,
        figures: rows.0,
        paths,
        unwatched,
        provenance,
    })
}

/// Executes one run. Observations of the kernel are returned separately, as they may be missing.
fn one(
    prepared: &Prepared,
    interrupt: &Interrupt,
) -> Result<(Metrics, Result<Watched, WatchError>), StressError> {
    let known = &WORKLOADS[prepared.workload];
    let folder = Scratch::new().map_err(|why| StressError::Io { what: "create a folder", why })?;
    let foreign = Foreign {
        program: prepared.program.clone(),
        args: prepared.args.clone(),
        folder: folder.path().to_owned(),
    };
    let config = Config {
        cpus: prepared.request.cpus,
        memory_bytes: prepared.memory_bytes,
        processes: prepared.workers * known.processes + 1,
        limit_ns: (prepared.request.length + PATIENCE).as_nanos() as u64,
        interrupt: Some(interrupt.flag()),
    };
    let plan = Plan { watches: vec![Watch::Locks, Watch::Lru], sampling: Sampling::Sparse };
    let mut watching = Watching::begin(&plan);
    let mut counting = Ok(());
    let begun = |begun: Begun| {
        if let Ok(watching) = &mut watching {
            counting = watching.count((begun.at_ns, u64::MAX), Some(begun.session));
        }
    };
    let (_, said) = run_command(&config, &foreign, begun).map_err(|why| match why {
        Failure::Interrupted => StressError::Interrupted { done: 0, all: 0 },
        why => StressError::Failed(why.to_string()),
    })?;
    counting?;
    let wrong = |why: String| StressError::Metrics { version: prepared.version.clone(), why };
    let yaml = results(folder.path()).map_err(|why| {
        let last = said.trim().lines().last().unwrap_or("nothing").to_owned();
        wrong(format!("it has not written {YAML} ({why}); its last output was: {last}"))
    })?;
    let metrics = Metrics::parse(&yaml, known.stressor).map_err(wrong)?;
    Ok((metrics, watching.and_then(|watching| watching.seen())))
}

/// Returns the file that stress-ng wrote in the folder of its run.
fn results(folder: &Path) -> Result<String, ReadError> {
    let text =
        Folder::only_read(folder)?.read(YAML, Limit::new("metrics of stress-ng", 1 << 24))?;
    text.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
}

/// Returns the median of the values.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
    (sorted[low] + sorted[high]) / 2.0
}

fn ours(wait: &Wait) -> bool {
    wait.side != Side::Other
}

#[derive(Default)]
struct Rows(Vec<Figure>);

impl Rows {
    fn add(&mut self, by: &'static str, name: &'static str, unit: &'static str, value: f64) {
        let found = self.0.iter().position(|row| row.name == name);
        let at = found.unwrap_or_else(|| {
            self.0.push(Figure { name, unit, by, values: Vec::new(), median: 0.0 });
            self.0.len() - 1
        });
        let row = &mut self.0[at];
        row.values.push(value);
        row.median = median(&row.values);
    }
    fn of_stress_ng(&mut self, metrics: &Metrics) {
        let Metrics { ops, real_s, user_s, system_s } = *metrics;
        let mut add = |name, unit, value| self.add("stress-ng", name, unit, value);
        add("bogo_ops_per_s", "1/s", ops / real_s);
        add("cpu_ns_per_bogo_op", "ns", (user_s + system_s) * 1e9 / ops);
        add("real_s", "s", real_s);
        add("user_s", "s", user_s);
        add("system_s", "s", system_s);
    }
    fn of_kernel(&mut self, known: &Workload, seen: &Watched, all_ns: f64) {
        let (count, total_ns, max_ns) = seen.sum(|wait| ours(wait) && (known.meant)(wait));
        let through = |function: &'static str| {
            let (count, ..) =
                seen.sum(|wait| ours(wait) && (known.meant)(wait) && wait.passes_through(function));
            count as f64
        };
        let mut add = |name, unit, value| self.add("mmscale", name, unit, value);
        add("waits", "1", count as f64);
        add("wait_total_ns", "ns", total_ns as f64);
        add("wait_max_ns", "ns", max_ns as f64);
        add("wait_share_of_cpus", "1", total_ns as f64 / all_ns);
        if known.study == "churn" {
            add("waits_adding", "1", through("lru_add_drain"));
            add("waits_releasing", "1", through("__page_cache_release"));
            if seen.lru_batches > 0 {
                let mean = seen.lru_folios as f64 / seen.lru_batches as f64;
                add("lru_batch_size_mean", "1", mean);
            }
        } else {
            add("waits_of_vmstat_update", "1", through("vmstat_update"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML_OF_0_15: &str = "---\nmetrics:\n    - stressor: vm\n      bogo-ops: 7\n    - \
        stressor: mremap\n      bogo-ops: 130088\n      bogo-ops-per-second-usr-sys-time: \
        110425.802465\n      wall-clock-time: 3.018866\n      user-time: 0.167574\n      \
        system-time: 1.010484\n      max-rss: 2404\n\n...\n";

    #[test]
    fn metrics_are_those_of_the_stressor() {
        let read = Metrics::parse(YAML_OF_0_15, "mremap").unwrap();
        let ops = 130_088.0;
        let expected = Metrics { ops, real_s: 3.018_866, user_s: 0.167_574, system_s: 1.010_484 };
        assert_eq!(read, expected);
        assert!(Metrics::parse(YAML_OF_0_15, "vm").unwrap_err().contains("wall-clock-time"));
        assert!(Metrics::parse("", "mremap").unwrap_err().contains("mremap"));
        let idle = YAML_OF_0_15.replace("130088", "0");
        assert!(Metrics::parse(&idle, "mremap").unwrap_err().contains("0 operations"));
    }

    #[test]
    fn other_studies_and_unknown_numbers_are_refused() {
        let request = |study: &str, scale| StressRequest {
            study: study.to_owned(),
            cpus: 2,
            length: Duration::from_secs(1),
            scale,
            runs: 1,
        };
        let why = prepare(request("reap", Scale::Machine)).unwrap_err().to_string();
        assert!(why.contains("not of `reap`"), "{why}");
        let why = prepare(request("vmstat", Scale::Report)).unwrap_err().to_string();
        assert!(why.contains("unknown number of workers"), "{why}");
    }
}
