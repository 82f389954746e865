//! A spin lock's own state.

use crate::topology::NOBODY;
use mmscale_arch::LockClass;
use std::cell::Cell;

/// No place to wait.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A spin lock of the simulated machine.
pub struct SimSpin {
    pub(crate) class: LockClass,
    /// The CPU that holds it, or will as soon as it has been handed over.
    pub(crate) owner: Cell<u16>,
    /// The CPU that has its cache line; with an owner, the owner.
    pub(crate) last: Cell<u16>,
    /// The CPU that handed it over last: it has the line until `free_at`.
    pub(crate) before: Cell<u16>,
    /// The first and the last place in the queue.
    pub(crate) head: Cell<u32>,
    pub(crate) tail: Cell<u32>,
    /// When it was let go last, or will be; an order word. An owner that was handed the lock may
    /// be known before this time.
    pub(crate) free_at: Cell<u64>,
    /// With an owner: since when, in ps.
    pub(crate) since: Cell<u64>,
    /// Where the hold is counted.
    pub(crate) row: Cell<u32>,
    /// A name for messages, given when one is first needed; 0 before.
    pub(crate) id: Cell<u32>,
}

impl SimSpin {
    /// A free lock.
    pub(crate) const fn free(class: LockClass) -> Self {
        Self {
            class,
            owner: Cell::new(NOBODY),
            last: Cell::new(NOBODY),
            before: Cell::new(NOBODY),
            head: Cell::new(NOWHERE),
            tail: Cell::new(NOWHERE),
            free_at: Cell::new(0),
            since: Cell::new(0),
            row: Cell::new(0),
            id: Cell::new(0),
        }
    }
}
