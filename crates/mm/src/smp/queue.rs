//! A lock-free queue of records: any CPU pushes, the owner takes all records in one step.
//!
//! It is a stack of record numbers, linked through the records. The owner reverses the stack that
//! it takes, which restores the order of the pushes.
//!
//! The CPU that pushes onto an empty queue interrupts the owner, and the owner takes the queue once
//! for each interrupt. The queue is therefore nonempty exactly while an interrupt for it is about
//! to be sent or on its way. An empty queue can be closed: no interrupt can then reach a CPU that
//! has stopped, and pushes fail.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use mmscale_arch::{Atomic, DataLine, Machine};

const EMPTY: u32 = 0;
const CLOSED: u32 = u32::MAX;

/// Result of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queued {
    /// The queue was empty: the caller interrupts its CPU.
    First,
    /// The queue was not empty: an interrupt is on its way.
    Behind,
    /// The CPU has stopped: nothing was pushed.
    Closed,
}

/// The top of a queue, initially open and empty.
pub(super) struct Head<A: Machine> {
    /// The number of the top record plus one.
    top: A::AtomicU32,
}

impl<A: Machine> Head<A> {
    /// Size on hardware: one cache line.
    pub(super) const BYTES: u64 = 64;

    pub(super) fn new() -> Self {
        Self { top: A::AtomicU32::named(EMPTY, DataLine::CallQueue) }
    }
    /// Pushes record `index`, whose link is `next` and which no other CPU uses.
    pub(super) fn push(&self, index: usize, next: &AtomicU32) -> Queued {
        // `AcqRel` pairs with the exchange in `take`: the owner sees the record as filled. Against
        // `close`: this finds `CLOSED`, or `close` finds the record and fails.
        let pushed = self.top.fetch_update(AcqRel, Acquire, |top| {
            next.store(top, Relaxed);
            (top != CLOSED).then_some(index as u32 + 1)
        });
        match pushed {
            Ok(EMPTY) => Queued::First,
            Ok(_) => Queued::Behind,
            Err(_) => Queued::Closed,
        }
    }
    /// Takes all records; returns the oldest, from which [`Head::after`] leads to the others.
    pub(super) fn take<'a>(&self, link_of: impl Fn(usize) -> &'a AtomicU32) -> Option<usize> {
        // Pairs with the exchange in `push`: the records and their links are seen as filled.
        let mut top = self.top.swap(EMPTY, AcqRel);
        let mut turned = EMPTY;
        while top != EMPTY {
            let link = link_of(top as usize - 1);
            let below = link.load(Relaxed);
            link.store(turned, Relaxed);
            (turned, top) = (top, below);
        }
        number(turned)
    }
    /// Returns the record to which `link` leads.
    pub(super) fn after(link: &AtomicU32) -> Option<usize> {
        number(link.load(Relaxed))
    }
    /// Makes `link` lead to `index`.
    pub(super) fn link(link: &AtomicU32, index: Option<usize>) {
        link.store(index.map_or(EMPTY, |index| index as u32 + 1), Relaxed);
    }
    /// Closes the queue if it is empty; returns whether it is closed.
    pub(super) fn close(&self) -> bool {
        // Against the exchange in `push` of the same word: see there.
        matches!(self.top.compare_exchange(EMPTY, CLOSED, AcqRel, Acquire), Ok(_) | Err(CLOSED))
    }
    /// Opens the queue if it was closed.
    pub(super) fn open(&self) {
        // The exchange in `push` succeeds again after this.
        let _ = self.top.compare_exchange(CLOSED, EMPTY, AcqRel, Acquire);
    }
    pub(super) fn is_queued(&self) -> bool {
        // Pairs with the exchanges in `push` and `take`. A hint, for tests.
        !matches!(self.top.load(Acquire), EMPTY | CLOSED)
    }
}

fn number(word: u32) -> Option<usize> {
    (word != EMPTY).then(|| word as usize - 1)
}
