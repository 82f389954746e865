//! The outcome of a run.

use crate::record::sections::CpuSections;
use crate::record::trail::Trail;
use mmscale_arch::{CpuId, Probe};
use mmscale_document::{BlameRows, CallRow, LineRecord, LockRow, Timeline};

/// The outcome of a run.
pub struct Outcome {
    /// When the last task returned, in ns of virtual time.
    pub virtual_ns: u64,
    /// Operations on shared state, interrupts and task switches: the events that the engine
    /// ordered.
    pub events: u64,
    /// A hash of all virtual results and of the final state of all generators. Equal for equal
    /// configuration and binary, under either policy.
    pub fingerprint: u64,
    /// Lock statistics by class and call path, sorted.
    pub locks: Vec<LockRow>,
    /// CPU time by call path, sorted, while locks are counted. Spinning is included, sleeping is
    /// not.
    pub calls: Vec<CallRow>,
    /// Transfers of cache lines between CPUs by what the lines hold.
    pub lines: Vec<LineRecord>,
    /// Time for which CPUs were idle while tasks that could run there waited for others, in ns,
    /// while locks are counted.
    pub stranded_ns: u64,
    /// Delays between the arrival and the delivery of interrupts, whether interrupts were off or
    /// not.
    pub lateness: Lateness,
    /// Sections without preemption, by CPU; empty unless the run asked for them.
    pub sections: Vec<CpuSections>,
    /// The work of the holders of locks while others waited, if the run asked for it.
    pub blame: BlameRows,
    /// The timeline, as far as the run recorded it.
    pub timeline: Timeline,
    /// The order of events, as far as the run recorded it.
    pub trail: Trail,
    /// Broken rules, in the order in which the checkers saw them.
    pub violations: Vec<Violation>,
    /// Why the run ended early, if it did.
    pub failure: Option<Failure>,
    /// The probe of each CPU.
    pub probes: Vec<Box<dyn Probe>>,
}

/// Delays between the arrival and the delivery of interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lateness {
    /// Interrupts delivered.
    pub interrupts: u64,
    /// The largest delay, in ns.
    pub max_ns: u64,
    /// The mean delay, in ns.
    pub mean_ns: u64,
}

/// A CPU, a time and a call path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The CPU.
    pub cpu: CpuId,
    /// Virtual time, in ns.
    pub time_ns: u64,
    /// The call path, outermost first.
    pub path: Vec<String>,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {} ns in {}", self.cpu, self.time_ns, self.path.join(" > "))
    }
}

/// A rule that the code on the machine broke.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// The action that broke it.
    pub what: String,
    /// The CPU, the time and the call path.
    pub location: Location,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} ({})", self.rule, self.what, self.location)
    }
}

/// The rules that the engine checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// A lock is taken only while every lock held has a smaller rank.
    LockOrder,
    /// A class that an interrupt waits for is never taken with interrupts on, and comes after all
    /// that are.
    InterruptSafety,
    /// Code that sleeps has preemption and interrupts on and is in no interrupt.
    SleepWhileAtomic,
    /// Tasks and interrupts leave the preemption count and the interrupt state as they found them.
    Balance,
    /// A lock is released by the CPU that holds it.
    UnlockOwner,
    /// No interrupt is sent to a CPU that is offline.
    OfflineIpi,
    /// A frame is allocated to one holder at a time, freed by a holder, and not used after that.
    FrameState,
    /// A counter's bytes stay within the thresholds, so that its total is off by at most CPUs x
    /// threshold, and every change has a tracepoint.
    CounterDrift,
    /// A CPU that goes offline leaves no counts and no cached pages behind.
    LeftBehind,
    /// Each page table that the exit and reapers share is claimed once.
    ClaimedTwice,
    /// No CPU can reach a freed frame by a translation in its TLB.
    StaleTranslation,
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing can happen any more, and tasks wait.
    #[error("deadlock at {time_ns} ns: {}", waiting.join("; "))]
    Deadlock {
        /// The time, in ns.
        time_ns: u64,
        /// The CPUs and tasks that wait, and what for.
        waiting: Vec<String>,
    },
    /// Virtual time ran out.
    #[error("still running after {limit_ns} ns of virtual time; waiting: {}", waiting.join("; "))]
    Limit {
        /// The limit.
        limit_ns: u64,
        /// The CPUs and tasks that wait, and what for.
        waiting: Vec<String>,
    },
    /// Code on the machine panicked.
    #[error("panic on {location}: {message}")]
    Panic {
        /// The panic's message.
        message: String,
        /// The CPU, the time and the call path.
        location: Location,
    },
    /// The host gave no stack for a task.
    #[error(
        "cannot allocate the stack of task {task}: {reason}; use fewer CPUs or \
         processes, or raise the limit on memory (ulimit -v) or on mappings (vm.max_map_count)"
    )]
    NoStack {
        /// The task's number.
        task: usize,
        /// The host's error.
        reason: String,
    },
    /// [`crate::SimConfig::interrupt`] was set.
    #[error("interrupted at {time_ns} ns of virtual time")]
    Interrupted {
        /// The time, in ns.
        time_ns: u64,
    },
}
