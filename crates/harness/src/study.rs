//! What a study is, what it is given, and what it gives back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mmscale_document::{CallRow, Histogram, LockRow, On, PerCpu, SectionRecord, Span, Value};
use mmscale_sim::profile::Profile;
use thiserror::Error;

use crate::chosen::{PolicyArm, PolicyError};
use crate::param::{Length, ParamSpec, Params};
use crate::trails::Trails;

/// An arm's place in [`Study::arms`]. All that a run is told about its arm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArmId(pub usize);

/// An arm: a named set of policies.
#[derive(Clone, Copy, Debug)]
pub struct ArmSpec {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
}

/// A metric that a study measures.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// Its name, in snake_case, unit last where it carries one; stable over versions.
    pub name: &'static str,
    /// Its unit: `1`, `ns`, `pages`, `1/s`, ...
    pub unit: &'static str,
    /// What it means, in one line.
    pub help: &'static str,
}

/// Metrics for which a run is too short.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooShort {
    /// Their names.
    pub metrics: Vec<&'static str>,
    /// What they need, as a reader of the report sets it.
    pub needs: String,
}

/// The machine that a study runs on by default.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// The machines it can run on; the first is the default.
    pub machines: &'static [On],
    /// The built-in machine profile.
    pub profile: &'static str,
    /// CPUs of a simulated machine.
    pub cpus: usize,
    /// Timer interrupts a second.
    pub hz: u32,
}

/// A study: a workload, the arms that it compares, and what it measures.
pub trait Study: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;
    /// The question, in one line.
    fn summary(&self) -> &'static str;
    /// Its parameters. CPUs and HZ are not among them: every study has those.
    fn params(&self) -> &'static [ParamSpec];
    /// Its arms. The others are compared with the first.
    fn arms(&self) -> &'static [ArmSpec];
    /// The same study with further arms behind its own: its first arm with the policies that a call
    /// chooses.
    fn with_arms(&self, _wanted: &[PolicyArm]) -> Result<&'static dyn Study, PolicyError> {
        Err(PolicyError::NoPolicies(self.name()))
    }
    /// Everything that [`SeedResult::metrics`] may hold, in the order in which it is shown.
    fn metrics(&self) -> &'static [MetricSpec];
    /// The machine that it runs on by default.
    fn defaults(&self) -> Defaults;
    /// What a reader of its report must know: how long it ran, which figures want longer runs. One
    /// paragraph each.
    fn remarks(&self, _params: &Params, _on: On) -> Vec<String> {
        Vec::new()
    }
    /// Its parameters with the defaults of a quick run of a large simulated machine, where full
    /// windows would take minutes.
    fn params_quick_large(&self) -> &'static [ParamSpec] {
        self.params()
    }
    /// Its parameters on a machine: the same, but perhaps with other defaults.
    fn params_on(&self, _on: On) -> &'static [ParamSpec] {
        self.params()
    }
    /// Whether a parameter means anything on a machine. What describes a simulated machine or its
    /// memory manager means nothing on the live kernel, which is as it is: it cannot be set there,
    /// and records do not have it.
    fn takes(&self, _param: &str, _on: On) -> bool {
        true
    }
    /// Whether a machine can be what an arm asks for. The live kernel has its own mechanisms and no
    /// others.
    fn has_arm(&self, _arm: ArmId, _on: On) -> bool {
        true
    }
    /// The policies that are in force in an arm with these parameters, by mechanism, and what its
    /// workload does differently: for readers of records, which show it. A live kernel has its own
    /// policies, which are not among them.
    fn policies(&self, _arm: ArmId, _params: &Params, _on: On) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// The hash of the study's file, where it was read when the program began.
    fn file_hash(&self) -> Option<&'static str> {
        None
    }
    /// Metrics for which runs with these parameters are too short. They are left out of records,
    /// which say what they need.
    fn too_short(&self, _params: &Params, _on: On) -> Vec<TooShort> {
        Vec::new()
    }
    /// Why a run with these parameters can never give a result, if so: what a plan is refused for
    /// before anything runs.
    fn refuse(&self, _ctx: &RunContext) -> Result<(), String> {
        Ok(())
    }
    /// The most tasks that a simulated run has at once, but for those of the machine itself.
    fn tasks(&self, _params: &Params, cpus: usize) -> u64 {
        4 * cpus as u64
    }
    /// Runs one arm with one seed. Called from several host threads at once where the machine is
    /// simulated, and from one at a time where it is this computer.
    fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError>;
}

impl fmt::Debug for dyn Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Study({})", self.name())
    }
}

/// Whether the checkers watch a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checks {
    /// They do not.
    #[default]
    Off,
    /// They do, and what they find fails the run.
    On,
}

