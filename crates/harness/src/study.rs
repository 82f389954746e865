//! The interface of a study: its inputs, its results, and its description.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mmscale_document::{
    Better, BlameRows, CallRow, CpuTimeRecord, CriticalPath, Histogram, LockRow, PerCpu,
    SectionRecord, Span, Target, Value,
};
use mmscale_kernel::coverage::CallSet;
use mmscale_mm::versions::Version;
use mmscale_script::Script;
use mmscale_sim::HoldScale;
use mmscale_sim::profile::Profile;
use thiserror::Error;

use crate::param::{Length, ParamSpec, Params};
use crate::policy_arm::{PolicyArm, PolicyError};
use crate::timelines::Timelines;
use crate::trails::Trails;
use crate::versions::OtherVersion;

/// The index of an arm in [`Study::arms`]. A run knows its arm only by this number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArmId(pub usize);

/// An arm: a named set of policies.
#[derive(Clone, Copy, Debug)]
pub struct ArmSpec {
    /// The name of the arm.
    pub name: &'static str,
    /// A description of the arm, in one line.
    pub help: &'static str,
}

/// The declaration of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// The name, in snake_case, with the unit last if it has one; stable over versions.
    pub name: &'static str,
    /// The unit: `1`, `ns`, `pages`, `1/s`, ...
    pub unit: &'static str,
    /// The definition, in one line that is clear by itself.
    pub help: &'static str,
    /// The direction in which the metric improves; `None` if neither is better by itself.
    pub better: Option<Better>,
    /// Whether the study tests this metric. At most [`MAX_HEADLINES`](crate::MAX_HEADLINES) are.
    pub headline: bool,
}

impl MetricSpec {
    /// Creates the declaration of a metric that is no headline and of which neither direction is
    /// better by itself.
    pub const fn new(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, unit, help, better: None, headline: false }
    }
    /// Whether the metric is a part of a whole: by its name, or by its definition.
    pub(crate) fn is_share(&self) -> bool {
        self.name.ends_with("_share") || self.help.starts_with("share of ")
    }
    /// Refuses a value that the metric cannot have: a share is 0 to 1.
    pub(crate) fn check(&self, value: Value) -> Result<(), StudyError> {
        let value = value.as_f64();
        if !self.is_share() || (-ROUNDING..=1.0 + ROUNDING).contains(&value) {
            return Ok(());
        }
        let Self { name, help, .. } = self;
        Err(StudyError::Check(vec![format!("{name} is {value}, and a share is 0 to 1 ({help})")]))
    }
}

/// The most by which a share may be below 0 or above 1: errors of floating-point numbers.
const ROUNDING: f64 = 1e-9;

/// Metrics for which a run is too short.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooShort {
    /// The names of the metrics.
    pub metrics: Vec<&'static str>,
    /// The setting that makes the run long enough, as it is given on the command line.
    pub needs: String,
}

/// The default machine of a study.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// The supported machines; the first is the default.
    pub machines: &'static [Target],
    /// The default machine profile.
    pub profile: &'static str,
    /// Default number of CPUs of a simulated machine.
    pub cpus: usize,
    /// Default timer interrupts per second.
    pub hz: u32,
}

/// A mail that reports a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Its subject.
    pub subject: &'static str,
    /// Its address in a public archive.
    pub link: &'static str,
}

