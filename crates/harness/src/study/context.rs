//! The inputs of a run, and the events of its progress.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mmscale_document::Target;
use mmscale_sim::HoldScale;
use mmscale_sim::profile::Profile;

use super::{ArmId, Timelines, Trails};
use crate::param::{Length, Params};

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
    /// [`StudyError::Interrupted`](super::StudyError::Interrupted).
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
        /// The host time at which it started: it may be reported later.
        at: Instant,
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
        /// Its host time.
        took: Duration,
    },
    /// A run failed or was interrupted.
    Failed {
        /// The number of the run.
        run: usize,
    },
    /// A first look has decided how many runs there are ([`Plan::look`](crate::Plan::look)).
    Decided {
        /// The number of runs of the plan.
        runs: usize,
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
