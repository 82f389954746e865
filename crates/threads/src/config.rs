//! The configuration of a run and its outcome.

use mmscale_arch::{CpuId, Probe};
use mmscale_document::{CallRow, LockRow};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A machine on this computer, for one run.
#[derive(Clone, Debug)]
pub struct ThreadsConfig {
    /// CPUs: OS threads, pinned where the system allows it. If there are more of them than the
    /// computer has, they share its CPUs.
    pub cpus: usize,
    /// Timer interrupts a second, as the memory manager sees them.
    pub hz: u32,
    /// The seed of the random numbers of policies ([`Cpu::random_u64`]). Nothing else depends on
    /// it: real threads do not repeat.
    ///
    /// [`Cpu::random_u64`]: mmscale_arch::Cpu::random_u64
    pub seed: u64,
    /// Frames of 4 KiB. The system provides memory as frames are touched.
    pub memory_pages: u64,
    /// Time after which the run counts as failed, in ns.
    pub limit_ns: u64,
    /// A flag that ends the run early when it is set.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// The outcome of a run.
pub struct Outcome {
    /// From the end of the boot until the last task returned, in ns.
    pub wall_ns: u64,
    /// Lock statistics by class and call path, sorted. Holds are not measured.
    pub locks: Vec<LockRow>,
    /// Time by call path, for the functions that run long enough to be measured, sorted.
    pub calls: Vec<CallRow>,
    /// The probe of each CPU.
    pub probes: Vec<Box<dyn Probe>>,
    /// The largest delay of a timer interrupt, in ns.
    pub timer_late_max_ns: u64,
    /// Whether every CPU had a CPU of the computer to itself.
    pub own_host_cpus: bool,
    /// Whether every thread could be pinned.
    pub pinned: bool,
    /// Why the run ended early, if it did.
    pub failure: Option<Failure>,
}

/// Why a run ended early, or did not start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is invalid.
    #[error("cannot start a machine with {what}")]
    Config {
        /// The invalid part.
        what: String,
    },
    /// The system refused memory or a thread.
    #[error("cannot start the machine: {what}: {reason}; ask for fewer CPUs or less memory")]
    System {
        /// The resource that was requested.
        what: &'static str,
        /// The system's error.
        reason: String,
    },
    /// Every task waits, no timer is armed: nothing can happen any more.
    #[error("deadlock after {time_ns} ns: {tasks} tasks wait and nothing will wake them")]
    Deadlock {
        /// The time, in ns.
        time_ns: u64,
        /// The number of tasks that wait.
        tasks: usize,
    },
    /// Time ran out.
    #[error("still running after {limit_ns} ns with {tasks} tasks that have not returned")]
    Limit {
        /// The limit.
        limit_ns: u64,
        /// The number of tasks that have not returned.
        tasks: usize,
    },
    /// Code on the machine panicked.
    #[error("panic on {cpu}: {message}")]
    Panic {
        /// The CPU.
        cpu: CpuId,
        /// The panic's message.
        message: String,
    },
    /// [`ThreadsConfig::interrupt`] was set.
    #[error("interrupted after {time_ns} ns")]
    Interrupted {
        /// The time, in ns.
        time_ns: u64,
    },
}

/// Returns the message of a panic.
pub(crate) fn panic_message(payload: &(dyn core::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
