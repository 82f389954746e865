//! The state of a spin lock.

use crate::topology::NO_CPU;
use mmscale_arch::{LockClass, LockInstance, NamedLock};
use std::cell::Cell;

/// The end of a queue.
pub(crate) const NO_WAITER: u32 = u32::MAX;

/// The queue of CPUs that spin for a sleeping lock: a spin lock whose waiters leave the queue when
/// they must switch tasks. Statistics count the waits that ended at the head of the queue.
pub struct SimOsq(pub(crate) SimSpin);

/// A spin lock of the simulated machine.
pub struct SimSpin {
    pub(crate) class: LockClass,
    pub(crate) instance: LockInstance,
    /// The CPU that holds it, or that it was granted to for later.
    pub(crate) owner: Cell<u16>,
    /// The CPU that has its cache line; if there is an owner, the owner.
    pub(crate) last: Cell<u16>,
    /// The CPU that handed it over to the owner: it has the line until `free_at`. `NO_CPU`: the
    /// owner found the lock free.
    pub(crate) before: Cell<u16>,
    /// The first and the last entry in the queue, as indices of `Engine::waiters`.
    pub(crate) head: Cell<u32>,
    pub(crate) tail: Cell<u32>,
    /// The order word of its last release, which may be in the future of other CPUs. An owner that
    /// the lock was granted to may be known before this time.
    pub(crate) free_at: Cell<u64>,
    /// Since when the owner holds it, in ps.
    pub(crate) since: Cell<u64>,
    /// The row of statistics that counts the hold.
    pub(crate) row: Cell<u32>,
    /// A number for messages, assigned when first needed; 0 before.
    pub(crate) id: Cell<u32>,
}

impl SimSpin {
    /// A free lock.
    pub(crate) const fn free(class: LockClass, instance: LockInstance) -> Self {
        Self {
            class,
            instance,
            owner: Cell::new(NO_CPU),
            last: Cell::new(NO_CPU),
            before: Cell::new(NO_CPU),
            head: Cell::new(NO_WAITER),
            tail: Cell::new(NO_WAITER),
            free_at: Cell::new(0),
            since: Cell::new(0),
            row: Cell::new(0),
            id: Cell::new(0),
        }
    }
    /// Returns which lock it is.
    pub(crate) const fn name(&self) -> NamedLock {
        NamedLock { class: self.class, instance: self.instance }
    }
}
