//! The configuration of a run.

use crate::profile::{Noise, Profile};
use crate::record::sections::Windows;
use crate::record::timeline::TimelineOf;
use crate::record::trail::TrailOf;
use mmscale_arch::LockClass;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A machine and the circumstances of one run on it.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Topology and costs.
    pub profile: Profile,
    /// CPUs, 1 to `MAX_CPUS`. With fewer than the profile has, the first ones. With more, further
    /// clusters and nodes of the same size.
    pub cpus: usize,
    /// Timer interrupts a second, as the memory manager sees them.
    pub hz: u32,
    /// Seed of jitter, ties, noise and faults, and of what policies draw (`Cpu::random_u64`).
    pub seed: u64,
    /// How the engine orders CPUs. Both policies give the same results.
    pub policy: Policy,
    /// The order in which CPUs get the line of an atomic that several wait for.
    pub line_order: LineOrder,
    /// Counterfactual: scales the time of work while a lock of one class is held.
    pub hold_scale: Option<HoldScale>,
    /// Disturbance from outside the simulated system.
    pub noise: Noise,
    /// Faults to inject.
    pub faults: Faults,
    /// Whether the checkers are on.
    pub checks: Checks,
    /// Locks are counted if they were requested at or after the first time and before the second,
    /// in ns of virtual time.
    pub locks_ns: (u64, u64),
    /// Windows in which sections without preemption are recorded; `None` records none.
    pub sections: Option<Windows>,
    /// Whether to record what the holders of a lock did while others waited for it.
    pub blame: bool,
    /// Which part of the timeline to record.
    pub timeline: TimelineOf,
    /// Which part of the order of events to record.
    pub trail: TrailOf,
    /// Virtual time after which the run counts as failed, in ns.
    pub limit_ns: u64,
    /// A flag that ends the run early when the host sets it.
    pub interrupt: Option<Arc<AtomicBool>>,
    /// Receives the progress of the run.
    pub progress: Option<Listener>,
}

/// A function that receives the virtual time in ns every now and then, on the host thread of the
/// run.
#[derive(Clone)]
pub struct Listener(Arc<dyn Fn(u64) + Send + Sync>);

impl Listener {
    /// Makes a listener that calls `hear`.
    pub fn new(hear: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }
    pub(crate) fn tell(&self, now_ns: u64) {
        (self.0)(now_ns);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl SimConfig {
    /// `cpus` CPUs of `profile` with seed 0, checkers on, nothing injected, and a limit of an hour.
    pub fn new(profile: Profile, cpus: usize) -> Self {
        Self {
            hz: profile.hz,
            profile,
            cpus,
            seed: 0,
            policy: Policy::Lazy,
            line_order: LineOrder::Arrival,
            hold_scale: None,
            noise: Noise::default(),
            faults: Faults::default(),
            checks: Checks::On,
            locks_ns: (0, u64::MAX),
            sections: None,
            blame: false,
            timeline: TimelineOf::Nothing,
            trail: TrailOf::Nothing,
            limit_ns: 3_600_000_000_000,
            interrupt: None,
            progress: None,
        }
    }
}

/// When a CPU waits for CPUs with earlier clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Only before an operation on shared state.
    #[default]
    Lazy,
    /// After every charge too: slower, easy to see to be right, the reference for `Lazy`.
    Naive,
}

/// The order in which CPUs get the line of an atomic that several wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LineOrder {
    /// That of their requests: each pays the way from the CPU before it.
    #[default]
    Arrival,
    /// On its way from cluster to cluster the line goes to all CPUs of a cluster that wait.
    ByCluster,
}

/// Scales the time of a CPU's own work while it holds a lock of `class`: operations, lines and
/// atomics. It changes neither the lock's own handoff nor which code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldScale {
    /// The class whose critical sections change.
    pub class: LockClass,
    /// The factor, in 1/1024.
    pub factor_1024: u32,
}

/// Whether the checkers are on. They cost host time and change no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checks {
    /// On.
    #[default]
    On,
    /// Off.
    Off,
}

/// Faults to inject; none by default. Shares are in 1/1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Inter-processor interrupts that arrive late.
    pub late_ipi_1024: u32,
    /// How much later they arrive, in ns.
    pub late_ipi_ns: u64,
    /// Inter-processor interrupts that are lost, as on a faulty machine.
    pub lost_ipi_1024: u32,
    /// Parks that return early.
    pub early_park_1024: u32,
    /// Allocations for which `Cpu::fail_alloc` returns true.
    pub alloc_fail_1024: u32,
    /// Requests that the swap device fails.
    pub io_fail_1024: u32,
}
