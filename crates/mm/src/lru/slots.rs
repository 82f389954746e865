//! Folios that wait in slots (`Lazy`): any CPU can take one from a slot of any other.
//!
//! A folio's place names its slot. The CPU that exchanges the slot's folio for 0 owns the slot's
//! reference, and no other CPU does.

use super::batch::{CpuBatches, PendingSlot};
use super::lists::Relock;
use super::{LruRef, Pending};
use crate::folio::{FolioFlags, FolioWord};
use mmscale_arch::sync::{NoPreempt, PreemptGuard};
use mmscale_arch::{CpuId, LruEvent, Machine, Op, Pfn, Trace};

impl<A: Machine> LruRef<'_, A> {
    /// Returns whether a folio in this state is in a slot, or has just been claimed from one.
    pub(super) fn waits_in_slot(&self, word: FolioWord) -> bool {
        self.lru.pending() == Pending::Slot && word.has(FolioFlags::PENDING)
    }

    /// Puts a folio into a free slot of `cpu`, which is the caller's. If all slots are full, their
    /// folios go to their lists first. Preemption is off.
    pub(super) fn add_to_slot(
        &self,
        own: &CpuBatches<A>,
        cpu: CpuId,
        pfn: Pfn,
        make_pending: impl FnOnce(),
    ) {
        let slot = own.free_slot().unwrap_or_else(|| {
            self.move_adds(&own.sweep());
            0
        });
        self.folios.set_place(pfn, PendingSlot { cpu, slot }.pack());
        make_pending();
        A::trace(Trace::Lru(LruEvent::Pinned { folios: 1 }));
        own.fill(slot, pfn);
    }

    /// Puts all folios that wait in the slots of a CPU on their lists.
    pub(super) fn sweep_slots(&self, own: &CpuBatches<A>) {
        let swept = own.sweep();
        if !swept.as_slice().is_empty() {
            self.move_adds(&swept);
        }
    }

    /// Puts a folio on its list if it waits in a slot of any CPU. Returns whether it is on its list
    /// now.
    pub(super) fn demand_slot(&self, pfn: Pfn) -> bool {
        loop {
            let word = self.folios.word(pfn);
            if word.has(FolioFlags::LRU) {
                return true;
            }
            if !self.waits_in_slot(word) {
                return false;
            }
            if self.claim(pfn) {
                self.join_claimed(pfn);
                return true;
            }
            A::relax();
        }
    }

    /// Puts a claimed folio on its list and drops the slot's reference.
    pub(super) fn join_claimed(&self, pfn: Pfn) {
        let mut relock = Relock::new(*self);
        self.join(&mut relock, pfn);
        drop(relock);
        self.note_unpinned();
        self.lru.tally().demanded.add(1);
        self.retire(core::iter::once((pfn, 1)), Self::drop_plain);
    }

    /// Drops references; if only a slot's reference is left, drops that too.
    pub(super) fn drop_lazily(
        &self,
        relock: &mut Relock<'_, A>,
        pfn: Pfn,
        refs: u32,
    ) -> Option<FolioWord> {
        let word = self.folios.load_uncharged(pfn);
        let ends = |word: FolioWord| word.has(FolioFlags::PENDING) && word.refs() == refs + 1;
        let mut owned = refs;
        if ends(word) && self.claim(pfn) {
            let after = word.without_refs().with(FolioFlags::empty(), FolioFlags::PENDING);
            if self.folios.exchange(pfn, word, after).is_ok() {
                self.note_freed_pending();
                return Some(after);
            }
            // A new user took a reference in between. The caller owns the slot's reference.
            self.join(relock, pfn);
            self.note_unpinned();
            owned += 1;
        }
        let old = self.folios.drop_refs(pfn, owned);
        if old.refs() == owned {
            return Some(old);
        }
        if owned == refs && ends(old) { self.end_pending(relock, pfn) } else { None }
    }

    /// Ends a folio of which only a slot has a reference: the caller has dropped the last other
    /// one.
    #[cold]
    fn end_pending(&self, relock: &mut Relock<'_, A>, pfn: Pfn) -> Option<FolioWord> {
        if !self.claim(pfn) {
            // Its CPU is sweeping and will find it dead, or it has a new user.
            A::trace(Trace::Lru(LruEvent::Dead { pages: self.pages_of(pfn) as i32 }));
            return None;
        }
        let last = |word: FolioWord| {
            let after = word.without_refs().with(FolioFlags::empty(), FolioFlags::PENDING);
            (word.refs() == 1).then_some(after)
        };
        if let Ok(word) = self.folios.update(pfn, last) {
            self.note_freed_pending();
            return Some(word);
        }
        self.join(relock, pfn);
        self.note_unpinned();
        self.drop_plain(relock, pfn, 1)
    }

    /// Takes the folio from its slot, on any CPU; the caller then owns the slot's reference, and
    /// the folio is still flagged as pending. Returns `false` if it is in no slot.
    pub(super) fn claim(&self, pfn: Pfn) -> bool {
        let place = PendingSlot::unpack(self.folios.place(pfn));
        let pinned = PreemptGuard::<A>::new();
        let theirs = self.lru.cpus.of(place.cpu);
        if !theirs.claim(place.slot, pfn) {
            return false;
        }
        A::work(Op::LruBatch, 1);
        if place.cpu == pinned.cpu() {
            theirs.emptied(place.slot);
        }
        true
    }

    fn note_freed_pending(&self) {
        self.lru.tally().freed_pending.add(1);
        self.note_unpinned();
    }
    pub(super) fn note_unpinned(&self) {
        A::trace(Trace::Lru(LruEvent::Pinned { folios: -1 }));
    }
}
