//! A lock-free queue of records: pushed by anybody, taken as a whole by one CPU.
//!
//! It is a stack of record numbers, linked through the records themselves. Whoever takes it turns
//! it over, and has the records in the order in which they were pushed.
//!
//! Who pushes onto an empty queue interrupts its CPU, and that CPU takes the queue once for each
//! interrupt. So a queue has something in it exactly as long as an interrupt for it is to be sent,
//! or on its way. A queue that is empty can be closed: then no interrupt is left that could reach
//! a CPU that has stopped, and nothing can be pushed any more.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use mmscale_arch::{Atomic, Machine, planted};

const EMPTY: u32 = 0;
const CLOSED: u32 = u32::MAX;

/// What came of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queued {
    /// The queue was empty: the caller interrupts its CPU.
    First,
    /// An interrupt is on its way.
    Behind,
    /// The CPU has stopped: nothing was pushed.
    Closed,
}

/// The top of a queue; open and empty at first.
pub(super) struct Head<A: Machine> {
    /// The number of the top record, plus one.
    top: A::AtomicU32,
}

impl<A: Machine> Head<A> {
    /// Bytes on hardware: a line of its own.
    pub(super) const BYTES: u64 = 64;

    pub(super) fn new() -> Self {
        Self { top: A::AtomicU32::new(EMPTY) }
    }
    /// Pushes record `index`, whose link is `next` and which nobody else has.
    pub(super) fn push(&self, index: usize, next: &AtomicU32) -> Queued {
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
    /// Takes all records; the oldest, from which [`Head::after`] leads on.
    pub(super) fn take<'a>(&self, link_of: impl Fn(usize) -> &'a AtomicU32) -> Option<usize> {
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
    /// The record to which `link` leads.
    pub(super) fn after(link: &AtomicU32) -> Option<usize> {
        number(link.load(Relaxed))
    }
    /// Makes `link` lead to `index`.
    pub(super) fn link(link: &AtomicU32, index: Option<usize>) {
        link.store(index.map_or(EMPTY, |index| index as u32 + 1), Relaxed);
    }
    /// Closes the queue if it is empty; whether it is closed.
    pub(super) fn close(&self) -> bool {
        if planted!(CsdQueueClosedFull) {
            self.top.store(CLOSED, Release);
        }
        matches!(self.top.compare_exchange(EMPTY, CLOSED, AcqRel, Acquire), Ok(_) | Err(CLOSED))
    }
    /// Opens it, if it was closed.
    pub(super) fn open(&self) {
        let _ = self.top.compare_exchange(CLOSED, EMPTY, AcqRel, Acquire);
    }
    pub(super) fn is_queued(&self) -> bool {
        !matches!(self.top.load(Acquire), EMPTY | CLOSED)
    }
}

fn number(word: u32) -> Option<usize> {
    (word != EMPTY).then(|| word as usize - 1)
}
