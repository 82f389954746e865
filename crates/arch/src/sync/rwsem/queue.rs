//! The tasks that sleep until they have a semaphore.

use crate::{Machine, TaskId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A reader's place among all readers that have ever queued for a semaphore, which are granted it
/// in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

/// A task in the queue.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    pub(super) task: TaskId,
    /// `None`: a writer.
    ticket: Option<Ticket>,
    /// When it joined.
    pub(super) since_ns: u64,
}

/// The waiting tasks.
pub(super) struct Queue {
    /// The first to join at the front.
    waiters: VecDeque<Waiter>,
    /// The ticket of the next reader.
    next: Ticket,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { waiters: VecDeque::with_capacity(4), next: Ticket(0) }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }
    pub(super) fn first(&self) -> Option<&Waiter> {
        self.waiters.front()
    }
    pub(super) fn reader_is_first(&self) -> bool {
        self.first().is_some_and(|first| first.ticket.is_some())
    }
    fn join<A: Machine>(&mut self, ticket: Option<Ticket>) -> Waiter {
        let waiter = Waiter { task: A::current(), ticket, since_ns: A::now_ns() };
        self.waiters.push_back(waiter);
        waiter
    }
    /// Adds the calling task, a reader.
    pub(super) fn join_reader<A: Machine>(&mut self) -> Ticket {
        let ticket = self.next;
        self.next = Ticket(ticket.0 + 1);
        self.join::<A>(Some(ticket));
        ticket
    }
    /// Adds the calling task, a writer.
    pub(super) fn join_writer<A: Machine>(&mut self) -> Waiter {
        self.join::<A>(None)
    }
    /// Removes the first task.
    pub(super) fn pop_first(&mut self) {
        self.waiters.pop_front();
    }
    /// Removes a reader; returns whether it was there.
    pub(super) fn leave(&mut self, ticket: Ticket) -> bool {
        let place = self.waiters.iter().position(|waiter| waiter.ticket == Some(ticket));
        place.and_then(|place| self.waiters.remove(place)).is_some()
    }
    /// The readers in the queue, but at most `most`.
    pub(super) fn readers(&self, most: usize) -> usize {
        self.waiters.iter().filter(|waiter| waiter.ticket.is_some()).take(most).count()
    }
    /// Removes the first `count` readers. Returns the ticket after the last of them, and the tasks.
    pub(super) fn take_readers(&mut self, count: usize) -> (Ticket, ToWake) {
        let mut tasks = Vec::with_capacity(count);
        let mut end = Ticket(0);
        self.waiters.retain(|waiter| match waiter.ticket {
            Some(ticket) if tasks.len() < count => {
                end = Ticket(ticket.0 + 1);
                tasks.push(waiter.task);
                false
            }
            _ => true,
        });
        (end, ToWake(tasks))
    }
}

/// Tasks to be woken once the queue's lock is released (`wake_q`). A task in it may have gone on
/// already: then its next park ends early.
#[must_use]
pub(super) struct ToWake(Vec<TaskId>);

impl ToWake {
    pub(super) const NONE: Self = Self(Vec::new());

    pub(super) fn one(task: TaskId) -> Self {
        Self(alloc::vec![task])
    }
    /// Wakes the tasks.
    pub(super) fn wake<A: Machine>(self) {
        self.0.into_iter().for_each(A::unpark);
    }
}
