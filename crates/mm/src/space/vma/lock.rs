//! The lock of one VMA (`vm_refcnt`): page faults hold it for reading instead of mmap_lock.
//!
//! A reader only tries. A writer holds mmap_lock for writing; it keeps new readers out, waits for
//! present ones, and holds the lock until its whole change is done.
//!
//! # Ordering
//! A page fault (left) against a change that removes or resizes the VMA (right):
//!
//! | page fault, no mmap_lock | change, mmap_lock held for writing |
//! |---|---|
//! | 1. `changes` is even: load, `Acquire` | a. `VmaLock`: set `WRITER`, `AcqRel` |
//! | 2. tree words: `Relaxed`, a hint | b. wait until no reader is left: load, `Acquire` |
//! | 3. generation of the id: load, `Acquire` | c. `changes` becomes odd: `AcqRel` |
//! | 4. `VmaLock`: add a reader, `Acquire` | d. tree words, range and flags: `Relaxed` |
//! | 5. generation again: load, `Acquire` | e. generation of a removed id: store, `Release` |
//! | 6. range and flags: `Relaxed` | f. `changes` becomes even: `AcqRel` |
//! | 7. `VmaLock`: remove the reader, `Release` | g. `VmaLock`: clear `WRITER`, `Release` |
//!
//! * 1 pairs with f: a fault that sees the even count sees the whole new tree. The count may become
//!   odd after step 1. Then the tree words are a mixture of old and new, and steps 3 to 6 reject a
//!   wrong id: `changes` saves a lock acquisition without success, it does not make the lookup
//!   correct.
//! * 4 pairs with g: a fault that takes the lock after the change sees e in step 5, and d in step
//!   6.
//! * 3 pairs with e, and with the `Release` store that starts an id. A new VMA is written before
//!   that store and inserted into the tree after it. So a fault that finds the new id sees the new
//!   VMA, although it has read an even `changes` before the change.
//! * 7 pairs with b: the change begins after the last access of the readers.
//! * 4 and a are read-modify-writes of one word: either the reader sees `WRITER` and retreats, or
//!   the writer sees the reader and waits. The reader that retreats last wakes the writer.

use super::VmaCell;
use crate::space::{Space, Vma, VmaId, Vpn};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use mmscale_arch::{Atomic, DataLine, Machine, Op};

/// A writer holds the VMA or waits for its readers. The bits below count readers.
const WRITER: u32 = 1 << 31;

/// The content of a slot: a VMA and its lock.
pub(crate) struct VmaLock<A: Machine> {
    lock: A::AtomicU32,
    /// Whether the current change holds it. Accessed with mmap_lock held for writing, hence
    /// relaxed.
    held: AtomicBool,
    vma: VmaCell,
}

impl<A: Machine> Default for VmaLock<A> {
    fn default() -> Self {
        Self {
            lock: A::AtomicU32::named(0, DataLine::VmaLock),
            held: AtomicBool::new(false),
            vma: VmaCell::default(),
        }
    }
}

impl<A: Machine> VmaLock<A> {
    /// Returns the VMA. The caller holds its lock or mmap_lock, or no other task runs.
    pub(crate) fn vma(&self) -> Vma {
        self.vma.get()
    }
    /// Sets the VMA. Both locks are held for writing, or it is not in the tree yet.
    pub(crate) fn set(&self, vma: &Vma) {
        self.vma.set(vma);
    }
    /// Takes the lock for writing; sleeps until the readers have released it. Returns `false` if
    /// the current change holds it already.
    pub(crate) fn write(&self, space: &Space<A>) -> bool {
        if self.held.swap(true, Relaxed) {
            return false;
        }
        // Steps a and b: pair with 4 and 7 in `try_read` and `read_done`.
        if self.lock.fetch_or(WRITER, AcqRel) != 0 {
            space.vma_waiters.wait_until(|| self.lock.load(Acquire) == WRITER);
        }
        true
    }
    /// Releases the lock.
    pub(crate) fn write_done(&self) {
        self.held.store(false, Relaxed);
        // Step g: pairs with the add in `try_read`, which then sees the change.
        self.lock.fetch_and(!WRITER, Release);
    }
    /// Takes the lock for reading. Fails if a writer holds it or waits for it.
    pub(crate) fn try_read(&self, space: &Space<A>) -> bool {
        // Step 4: pairs with `write_done`, and against `write` on the same word.
        if self.lock.fetch_add(1, Acquire) & WRITER == 0 {
            return true;
        }
        self.read_done(space);
        false
    }
    fn read_done(&self, space: &Space<A>) {
        // Step 7: pairs with `write`, whose change begins after this reader's last access.
        let before = self.lock.fetch_sub(1, Release);
        if before == WRITER + 1 {
            space.vma_waiters.wake_all();
        }
    }
}

/// A VMA that is held for reading until this is dropped: its range and flags do not change.
pub(crate) struct VmaReadGuard<'a, A: Machine> {
    space: &'a Space<A>,
    lock: &'a VmaLock<A>,
    vma: Vma,
}

impl<A: Machine> VmaReadGuard<'_, A> {
    pub(crate) fn vma(&self) -> &Vma {
        &self.vma
    }
}

impl<A: Machine> Drop for VmaReadGuard<'_, A> {
    fn drop(&mut self) {
        self.lock.read_done(self.space);
    }
}

impl<A: Machine> Space<A> {
    /// Finds the VMA that holds `page`, and locks it for reading without mmap_lock
    /// (`lock_vma_under_rcu`). Returns `None` if there is none, if it is locked for writing, or if
    /// the tree is being changed: the caller then takes mmap_lock to find out.
    #[inline]
    pub(crate) fn lock_vma(&self, page: Vpn) -> Option<VmaReadGuard<'_, A>> {
        A::work(Op::VmaFind, 1);
        self.lock_vma_now(page)
    }
    /// Like [`Space::lock_vma`], with the lookup charged by the caller.
    #[inline]
    pub(crate) fn lock_vma_now(&self, page: Vpn) -> Option<VmaReadGuard<'_, A>> {
        let id = self.find_vma(page)?;
        let lock = self.lookup.get(id)?;
        if !lock.try_read(self) {
            return None;
        }
        // A change that removes the VMA or moves its ends holds the lock for writing.
        let guard = VmaReadGuard { space: self, lock, vma: lock.vma() };
        (self.lookup.is_live(id) && guard.vma.range.contains(page)).then_some(guard)
    }
    /// Searches the tree if it is not being changed. The load of `changes` takes its turn in the
    /// simulator's order and nothing is charged before the search, so the answer is the tree's at
    /// that time.
    #[inline]
    fn find_vma(&self, page: Vpn) -> Option<VmaId> {
        // Step 1: pairs with the add in `Change::open` (change.rs).
        (self.changes.load_uncharged(Acquire) & 1 == 0).then(|| self.finder.find(page))?
    }
}

impl<A: Machine> VmaLock<A> {
    /// Whether the lock is free: for checks, while no other task runs.
    pub(crate) fn is_free(&self) -> bool {
        self.lock.load(Relaxed) == 0
    }
}
