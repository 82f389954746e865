//! What a run leaves.

use crate::sections::CpuSections;
use crate::trail::Trail;
use mmscale_arch::{CpuId, Probe};
use mmscale_document::{CallRow, LockRow};

/// What a run leaves.
pub struct Outcome {
    /// When the last task returned, in ns of virtual time.
    pub virtual_ns: u64,
    /// Operations on shared state, interrupts and task switches: what the engine had to order.
    pub events: u64,
    /// A hash of all virtual results and of the final state of all generators. Equal for equal
    /// configuration and binary, under either policy.
    pub fingerprint: u64,
    /// Lock statistics by class and call path, sorted.
    pub locks: Vec<LockRow>,
    /// CPU time by call path, spinning included and sleeping not, sorted: while locks are counted.
    pub calls: Vec<CallRow>,
    /// How late interrupts were delivered, after they arrived, with interrupts off or not.
    pub lateness: Lateness,
    /// Sections without preemption, by CPU; empty unless the run asked for them.
    pub sections: Vec<CpuSections>,
    /// What the run kept of the order of events.
    pub trail: Trail,
    /// What the checkers saw, in the order in which it happened.
    pub violations: Vec<Violation>,
    /// Why the run ended early, if it did.
    pub failure: Option<Failure>,
    /// The probe of each CPU.
    pub probes: Vec<Box<dyn Probe>>,
}

/// How late interrupts were delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lateness {
    /// Interrupts delivered.
    pub interrupts: u64,
    /// The largest delay, in ns.
    pub max_ns: u64,
    /// The mean delay, in ns.
    pub mean_ns: u64,
}

/// Where and when something happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The CPU.
    pub cpu: CpuId,
    /// Virtual time, in ns.
    pub time_ns: u64,
    /// The call path, outermost first.
    pub path: Vec<&'static str>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {} ns in {}", self.cpu, self.time_ns, self.path.join(" > "))
    }
}

/// A rule that the code on the machine broke.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// What was done.
    pub what: String,
    /// Where.
    pub place: Place,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} ({})", self.rule, self.what, self.place)
    }
}

/// The rules that the engine checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// A lock is taken only while every lock held has a smaller rank.
    LockOrder,
    /// A class that an interrupt waits for is never taken with interrupts on.
    InterruptSafety,
    /// Nobody sleeps with preemption or interrupts off, or in an interrupt.
    SleepWhileAtomic,
    /// Tasks and interrupts leave the preemption count and the interrupt state as they found them.
    Balance,
    /// A lock is let go by the CPU that holds it.
    UnlockOwner,
    /// No interrupt is sent to a CPU that is offline.
    OfflineIpi,
    /// A frame is handed out to one holder at a time, taken back from a holder, and used by nobody
    /// after that.
    FrameState,
    /// A counter's bytes stay within the thresholds, so that its total is off by at most CPUs x
    /// threshold, and change on no way that the tracepoints do not tell.
    CounterDrift,
    /// A CPU that has gone leaves no counts and no cached pages behind.
    LeftBehind,
    /// Of the page tables that exit and reapers share out each is claimed once.
    ClaimedTwice,
    /// No CPU can reach a frame that was freed by a translation that it still keeps.
    StaleTranslation,
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing can happen any more, and tasks wait.
    #[error("deadlock at {time_ns} ns: {}", waiting.join("; "))]
    Deadlock {
        /// When.
        time_ns: u64,
        /// Who waits, and for what.
        waiting: Vec<String>,
    },
    /// Virtual time ran out.
    #[error("still running after {limit_ns} ns of virtual time; waiting: {}", waiting.join("; "))]
    Limit {
        /// The limit.
        limit_ns: u64,
        /// Who waits, and for what.
        waiting: Vec<String>,
    },
    /// Code on the machine panicked.
    #[error("panic on {place}: {message}")]
    Panic {
        /// What it said.
        message: String,
        /// Where.
        place: Place,
    },
    /// The host gave no stack for a task.
    #[error(
        "the host gives no memory for the stack of task {task}: {reason}; use fewer CPUs or \
         processes, or raise the limit on memory (ulimit -v) or on mappings (vm.max_map_count)"
    )]
    NoStack {
        /// The task's number.
        task: usize,
        /// What the host said.
        reason: String,
    },
    /// Somebody outside asked for the end.
    #[error("interrupted at {time_ns} ns of virtual time")]
    Interrupted {
        /// When.
        time_ns: u64,
    },
}
