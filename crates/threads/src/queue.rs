//! The tasks that wait for a CPU: real time by priority, then fair by CPU time used.

use crate::task::{FAIR, Rank, Task};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A fair task runs this long before another task of its CPU runs, as with Linux's base slice.
pub(crate) const SLICE_NS: u64 = 3_000_000;
/// The most CPU time by which a task that slept may be ahead of the others: it gets the CPU soon,
/// but cannot save up.
const SLEEPER_NS: u64 = SLICE_NS / 2;
/// A task that wakes preempts the running one immediately if it is behind by this much CPU time.
pub(crate) const WAKE_NS: u64 = 1_000_000;

/// Ready tasks, in the order in which they will run.
pub(crate) struct RunQueue {
    /// By falling rank, then by CPU time used (fair only), then by arrival.
    ready: BTreeMap<(core::cmp::Reverse<Rank>, u64, u64), Arc<Task>>,
    arrivals: u64,
    /// CPU time used by the fair task that has had least. It only grows.
    floor_ns: u64,
    /// The CPU takes only bound tasks: it is offline or going offline.
    pub(crate) closed: bool,
}

impl RunQueue {
    pub(crate) fn new() -> Self {
        Self { ready: BTreeMap::new(), arrivals: 0, floor_ns: 0, closed: false }
    }

    /// Inserts a task.
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

    /// Removes the task that runs next; a closed queue returns none.
    pub(crate) fn pop(&mut self) -> Option<Arc<Task>> {
        if self.closed {
            return None;
        }
        let ((_, used_ns, _), task) = self.ready.pop_first()?;
        self.floor_ns = self.floor_ns.max(used_ns);
        Some(task)
    }

    /// Removes every task that is not bound to this CPU.
    pub(crate) fn take_unbound(&mut self) -> Vec<Arc<Task>> {
        self.ready.extract_if(.., |_, task| !task.per_cpu).map(|(_, task)| task).collect()
    }

    /// Returns the number of tasks that `pop` can return.
    pub(crate) fn len(&self) -> usize {
        if self.closed { 0 } else { self.ready.len() }
    }
}