/// A study: a workload, the arms that it compares, and its metrics.
pub trait Study: Sync {
    /// Returns the name on the command line.
    fn name(&self) -> &'static str;
    /// Returns the question that the study answers, in one line.
    fn summary(&self) -> &'static str;
    /// Returns what a run does before its window, in which nothing counts.
    fn start(&self) -> Option<&'static str> {
        None
    }
    /// Returns the mail that the study began with, if it did.
    fn report(&self) -> Option<Report> {
        None
    }
    /// Returns the parameters, except CPUs and HZ, which every study has.
    fn params(&self) -> &'static [ParamSpec];
    /// Returns the arms. The other arms are compared with the first.
    fn arms(&self) -> &'static [ArmSpec];
    /// Returns this study with additional arms at the end: its first arm with the policies that a
    /// call chooses.
    fn with_arms(&self, _wanted: &[PolicyArm]) -> Result<&'static dyn Study, PolicyError> {
        Err(PolicyError::NoPolicies(self.name()))
    }
    /// Returns this study with the policies of a version of Linux, for all mechanisms that an arm
    /// does not choose.
    fn on_version(&self, _version: Version) -> Result<&'static dyn Study, PolicyError> {
        Err(PolicyError::NoPolicies(self.name()))
    }
    /// Returns the policy of an arm that other versions of Linux have, but not the chosen one.
    fn of_another_version(&self, _arm: ArmId) -> Option<OtherVersion> {
        None
    }
    /// Returns all metrics that [`SeedResult::metrics`] may contain, in display order.
    fn metrics(&self) -> &'static [MetricSpec];
    /// Returns the default machine.
    fn defaults(&self) -> Defaults;
    /// Returns remarks for the report: the length of the run, metrics that need longer runs. One
    /// paragraph each.
    fn remarks(&self, _params: &Params, _on: Target) -> Vec<String> {
        Vec::new()
    }
    /// Returns the parameters with the defaults for a quick run of a large simulated machine, where
    /// full windows would take minutes.
    fn params_quick_large(&self) -> &'static [ParamSpec] {
        self.params()
    }
    /// Returns the parameters with the defaults for a machine.
    fn params_on(&self, _on: Target) -> &'static [ParamSpec] {
        self.params()
    }
    /// Returns whether a parameter applies to a machine. Parameters of a simulated machine or its
    /// memory manager do not apply to the live kernel: they cannot be set there, and documents do
    /// not contain them.
    fn takes(&self, _param: &str, _on: Target) -> bool {
        true
    }
    /// Returns whether an arm can run on a machine. The live kernel has only its own mechanisms.
    fn has_arm(&self, _arm: ArmId, _on: Target) -> bool {
        true
    }
    /// Returns the effective policies of an arm with these parameters, by mechanism, and its
    /// workload variants, for documents. The policies of a live kernel are unknown and not
    /// included.
    fn policies(&self, _arm: ArmId, _params: &Params, _on: Target) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// Returns the hash of the study's file, if it was read when the program started, or of its
    /// script.
    fn file_hash(&self) -> Option<&'static str> {
        None
    }
    /// Returns the script that the study runs, if it is one.
    fn script(&self) -> Option<&'static Script> {
        None
    }
    /// Returns the metrics for which runs with these parameters are too short. They are left out of
    /// documents, which state what the metrics need.
    fn too_short(&self, _params: &Params, _on: Target) -> Vec<TooShort> {
        Vec::new()
    }
    /// Returns an error if runs with these parameters can never give a result. A plan is then
    /// refused before anything runs.
    fn refuse(&self, _ctx: &RunContext) -> Result<(), String> {
        Ok(())
    }
    /// Returns the maximum number of concurrent tasks of a simulated run, without those of the
    /// machine.
    fn tasks(&self, _params: &Params, cpus: usize) -> u64 {
        4 * cpus as u64
    }
    /// Runs one arm with one seed. Called concurrently from several host threads on simulated
    /// machines, one call at a time on real ones.
    fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError>;
}

impl fmt::Debug for dyn Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Study({})", self.name())
    }
}

/// Whether checkers are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checks {
    /// Checkers are off.
    #[default]
    Off,
    /// Checkers are on; a finding fails the run.
    On,
}

/// The inputs of a run.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// The machine.
    pub on: Target,
    /// Number of CPUs of the machine, 1 to 4096.
    pub cpus: usize,
    /// Timer interrupts per second: 100, 250, 300 or 1000.
    pub hz: u32,
    /// The simulated machine's profile, already with `cpus` CPUs and at `hz`; `None` on real
    /// machines.
    pub profile: Option<Arc<Profile>>,
    /// The study's parameters.
    pub params: Params,
    /// Full or quick; `params` already has the corresponding defaults.
    pub length: Length,
    /// Whether checkers are on.
    pub checks: Checks,
    /// Whether to record what the holders of locks did while others waited.
    pub blame: bool,
    /// Scales work while a lock of one class is held.
    pub hold_scale: Option<HoldScale>,
    /// The stop request. A run checks it at least every 100 ms of host time, and then returns
    /// [`StudyError::Interrupted`].
    pub interrupt: Interrupt,
    /// The receiver of the run's progress.
    pub progress: Progress,
    /// The simulated machines' records of the order of their events.
    pub trails: Trails,
    /// The simulated machine's timeline.
    pub timelines: Timelines,
}

