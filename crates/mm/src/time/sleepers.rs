//! Tasks that sleep to the nanosecond, in order of their deadlines.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use mmscale_arch::TaskId;

/// Sleepers of one CPU for which room is reserved at boot.
const RESERVED: usize = 16;

/// A queue of sleeping tasks. Its storage grows only when a CPU has more sleepers than ever before.
pub(super) struct Sleepers {
    /// Deadline, order of arrival, task.
    heap: BinaryHeap<Reverse<(u64, u64, TaskId)>>,
    arrivals: u64,
}

impl Sleepers {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::with_capacity(RESERVED), arrivals: 0 }
    }
    /// Adds `task`, to be woken at `deadline_ns`.
    pub(super) fn push(&mut self, deadline_ns: u64, task: TaskId) {
        self.heap.push(Reverse((deadline_ns, self.arrivals, task)));
        self.arrivals += 1;
    }
    /// Returns the first deadline; `u64::MAX` if the queue is empty.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse((deadline_ns, ..))| *deadline_ns)
    }
    /// Removes the first sleeper if it is due by `now_ns`.
    #[inline]
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<TaskId> {
        if self.next_ns() > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, task))| task)
    }
    /// Removes `task`, which has woken early.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.heap.retain(|Reverse((_, _, other))| *other != task);
    }
    /// Removes the first sleeper, due or not; returns its deadline too.
    pub(super) fn pop(&mut self) -> Option<(u64, TaskId)> {
        self.heap.pop().map(|Reverse((deadline_ns, _, task))| (deadline_ns, task))
    }
}
