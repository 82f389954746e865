//! Ageing and mlock: moves between lists, gathered in batches, and locked memory.

use super::lists::{End, Relock};
use super::{BatchKind, LruList, LruRef, Pending};
use crate::folio::{FolioFlags, FolioWord};
use mmscale_arch::sync::{IrqGuard, NoPreempt, PreemptGuard};
use mmscale_arch::{Func, LruEvent, Machine, Op, Pfn, Span, Trace};

/// Returns whether a folio that was written out moves to the tail of its list: it has not been used
/// since.
fn turns(word: FolioWord) -> bool {
    let stays = FolioFlags::LOCKED | FolioFlags::DIRTY | FolioFlags::UNEVICTABLE;
    !word.flags().intersects(stays)
}

impl<A: Machine> LruRef<'_, A> {
    /// Requests a move to the folio's active list.
    pub fn activate(&self, pfn: Pfn) {
        let _span = Span::<A>::enter(Func::FolioActivate);
        self.age(BatchKind::Activate, pfn);
    }
    /// Requests a move off the active list (`MADV_COLD`).
    pub fn deactivate(&self, pfn: Pfn) {
        self.age(BatchKind::Deactivate, pfn);
    }
    /// Marks the content of an anonymous folio as droppable (`MADV_FREE`).
    pub fn lazyfree(&self, pfn: Pfn) {
        self.age(BatchKind::Lazyfree, pfn);
    }

    /// Gathers the move for a listed folio. A folio in an add batch only changes its state: under
    /// `Lazy` in the batch of any CPU, otherwise only for activation and in this CPU's batch, as in
    /// Linux.
    fn age(&self, kind: BatchKind, pfn: Pfn) {
        let word = self.folios.word(pfn);
        if word.has(FolioFlags::LRU) {
            if kind.change(word).is_some() {
                self.gather(kind, pfn);
            }
            return;
        }
        let reachable = match self.lru.pending() {
            Pending::Slot => true,
            Pending::Batch => {
                let pinned = PreemptGuard::<A>::new();
                let own = self.lru.cpus.of(pinned.cpu());
                kind == BatchKind::Activate && own.has(BatchKind::Add, pfn)
            }
        };
        if reachable {
            let pending = |word: FolioWord| {
                if word.has(FolioFlags::PENDING) { kind.change(word) } else { None }
            };
            let _ = self.folios.update(pfn, pending);
        }
    }

    /// Moves a folio that was written out for reclaim to the tail of its list
    /// (`folio_rotate_reclaimable`). Also called in interrupts.
    pub fn rotate(&self, pfn: Pfn) {
        let _span = Span::<A>::enter(Func::FolioRotateReclaimable);
        let word = self.folios.word(pfn);
        if !turns(word) || !word.has(FolioFlags::LRU) {
            return;
        }
        A::work(Op::LruBatch, 1);
        self.folios.get(pfn);
        A::trace(Trace::Lru(LruEvent::Pinned { folios: 1 }));
        let off = IrqGuard::<A>::new();
        let own = self.lru.cpus.of(off.cpu());
        if own.push(BatchKind::MoveTail, pfn) || self.moves_at_once(pfn) {
            self.move_others(BatchKind::MoveTail, &own.take(BatchKind::MoveTail));
        }
    }

    /// Rotates a folio that waited in a slot when its writeback ended: marks it, so that it joins
    /// its list at the tail. Also called in interrupts.
    pub fn rotate_waiting(&self, pfn: Pfn) {
        match self.lru.pending() {
            Pending::Batch => {}
            Pending::Slot => self.rotate_in_slot(pfn),
        }
    }

    fn rotate_in_slot(&self, pfn: Pfn) {
        let marked = |word: FolioWord| {
            let marked = word.with(FolioFlags::RECLAIM, FolioFlags::empty());
            (word.has(FolioFlags::PENDING) && turns(word)).then_some(marked)
        };
        // The folio may have joined its list meanwhile.
        if self.folios.update(pfn, marked).is_err() {
            self.rotate(pfn);
        }
    }

    // -- Locked memory.

    /// Adds one mlock of the folio and moves it to the unevictable list: immediately if it is on a
    /// list or under `Lazy`, otherwise when its batch is carried out. The caller has a reference.
    pub fn mlock(&self, pfn: Pfn) {
        let _span = Span::<A>::enter(Func::MlockFolio);
        if !self.folios.test_and_set(pfn, FolioFlags::MLOCKED) {
            self.count_mlocked(pfn, 1);
        }
        loop {
            let word = self.folios.word(pfn);
            if word.has(FolioFlags::LRU) {
                if self.hold_still(pfn, word, |relock| self.mlock_listed(relock, pfn)) {
                    return;
                }
            } else if self.waits_in_slot(word) {
                if self.claim(pfn) {
                    return self.join_claimed(pfn);
                }
                A::relax();
            } else {
                // The CPU that puts the folio on its list sees that it is locked.
                return;
            }
        }
    }

    fn mlock_listed(&self, relock: &mut Relock<'_, A>, pfn: Pfn) {
        let word = self.folios.word(pfn);
        let list = LruList::of(word);
        if list == LruList::Unevictable {
            self.folios.set_mlocks(pfn, self.folios.mlocks(pfn) + 1);
            return self.restore(relock, pfn, list);
        }
        relock.unlink(pfn, list);
        let (set, clear) = (FolioFlags::UNEVICTABLE, FolioFlags::ACTIVE);
        let _ = self.folios.update(pfn, |word| Some(word.with(set, clear)));
        self.folios.set_mlocks(pfn, 1);
        relock.link(pfn, LruList::Unevictable, End::Head);
        self.restore(relock, pfn, LruList::Unevictable);
    }

    /// Removes one mlock of the folio; the last one moves it to the list of its age. The number of
    /// mlocks is counted only while the folio is on its list; all earlier ones count as one, an
    /// approximation that Linux makes too. The caller has a reference.
    pub fn munlock(&self, pfn: Pfn) {
        let _span = Span::<A>::enter(Func::MunlockFolio);
        loop {
            let word = self.folios.word(pfn);
            if word.has(FolioFlags::LRU) {
                if self.hold_still(pfn, word, |relock| self.munlock_listed(relock, pfn)) {
                    return;
                }
                continue;
            }
            let unlocked = word.with(FolioFlags::empty(), FolioFlags::MLOCKED);
            if self.folios.exchange(pfn, word, unlocked).is_ok() {
                if word.has(FolioFlags::MLOCKED) {
                    self.count_mlocked(pfn, -1);
                }
                return;
            }
        }
    }

    fn munlock_listed(&self, relock: &mut Relock<'_, A>, pfn: Pfn) {
        let list = LruList::of(self.folios.word(pfn));
        let mlocks = self.folios.mlocks(pfn);
        if list == LruList::Unevictable && mlocks > 1 {
            self.folios.set_mlocks(pfn, mlocks - 1);
        } else if self.folios.test_and_clear(pfn, FolioFlags::MLOCKED) {
            self.count_mlocked(pfn, -1);
        }
        // Moves the folio to the list of its new state.
        self.restore(relock, pfn, list);
    }

    /// Isolates a listed folio whose state was `word` and calls `f`, which ends the isolation,
    /// under its lruvec lock. Returns `false` if the state has changed.
    fn hold_still(&self, pfn: Pfn, word: FolioWord, f: impl FnOnce(&mut Relock<'_, A>)) -> bool {
        let held = word.with(FolioFlags::empty(), FolioFlags::LRU);
        if self.folios.exchange(pfn, word, held).is_err() {
            return false;
        }
        let mut relock = Relock::new(*self);
        relock.hold_of(pfn);
        f(&mut relock);
        true
    }
}
