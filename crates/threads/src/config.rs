//! What a run is asked to be, and what it leaves.

use mmscale_arch::{CpuId, Probe};
use mmscale_document::{CallRow, LockRow};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A machine on this computer, for one run.
#[derive(Clone, Debug)]
pub struct ThreadsConfig {
    /// CPUs: OS threads, pinned where the system allows it. They share the computer's CPUs if
    /// there are more of them.
    pub cpus: usize,
    /// Timer interrupts a second, as the memory manager sees it.
    pub hz: u32,
    /// What policies draw their random numbers from ([`Cpu::random_u64`]). Nothing else depends on
    /// it: real threads do not repeat.
    ///
    /// [`Cpu::random_u64`]: mmscale_arch::Cpu::random_u64
    pub seed: u64,
    /// Frames of 4 KiB. Memory is taken from the system as frames are touched.
    pub memory_pages: u64,
    /// Time after which the run counts as failed, in ns.
    pub limit_ns: u64,
    /// Somebody outside sets this to end the run early.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// What a run leaves.
pub struct Outcome {
    /// From the end of the boot until the last task returned, in ns.
    pub wall_ns: u64,
    /// Lock statistics by class and call path, sorted. Holds are not measured.
    pub locks: Vec<LockRow>,
    /// Time in functions that are coarse enough to be measured, by call path, sorted.
    pub calls: Vec<CallRow>,
    /// The probe of each CPU.
    pub probes: Vec<Box<dyn Probe>>,
    /// The latest that a timer interrupt came after its time, in ns.
    pub timer_late_max_ns: u64,
    /// Whether every CPU had a CPU of the computer to itself.
    pub own_host_cpus: bool,
    /// Whether every thread could be pinned.
    pub pinned: bool,
    /// Why the run ended early, if it did.
    pub failure: Option<Failure>,
}

/// Why a run ended early, or did not begin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration makes no sense.
    #[error("cannot start a machine with {what}")]
    Config {
        /// What is wrong with it.
        what: String,
    },
    /// The system refused memory or a thread.
    #[error("cannot start the machine: {what}: {reason}; ask for fewer CPUs or less memory")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
    /// Every task waits, no timer is armed: nothing can happen any more.
    #[error("deadlock after {time_ns} ns: {tasks} tasks wait and nothing will wake them")]
    Deadlock {
        /// When.
        time_ns: u64,
        /// How many wait.
        tasks: usize,
    },
    /// Time ran out.
    #[error("still running after {limit_ns} ns with {tasks} tasks that have not returned")]
    Limit {
        /// The limit.
        limit_ns: u64,
        /// How many.
        tasks: usize,
    },
    /// Code on the machine panicked.
    #[error("panic on {cpu}: {message}")]
    Panic {
        /// Where.
        cpu: CpuId,
        /// What it said.
        message: String,
    },
    /// Somebody outside asked for the end.
    #[error("interrupted after {time_ns} ns")]
    Interrupted {
        /// When.
        time_ns: u64,
    },
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn core::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
