//! The locks of page tables: one for each table of the two lower levels, found by its frame.

use core::cell::UnsafeCell;
use mmscale_arch::sync::{PreemptGuard, Sparse, SpinGuard, SpinLock};
use mmscale_arch::{LockClass, Machine, Pfn};

/// Holds the lock of a table.
pub(super) type TableGuard<'a, A> = SpinGuard<'a, A, (), PreemptGuard<A>>;

/// The lock of the table in one frame; `None` while the frame is no such table.
struct LockSlot<A: Machine>(UnsafeCell<Option<SpinLock<A, ()>>>);

// SAFETY: only the owner of the frame writes the lock, before the table is linked or after it was
// unlinked. All other CPUs use it by a shared reference.
unsafe impl<A: Machine> Sync for LockSlot<A> where SpinLock<A, ()>: Sync {}

/// The locks of all page tables of a machine. Memory is allocated when one of 64 consecutive frames
/// is first used as a table.
pub struct TableLocks<A: Machine> {
    slots: Sparse<LockSlot<A>>,
}

impl<A: Machine> TableLocks<A> {
    /// Creates the locks of a machine with `frames` frames.
    pub fn new(frames: usize) -> Self {
        Self { slots: Sparse::new(frames) }
    }
    /// Creates a lock of `class` for a frame that the caller owns and that is not linked as a
    /// table.
    pub(super) fn make(&self, table: Pfn, class: LockClass) {
        let slot = self.slots.get_or_make(table.index(), |_| LockSlot(UnsafeCell::new(None)));
        // SAFETY: the table is not linked yet, and every user of the previous table in this frame
        // released its lock before the frame was freed.
        unsafe { *slot.0.get() = Some(SpinLock::new(class, ())) };
    }
    /// Takes the lock of a table for which [`TableLocks::make`] was called.
    #[inline]
    pub(super) fn lock(&self, table: Pfn) -> TableGuard<'_, A> {
        let slot = self.slots.get(table.index());
        // SAFETY: the caller found the table in another table, so it is linked, and its lock does
        // not change while it can be found.
        match slot.and_then(|slot| unsafe { &*slot.0.get() }.as_ref()) {
            Some(lock) => lock.lock(),
            None => panic!("frame {} is no page table", table.index()),
        }
    }
    /// Returns the number of groups of 64 locks that were allocated.
    pub fn groups_made(&self) -> usize {
        self.slots.groups_made()
    }
}
