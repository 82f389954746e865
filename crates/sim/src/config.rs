//! What a run is asked to be.

use crate::profile::{Noise, Profile};
use crate::trail::TrailOf;
use mmscale_arch::LockClass;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A machine and the circumstances of one run on it.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Topology and costs.
    pub profile: Profile,
    /// CPUs, 1 to `MAX_CPUS`. Fewer than the profile has: the first ones. More: further clusters
    /// and nodes of the same size.
    pub cpus: usize,
    /// Timer interrupts a second, as the memory manager sees it.
    pub hz: u32,
    /// Decides jitter, ties, noise and faults, and what policies draw (`Cpu::random_u64`).
    pub seed: u64,
    /// How the engine keeps CPUs in order. Both give the same results.
    pub policy: Policy,
    /// What-if: work done while a lock of one class is held takes this much longer or shorter.
    pub hold_scale: Option<HoldScale>,
    /// Disturbance from outside the system under test.
    pub noise: Noise,
    /// Faults to inject.
    pub faults: Faults,
    /// Whether the checkers look on.
    pub checks: Checks,
    /// Locks are counted if they were asked for from the first time on and before the second, in
    /// ns of virtual time.
    pub locks_ns: (u64, u64),
    /// Windows in which sections without preemption are looked at; `None`: they are not.
    pub sections: Option<Windows>,
    /// What to keep of the order of events.
    pub trail: TrailOf,
    /// Virtual time after which the run counts as failed, in ns.
    pub limit_ns: u64,
    /// Somebody outside sets this to end the run early.
    pub interrupt: Option<Arc<AtomicBool>>,
    /// Who is told how far the run is.
    pub progress: Option<Listener>,
}

/// Is told virtual time in ns every now and then, on the host thread of the run.
#[derive(Clone)]
pub struct Listener(Arc<dyn Fn(u64) + Send + Sync>);

impl Listener {
    /// Has `hear` called.
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
            hold_scale: None,
            noise: Noise::default(),
            faults: Faults::default(),
            checks: Checks::On,
            locks_ns: (0, u64::MAX),
            sections: None,
            trail: TrailOf::Nothing,
            limit_ns: 3_600_000_000_000,
            interrupt: None,
            progress: None,
        }
    }
}

/// Windows one after the other, of each of which every CPU tells its longest section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// When the first begins, in ns of virtual time.
    pub from_ns: u64,
    /// How long each is, in ns; not 0.
    pub window_ns: u64,
    /// How many there are.
    pub count: usize,
}

/// When a CPU waits for the CPUs that are behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Only before an operation on shared state.
    #[default]
    Lazy,
    /// After every charge too: slower, obviously right, the oracle for `Lazy`.
    Naive,
}

/// Multiplies what a CPU's own work costs while it holds a lock of `class`: operations, lines and
/// atomics. It does not change the lock's own handoff, nor which code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldScale {
    /// The class whose critical sections change.
    pub class: LockClass,
    /// The factor, in 1/1024.
    pub factor_1024: u32,
}

/// Whether the checkers look on. They cost host time and change no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checks {
    /// They do.
    #[default]
    On,
    /// They do not.
    Off,
}

/// Faults to inject: none by default. Shares are in 1/1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Inter-processor interrupts that arrive late.
    pub late_ipi_1024: u32,
    /// How much later they arrive, in ns.
    pub late_ipi_ns: u64,
    /// Inter-processor interrupts that never arrive, as a machine with a fault in it has them.
    pub lost_ipi_1024: u32,
    /// Parks that return early.
    pub early_park_1024: u32,
    /// Allocations that `Cpu::fail_alloc` tells to fail.
    pub alloc_fail_1024: u32,
    /// Requests that the swap device fails.
    pub io_fail_1024: u32,
}
