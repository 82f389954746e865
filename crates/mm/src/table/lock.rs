//! The locks of page tables: one for each table of the two lower levels, found by its frame.

use core::cell::UnsafeCell;
use mmscale_arch::sync::{PreemptGuard, Sparse, SpinGuard, SpinLock};
use mmscale_arch::{LockClass, Machine, Pfn};

/// Holds the lock of a table.
pub(super) type TableGuard<'a, A> = SpinGuard<'a, A, (), PreemptGuard<A>>;

/// The lock of the table in one frame; none while the frame is no such table.
struct Slot<A: Machine>(UnsafeCell<Option<SpinLock<A, ()>>>);

// SAFETY: the lock is put there and taken away only by who owns the frame and before or after
// anybody knows of the table; all others share it.
unsafe impl<A: Machine> Sync for Slot<A> where SpinLock<A, ()>: Sync {}

/// The locks of all page tables of a machine. A lock needs memory when one of 64 frames in a row
/// is first used as a table.
pub struct TableLocks<A: Machine> {
    slots: Sparse<Slot<A>>,
}

impl<A: Machine> TableLocks<A> {
    /// For a machine with `frames` frames.
    pub fn new(frames: usize) -> Self {
        Self { slots: Sparse::new(frames) }
    }
    /// The frame, which the caller owns and nobody else knows, gets a lock of `class`.
    pub(super) fn make(&self, table: Pfn, class: LockClass) {
        let slot = self.slots.get_or_make(table.index(), |_| Slot(UnsafeCell::new(None)));
        // SAFETY: nobody knows of the table yet, and whoever knew of the last one in this frame
        // has let go of it before the frame was freed.
        unsafe { *slot.0.get() = Some(SpinLock::new(class, ())) };
    }
    /// Takes the lock of a table that [`TableLocks::make`] was called for.
    #[inline]
    pub(super) fn lock(&self, table: Pfn) -> TableGuard<'_, A> {
        let slot = self.slots.get(table.index());
        // SAFETY: the caller has found the table in another, so it is known, and its lock stays as
        // it is until nobody can find it.
        match slot.and_then(|slot| unsafe { &*slot.0.get() }.as_ref()) {
            Some(lock) => lock.lock(),
            None => panic!("frame {} is no page table", table.index()),
        }
    }
    /// Groups of 64 locks that were made.
    pub fn groups_made(&self) -> usize {
        self.slots.groups_made()
    }
}
