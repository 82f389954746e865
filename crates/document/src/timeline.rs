//! A timeline: the work of the CPUs of a simulated machine around a moment. It is the input of
//! traces and is not part of a run's document.

/// A span of virtual time on one CPU, in ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The beginning.
    pub from_ps: u64,
    /// The end.
    pub to_ps: u64,
}

impl Interval {
    /// Returns the length, in ps.
    pub const fn ps(&self) -> u64 {
        self.to_ps - self.from_ps
    }
    /// Returns the part of it within another one; `None` if they do not meet.
    pub fn within(&self, other: Self) -> Option<Self> {
        let (from_ps, to_ps) = (self.from_ps.max(other.from_ps), self.to_ps.min(other.to_ps));
        (from_ps < to_ps).then_some(Self { from_ps, to_ps })
    }
}

/// A lock: its class and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockName {
    /// The class: `zone`, `lruvec`, ...
    pub class: String,
    /// Its name: `zone 1`, `lruvec of group 7 on node 0`; `pte #3` for the fourth of the class
    /// that has none, in the order of their first use.
    pub name: String,
}

impl std::fmt::Display for LockName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// A wait for a spin lock, from the request to the grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSpan {
    /// The CPU that waited.
    pub cpu: u32,
    /// The lock.
    pub lock: LockName,
    /// The time of the wait.
    pub at: Interval,
    /// The call path of the waiter, outermost function first.
    pub path: Vec<String>,
    /// The CPU that handed the lock over to it.
    pub from_cpu: u32,
}

/// A hold of a spin lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldSpan {
    /// The CPU that held it.
    pub cpu: u32,
    /// The lock.
    pub lock: LockName,
    /// The time of the hold.
    pub at: Interval,
    /// The call path on which the lock was taken, outermost function first.
    pub path: Vec<String>,
    /// Cache misses of the CPU meanwhile: lines that came from another CPU or from memory.
    pub misses: u64,
}

/// A CPU on one call path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The CPU.
    pub cpu: u32,
    /// The number of the task; `None` for the idle task.
    pub task: Option<u32>,
    /// The time.
    pub at: Interval,
    /// The call path, outermost function first.
    pub path: Vec<String>,
}

/// An interrupt that one CPU sent to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentInterrupt {
    /// The reason, as a word.
    pub reason: String,
    /// The CPU that sent it.
    pub from_cpu: u32,
    /// The CPU to which it went.
    pub to_cpu: u32,
    /// From the sending to the arrival.
    pub at: Interval,
}

/// The work of the CPUs of a machine in a window of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The longest wait that was looked for.
    pub worst: Option<WaitSpan>,
    /// Waits in the window, by CPU and time.
    pub waits: Vec<WaitSpan>,
    /// Holds in the window, by CPU and time.
    pub holds: Vec<HoldSpan>,
    /// Call paths in the window, by CPU and time.
    pub stretches: Vec<Stretch>,
    /// Interrupts in the window, by time.
    pub interrupts: Vec<SentInterrupt>,
}
