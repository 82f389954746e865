//! Processes and threads.

/// The number of a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

/// The number of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub u32);

/// A descriptor: the number of an object that a process has opened. The lowest free number is used,
/// so the number of a closed descriptor is reused. A fork inherits the descriptors; any other new
/// process has none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fd(pub u32);

/// How a thread is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// Shares its CPU in time slices.
    Fair,
    /// Runs until it blocks; larger numbers have priority.
    RealTime(u8),
}

/// Where and how a new thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadSpec {
    /// The CPU on which the thread starts, below [`System::cpus`](crate::System::cpus).
    pub cpu: usize,
    /// The scheduling priority.
    pub priority: Priority,
    /// The number of the memory group of a new process; 0 is the root. `None`: that of a forked
    /// process's parent; another new process is in the group that the system has for its CPU.
    /// Threads are in the group of their process.
    pub group: Option<usize>,
}

impl ThreadSpec {
    /// A thread with [`Priority::Fair`] on `cpu`.
    pub const fn on(cpu: usize) -> Self {
        Self { cpu, priority: Priority::Fair, group: None }
    }
    /// Returns this specification with a memory group for a new process.
    #[must_use]
    pub const fn in_group(self, group: usize) -> Self {
        Self { group: Some(group), ..self }
    }
    /// Returns this specification with [`Priority::RealTime`]; larger numbers have priority.
    #[must_use]
    pub const fn real_time(self, level: u8) -> Self {
        Self { priority: Priority::RealTime(level), ..self }
    }
}

/// Where a CPU is in its machine. Numbers say which CPUs are together; they have no order beyond
/// that of CPU numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuPosition {
    /// The core; hardware threads of one core have the same number.
    pub core: usize,
    /// The CPUs of one last-level cache.
    pub cluster: usize,
    /// The memory node.
    pub node: usize,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// All its threads returned.
    Returned,
    /// It was killed.
    Killed,
}

/// CPU time used by a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    /// Time in user mode, in ns.
    pub user_ns: u64,
    /// Time in kernel mode, in ns.
    pub system_ns: u64,
}
