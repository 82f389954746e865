//! The queue of one CPU's worker.

use super::WorkItem;
use alloc::collections::VecDeque;
use mmscale_arch::TaskId;

/// Pieces of work for which room is reserved at boot.
const RESERVED: usize = 8;

/// One queued or running piece of work.
#[derive(Clone, Copy)]
struct Entry {
    item: WorkItem,
    ticket: u64,
}

/// The next action of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Run this work.
    Run(WorkItem),
    /// Sleep.
    Sleep,
    /// Return for good.
    Leave,
}

/// Work that waits for one CPU's worker, first in first out, and the running work.
pub(super) struct Queue {
    waiting: VecDeque<Entry>,
    running: Option<Entry>,
    tickets: u64,
    pub(super) worker: Option<TaskId>,
    worker_sleeps: bool,
    /// Work is accepted.
    open: bool,
    /// The worker returns once the queue is empty.
    closing: bool,
    /// Number of tasks that wait for work of this queue.
    pub(super) flushers: u32,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(RESERVED),
            running: None,
            tickets: 0,
            worker: None,
            worker_sleeps: false,
            open: false,
            closing: false,
            flushers: 0,
        }
    }
    pub(super) fn open(&mut self) {
        self.open = true;
        self.closing = false;
    }
    pub(super) fn is_open(&self) -> bool {
        self.open
    }
    /// Makes the worker return once the queue is empty. Returns the worker, if it must be woken.
    pub(super) fn close(&mut self) -> Option<TaskId> {
        self.closing = true;
        self.take_sleeper()
    }
    fn take_sleeper(&mut self) -> Option<TaskId> {
        let sleeps = core::mem::replace(&mut self.worker_sleeps, false);
        if sleeps { self.worker } else { None }
    }
    /// Adds a piece of work. Returns the worker, if it must be woken.
    pub(super) fn push(&mut self, item: WorkItem) -> Option<TaskId> {
        self.tickets += 1;
        self.waiting.push_back(Entry { item, ticket: self.tickets });
        self.take_sleeper()
    }
    /// Removes a waiting piece of work; returns whether it was there.
    pub(super) fn remove(&mut self, item: WorkItem) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|entry| entry.item != item);
        self.waiting.len() < before
    }
    /// Returns the worker's next action.
    pub(super) fn next(&mut self) -> Next {
        if let Some(entry) = self.waiting.pop_front() {
            self.running = Some(entry);
            return Next::Run(entry.item);
        }
        if self.closing {
            self.open = false;
            self.worker = None;
            return Next::Leave;
        }
        self.worker_sleeps = true;
        Next::Sleep
    }
    pub(super) fn finished(&mut self) {
        self.running = None;
    }
    /// Returns the ticket of the last queued instance of `item` that is not done.
    pub(super) fn ticket_of(&self, item: WorkItem) -> Option<u64> {
        let all = self.waiting.iter().rev().chain(&self.running);
        all.filter(|entry| entry.item == item).map(|entry| entry.ticket).next()
    }
    /// Returns whether the work of `ticket` waits or runs.
    pub(super) fn has(&self, ticket: u64) -> bool {
        self.waiting.iter().chain(&self.running).any(|entry| entry.ticket == ticket)
    }
    /// Returns the ticket of `item` if it runs now.
    pub(super) fn running_ticket(&self, item: WorkItem) -> Option<u64> {
        self.running.filter(|entry| entry.item == item).map(|entry| entry.ticket)
    }
    /// Returns whether no work waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_arch::CpuId;

    #[test]
    fn tickets_are_of_the_work_that_waits_or_runs() {
        let item = |cpu| WorkItem::LruDrain(CpuId::new(cpu));
        let mut queue = Queue::new();
        [0, 1, 0].into_iter().for_each(|cpu| _ = queue.push(item(cpu)));
        assert_eq!((queue.ticket_of(item(0)), queue.running_ticket(item(0))), (Some(3), None));
        assert!(matches!(queue.next(), Next::Run(of) if of == item(0)));
        assert_eq!((queue.ticket_of(item(0)), queue.running_ticket(item(0))), (Some(3), Some(1)));
        assert_eq!(queue.running_ticket(item(1)), None);
        queue.finished();
        assert_eq!((queue.has(1), queue.running_ticket(item(0))), (false, None));
        assert!(matches!(queue.next(), Next::Run(of) if of == item(1)));
        assert_eq!(queue.running_ticket(item(1)), Some(2));
    }
}
