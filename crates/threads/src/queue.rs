//! The tasks of a CPU that wait for it: real time by priority, then fair by CPU time used.

use crate::task::{FAIR, Rank, Task};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A fair task runs this long before another of its CPU gets its turn, as Linux's base slice.
pub(crate) const SLICE_NS: u64 = 3_000_000;
/// A task that slept may be ahead of the others by this much CPU time and no more: it gets the
/// CPU soon, but cannot save up.
const SLEEPER_NS: u64 = SLICE_NS / 2;
/// A task that wakes takes the CPU at once if the running one is ahead of it by this much.
pub(crate) const WAKE_NS: u64 = 1_000_000;

/// Tasks that are ready to run, in the order in which they will.
pub(crate) struct RunQueue {
    /// By falling rank, then by CPU time used (fair only), then by arrival.
    ready: BTreeMap<(core::cmp::Reverse<Rank>, u64, u64), Arc<Task>>,
    arrivals: u64,
    /// CPU time used by the fair task that has had least; it only grows.
    floor_ns: u64,
    /// The CPU takes no tasks but its own: it is offline or going there.
    pub(crate) closed: bool,
}

impl RunQueue {
    pub(crate) fn new() -> Self {
        Self { ready: BTreeMap::new(), arrivals: 0, floor_ns: 0, closed: false }
    }

    /// Puts a task in line.
    pub(crate) fn push(&mut self, task: Arc<Task>) {
        let mut used_ns = 0;
        if task.rank == FAIR {
            let used = task.used_ns.load(Ordering::Relaxed);
            let low = self.floor_ns.saturating_sub(SLEEPER_NS);
            used_ns = used.clamp(low, self.floor_ns + SLICE_NS);
            task.used_ns.store(used_ns, Ordering::Relaxed);
        }
        self.arrivals += 1;
        self.ready.insert((core::cmp::Reverse(task.rank), used_ns, self.arrivals), task);
    }

    /// Takes the task that runs next; from a closed queue there is none.
    pub(crate) fn pop(&mut self) -> Option<Arc<Task>> {
        if self.closed {
            return None;
        }
        let ((_, used_ns, _), task) = self.ready.pop_first()?;
        self.floor_ns = self.floor_ns.max(used_ns);
        Some(task)
    }

    /// Takes out every task that is not bound to this CPU.
    pub(crate) fn take_unbound(&mut self) -> Vec<Arc<Task>> {
        self.ready.extract_if(.., |_, task| !task.per_cpu).map(|(_, task)| task).collect()
    }

    /// How many tasks `pop` could give.
    pub(crate) fn len(&self) -> usize {
        if self.closed { 0 } else { self.ready.len() }
    }
}
