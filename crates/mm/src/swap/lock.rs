//! A folio's lock, and waiting for it and for the end of writeback.
//!
//! The lock is a bit of the folio's state. A waiter sets another bit (`WAITERS`) in the same atomic
//! operation that finds the lock taken, and sleeps in the queue of the folio's number. Unlocking is
//! therefore one atomic operation if there are no waiters. Many folios share a queue: a wakeup
//! makes all its waiters check their condition.

use super::Swap;
use crate::folio::FolioFlags;
use crate::lru::LruRef;
use mmscale_arch::sync::WaitQueue;
use mmscale_arch::{Func, Machine, Pfn, Span};

impl<A: Machine> Swap<A> {
    fn queue(&self, pfn: Pfn) -> &WaitQueue<A> {
        // Neighbouring frames use different queues.
        &self.queues[pfn.index() % self.queues.len()]
    }

    /// Locks the folio if its lock is free. The caller has a reference.
    #[inline]
    pub fn trylock_folio(&self, memory: LruRef<'_, A>, pfn: Pfn) -> bool {
        !memory.folios.test_and_set(pfn, FolioFlags::LOCKED)
    }

    /// Locks the folio (`folio_lock`). The caller has a reference. Sleeps.
    #[inline]
    pub fn lock_folio(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        if !self.trylock_folio(memory, pfn) {
            self.lock_slowly(memory, pfn);
        }
    }

    #[cold]
    fn lock_slowly(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        let _span = Span::<A>::enter(Func::FolioLock);
        let flags = FolioFlags::LOCKED | FolioFlags::WAITERS;
        self.queue(pfn).wait_until(|| !memory.folios.set(pfn, flags).has(FolioFlags::LOCKED));
    }

    /// Unlocks the folio (`folio_unlock`). Also called in interrupts.
    #[inline]
    pub fn unlock_folio(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        self.end(memory, pfn, FolioFlags::LOCKED);
    }

    /// Clears `flag` and wakes its waiters. The folio may have been freed when this returns.
    pub(super) fn end(&self, memory: LruRef<'_, A>, pfn: Pfn, flag: FolioFlags) {
        let old = memory.folios.clear(pfn, flag | FolioFlags::WAITERS);
        debug_assert!(old.has(flag), "the folio at {pfn:?} is not {flag:?}: {old:?}");
        if old.has(FolioFlags::WAITERS) {
            self.queue(pfn).wake_all();
        }
    }

    /// Waits until the folio's lock is free, without taking it. The caller has a reference. Sleeps.
    pub(super) fn wait_unlocked(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        if memory.folios.word(pfn).has(FolioFlags::LOCKED) {
            let _span = Span::<A>::enter(Func::FolioLock);
            self.wait(memory, pfn, FolioFlags::LOCKED);
        }
    }

    /// Waits until the folio's lock is free, and drops the caller's reference: for a fault that has
    /// released its own lock (`__folio_lock_or_retry`). Sleeps.
    pub(crate) fn wait_before_retry(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        self.tally().fault_retries.add(1);
        self.wait_unlocked(memory, pfn);
        memory.put(pfn);
    }

    /// Waits for the end of the folio's writeback (`folio_wait_writeback`). The caller has a
    /// reference. Sleeps.
    pub fn wait_writeback(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        if memory.folios.word(pfn).has(FolioFlags::WRITEBACK) {
            let _span = Span::<A>::enter(Func::FolioWaitWriteback);
            self.wait(memory, pfn, FolioFlags::WRITEBACK);
        }
    }

    /// Waits until no folio is under writeback. The caller knows that no task starts to write one
    /// meanwhile. The interrupt that ended the last one may still run. Sleeps.
    pub fn wait_for_writes(&self, memory: LruRef<'_, A>) {
        if !self.is_on() {
            return;
        }
        for (pfn, word) in memory.folios.iter() {
            if word.has(FolioFlags::WRITEBACK) && memory.folios.try_get(pfn) {
                self.wait_writeback(memory, pfn);
                memory.put(pfn);
            }
        }
    }

    fn wait(&self, memory: LruRef<'_, A>, pfn: Pfn, flag: FolioFlags) {
        let over = || !memory.folios.set(pfn, FolioFlags::WAITERS).has(flag);
        self.queue(pfn).wait_until(over);
    }
}
