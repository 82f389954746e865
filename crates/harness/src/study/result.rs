//! The results of a run, and why a run has none.

use std::collections::BTreeMap;

use mmscale_document::{
    BlameRows, CallRow, CpuTimeRecord, CriticalPath, Histogram, LineRecord, LockRow, PerCpu,
    SectionRecord, Span, Value,
};
use mmscale_kernel::coverage::CallSet;
use thiserror::Error;

/// The result of one run of one arm with one seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeedResult {
    /// Metrics by name. A metric without anything to measure is left out.
    pub metrics: BTreeMap<&'static str, Value>,
    /// Metrics that the run could not measure, each with what it needs.
    pub missing: BTreeMap<&'static str, &'static str>,
    /// Lock statistics by class and call path.
    pub locks: Vec<LockRow>,
    /// The work of the holders of locks while others waited, if the request asks for it.
    pub blame: BlameRows,
    /// The time of each operation of the programs; with `blame`.
    pub critical_paths: Vec<CriticalPath>,
    /// Transfers of cache lines between CPUs while locks were counted; simulated machines only.
    pub lines: Vec<LineRecord>,
    /// CPU time while locks were counted; simulated machines only.
    pub cpu_time: Option<CpuTimeRecord>,
    /// The kinds of calls that the programs made; machines with this memory manager only.
    pub made: CallSet,
    /// CPU time by call path, if the study collects it.
    pub calls: Vec<CallRow>,
    /// Values of single CPUs, by name.
    pub per_cpu: BTreeMap<String, PerCpu>,
    /// Distributions, by name.
    pub histograms: BTreeMap<String, Histogram>,
    /// The longest sections with preemption off, in descending order of length.
    pub sections: Vec<SectionRecord>,
    /// Functions with the times at which they ran; the runner adds the seed.
    pub spans: Vec<Span>,
    /// The cost of the run on the host, by name; outside the fingerprint.
    pub host_metrics: BTreeMap<String, f64>,
    /// Length of the measured window, in ns of the machine's time; `None` if a run ends when its
    /// work is done.
    pub window_ns: Option<u64>,
    /// The machine's own fingerprint of the run, over virtual results and the final generator
    /// state.
    pub fingerprint: u64,
}

impl SeedResult {
    /// Adds a metric, which must be one of [`Study::metrics`](super::Study::metrics).
    pub fn metric(&mut self, name: &'static str, value: impl Into<Value>) {
        let before = self.metrics.insert(name, value.into());
        assert!(before.is_none(), "metric {name} is measured twice");
    }
}

/// Why a run gave no result.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The run was interrupted, or ended early.
    #[error("interrupted")]
    Interrupted,
    /// A checker found errors; each line is one finding.
    #[error("{} found errors:\n  {}", checkers(.0.len()), .0.join("\n  "))]
    Check(Vec<String>),
    /// The machine cannot do what the study needs.
    #[error("{0}")]
    Machine(String),
    /// The run cannot be used, and neither can that of any other seed.
    #[error("{0}")]
    Hopeless(String),
}

fn checkers(findings: usize) -> &'static str {
    if findings == 1 { "a checker" } else { "the checkers" }
}
