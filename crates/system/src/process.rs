//! Processes and threads.

/// A thread that was started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

/// A process that was started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub u32);

/// A descriptor: what a process calls something that it has opened. The lowest free number is
/// taken, so a number that was closed is used again. A fork has the same descriptors, any other new
/// process has none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fd(pub u32);

/// How a thread is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// Shares its CPU in time slices.
    Fair,
    /// Runs until it blocks; a larger number goes first.
    RealTime(u8),
}

/// Where and how a new thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadSpec {
    /// The CPU it starts on, below [`System::cpus`](crate::System::cpus).
    pub cpu: usize,
    /// How it is scheduled.
    pub priority: Priority,
}

impl ThreadSpec {
    /// A fair thread on `cpu`.
    pub const fn on(cpu: usize) -> Self {
        Self { cpu, priority: Priority::Fair }
    }
    /// The same thread as a real-time one; a larger number goes first.
    #[must_use]
    pub const fn real_time(self, level: u8) -> Self {
        Self { priority: Priority::RealTime(level), ..self }
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Its threads returned.
    Returned,
    /// It was killed.
    Killed,
}

/// CPU time of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    /// In its own code, in ns.
    pub user_ns: u64,
    /// In the system, in ns.
    pub system_ns: u64,
}