impl RunContext {
    /// Creates the inputs of a run: 250 ticks per second, no profile, no parameters, full length,
    /// nothing checked, scaled or recorded.
    pub fn new(on: Target, cpus: usize, interrupt: &Interrupt) -> Self {
        Self {
            on,
            cpus,
            hz: 250,
            profile: None,
            params: Params::default(),
            length: Length::default(),
            checks: Checks::Off,
            blame: false,
            hold_scale: None,
            interrupt: interrupt.clone(),
            progress: Progress::default(),
            trails: Trails::default(),
            timelines: Timelines::default(),
        }
    }

    /// Creates the same for the simulated machine of a profile, with all its CPUs.
    pub fn on_simulator(profile: Profile, interrupt: &Interrupt) -> Self {
        let ctx = Self::new(Target::Sim, profile.topology.cpus, interrupt);
        Self { hz: profile.hz, profile: Some(Arc::new(profile)), ..ctx }
    }
}

/// A stop request, set by Ctrl-C.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Creates an interrupt that follows a flag.
    pub fn new(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Returns whether a stop was requested.
    pub fn is_set(&self) -> bool {
        // Relaxed: the flag publishes no data, and a delayed observation is harmless.
        self.0.load(Ordering::Relaxed)
    }

    /// Requests all runs that share this interrupt to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns the flag, for code that does not depend on studies.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// An event during the execution of a plan. Runs are numbered from 0 in the order in which they
/// start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RunEvent {
    /// A run started.
    Started {
        /// The number of the run.
        run: usize,
        /// The arm of the run.
        arm: ArmId,
        /// The seed of the run.
        seed: u64,
    },
    /// A run made progress.
    Advanced {
        /// The number of the run.
        run: usize,
        /// The completed fraction of the run, 0 to 1.
        fraction: f64,
    },
    /// A run succeeded.
    Finished {
        /// The number of the run.
        run: usize,
    },
}

/// Receives events from any of the host threads that execute runs.
pub trait ProgressSink: Send + Sync {
    /// Processes one event; must return quickly.
    fn event(&self, event: RunEvent);
}

/// The progress reporter of one run.
#[derive(Clone, Default)]
pub struct Progress {
    sink: Option<Arc<dyn ProgressSink>>,
    run: usize,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Progress(run {})", self.run)
    }
}

impl Progress {
    /// Creates the reporter of run `run` to `sink`.
    pub fn new(sink: Arc<dyn ProgressSink>, run: usize) -> Self {
        Self { sink: Some(sink), run }
    }

    /// Reports that `fraction` of the run (0 to 1) is done. This is a virtual call: it should be
    /// called some hundred times per run, not at every event.
    pub fn set(&self, fraction: f64) {
        if let Some(sink) = &self.sink {
            sink.event(RunEvent::Advanced { run: self.run, fraction: fraction.clamp(0.0, 1.0) });
        }
    }
}

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
    /// Adds a metric, which must be one of [`Study::metrics`].
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
}

fn checkers(findings: usize) -> &'static str {
    if findings == 1 { "a checker" } else { "the checkers" }
}

#[cfg(test)]
mod tests {
    use super::MetricSpec;

    #[test]
    fn a_share_is_0_to_1_and_other_metrics_are_what_they_are() {
        let share = MetricSpec::new("idle_share", "1", "share of the time of all CPUs");
        let by_help = MetricSpec::new("fragmentation", "1", "share of free pages");
        for spec in [share, by_help] {
            for good in [0.0, 0.5, 1.0] {
                assert!(spec.check(good.into()).is_ok(), "{good}");
            }
            for bad in [-0.001, 1.001, 1.505] {
                let why = spec.check(bad.into()).expect_err("it is no share").to_string();
                assert!(why.contains(spec.name) && why.contains(&bad.to_string()), "{why}");
            }
        }
        assert!(MetricSpec::new("amplification", "1", "a ratio").check(1.505.into()).is_ok());
    }
}