/// What a run is given.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// The machine.
    pub on: On,
    /// CPUs of the machine, 1 to 4096.
    pub cpus: usize,
    /// Timer interrupts a second: 100, 250, 300 or 1000.
    pub hz: u32,
    /// The simulated machine's profile, already with `cpus` CPUs and at `hz`; none on real ones.
    pub profile: Option<Arc<Profile>>,
    /// The study's parameters.
    pub params: Params,
    /// Whether this is the full or the quick run; `params` already are its defaults.
    pub length: Length,
    /// Whether the checkers watch.
    pub checks: Checks,
    /// Says when to stop early. A run looks at it at least every 100 ms of host time, and returns
    /// [`StudyError::Interrupted`].
    pub interrupt: Interrupt,
    /// Where to say how far the run is.
    pub progress: Progress,
    /// What simulated machines keep of the order of their events.
    pub trails: Trails,
}

/// A wish to stop, set by Ctrl-C.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// An interrupt that follows a flag.
    pub fn new(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        // Relaxed: the flag carries no data with it, and a late look is as good as a later signal.
        self.0.load(Ordering::Relaxed)
    }

    /// Asks every run that shares this interrupt to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for code that knows nothing of studies.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// Something that happened while a plan was executed. Runs are numbered from 0 in the order in
/// which they are started.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RunEvent {
    /// A run began.
    Started {
        /// Its number.
        run: usize,
        /// Its arm.
        arm: ArmId,
        /// Its seed.
        seed: u64,
    },
    /// A run got further.
    Advanced {
        /// Its number.
        run: usize,
        /// How much of it is done, 0 to 1.
        fraction: f64,
    },
    /// A run ended well.
    Finished {
        /// Its number.
        run: usize,
    },
}

/// Receives events, from any of the host threads that runs are on.
pub trait ProgressSink: Send + Sync {
    /// Takes one event; must be quick.
    fn event(&self, event: RunEvent);
}

/// Where one run says how far it is.
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
    /// The progress of run `run`, told to `sink`.
    pub fn new(sink: Arc<dyn ProgressSink>, run: usize) -> Self {
        Self { sink: Some(sink), run }
    }

    /// Says that `fraction` of the run (0 to 1) is done. Costs a virtual call: say it some
    /// hundred times a run, not at every event.
    pub fn set(&self, fraction: f64) {
        if let Some(sink) = &self.sink {
            sink.event(RunEvent::Advanced { run: self.run, fraction: fraction.clamp(0.0, 1.0) });
        }
    }
}

/// What one run of one arm with one seed measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeedResult {
    /// Metrics by name; a metric that had nothing to measure is left out.
    pub metrics: BTreeMap<&'static str, Value>,
    /// Metrics that the run could not measure, each with what that needs.
    pub missing: BTreeMap<&'static str, &'static str>,
    /// Lock statistics by class and call path.
    pub locks: Vec<LockRow>,
    /// CPU time by call path, where the study shows it.
    pub calls: Vec<CallRow>,
    /// Figures that each CPU has, by name.
    pub per_cpu: BTreeMap<String, PerCpu>,
    /// Distributions, by name.
    pub histograms: BTreeMap<String, Histogram>,
    /// The longest stretches without preemption, longest first.
    pub sections: Vec<SectionRecord>,
    /// What ran when; the runner fills the seed in.
    pub spans: Vec<Span>,
    /// What the run cost the host, by name; outside the fingerprint.
    pub host_metrics: BTreeMap<String, f64>,
    /// How long the window is of which the figures are, in ns of the machine's time; none where a
    /// run ends when its work is done.
    pub window_ns: Option<u64>,
    /// The machine's own fingerprint of the run: virtual results and final generator state.
    pub fingerprint: u64,
}

impl SeedResult {
    /// Adds a metric. The name is one of [`Study::metrics`].
    pub fn metric(&mut self, name: &'static str, value: impl Into<Value>) {
        let before = self.metrics.insert(name, value.into());
        assert!(before.is_none(), "metric {name} is measured twice");
    }
}

/// Why a run gave no result.
#[derive(Debug, Error)]
pub enum StudyError {
    /// It was asked to stop, or ended before its time.
    #[error("it was interrupted")]
    Interrupted,
    /// A checker found something; each line is one finding.
    #[error("{} found something wrong:\n  {}", checkers(.0.len()), .0.join("\n  "))]
    Check(Vec<String>),
    /// The machine cannot do what the study needs.
    #[error("{0}")]
    Machine(String),
}

fn checkers(findings: usize) -> &'static str {
    if findings == 1 { "a checker" } else { "the checkers" }
}
