//! Dropping references: taking a folio off its list with the last one, and freeing its frames.

use super::batch::{BATCH, Taken};
use super::lists::Relock;
use super::{LruList, LruRef, Pending};
use crate::folio::{FolioFlags, FolioWord};
use crate::memcg::GroupEvent;
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{Func, LruEvent, Machine, Order, Pfn, Span, Trace};
use mmscale_frames::vmstat::ZoneItem;

/// Maximum of folios that [`LruRef::release_many`] takes off their lists together: four batches.
pub const MANY: usize = 4 * BATCH;

/// Folios of this order (huge pages) are freed to their zone together.
const LARGE: Order = match Order::new(9) {
    Some(order) => order,
    None => panic!("no order for huge pages"),
};

impl<A: Machine> LruRef<'_, A> {
    /// Drops references of many folios; each row is a folio and its number of references
    /// (`release_pages`). Used for pages of a gather after the TLB flush. Folios whose last
    /// reference is dropped are taken off their lists, uncharged and freed, as many at a time as
    /// [`ReleasePolicy`](super::ReleasePolicy) says.
    ///
    /// The caller holds no lock that is taken inside a page cache's lock.
    pub fn release(&self, folios: &[(Pfn, u32)]) {
        let _span = Span::<A>::enter(Func::ReleasePages);
        for some in folios.chunks(self.lru.release_folios()) {
            self.retire(some.iter().copied(), Self::drop_users);
        }
    }

    /// Releases folios of an exited address space, like [`LruRef::release`], in larger groups.
    ///
    /// Takes the lists' lock once for [`MANY`] folios, holds it only for taking them off, and
    /// updates sizes and counters once for each list. That reduces hold time, cache-line transfers
    /// and handoffs. Another CPU may wait for the lock for 4 us instead of 1. Huge pages are freed
    /// to their zone together.
    pub fn release_many(&self, folios: &[(Pfn, u32)]) {
        match self.lru.pending() {
            Pending::Batch => self.release_listed(folios),
            // Pending folios are on no list.
            Pending::Slot => self.release(folios),
        }
    }

    fn release_listed(&self, folios: &[(Pfn, u32)]) {
        let _span = Span::<A>::enter(Func::ReleasePages);
        for some in folios.chunks(MANY) {
            let mut gone = [Pfn::new(0); MANY];
            let mut listed = [None; MANY];
            let mut count = 0;
            for &(pfn, refs) in some {
                let mut relock = Relock::new(*self);
                let Some(word) = self.drop_users(&mut relock, pfn, refs) else { continue };
                listed[count] = word.has(FolioFlags::LRU).then(|| LruList::of(word));
                gone[count] = pfn;
                count += 1;
                self.note_death(pfn, word);
            }
            let gone = &gone[..count];
            let on_lists = gone.iter().zip(listed).filter_map(|(&pfn, list)| Some((pfn, list?)));
            Relock::new(*self).unlink_all(on_lists);
            self.uncharge_all(gone);
            let is_large = |pfn: Pfn| self.table().word(pfn).order() == LARGE;
            let alike = |&one: &Pfn, &next: &Pfn| is_large(one) && is_large(next);
            for some in gone.chunk_by(alike) {
                match self.table().word(some[0]).order() {
                    order if order == LARGE => self.frames.free_large(some, order),
                    order => self.frames.free_pages(some[0], order),
                }
            }
        }
    }

    /// Drops one reference of one folio; frees it if it was the last.
    pub fn put(&self, pfn: Pfn) {
        self.retire(core::iter::once((pfn, 1)), Self::drop_users);
    }

    /// Drops the references of a carried-out batch.
    pub(super) fn drop_batch(&self, batch: &Taken) {
        self.retire(batch.as_slice().iter().map(|&pfn| (pfn, 1)), Self::drop_plain);
    }

    /// Drops references with `drop_some`, which returns the final state of a folio whose last
    /// reference it dropped. At most a batch of folios.
    pub(super) fn retire(
        &self,
        folios: impl Iterator<Item = (Pfn, u32)>,
        drop_some: fn(&Self, &mut Relock<'_, A>, Pfn, u32) -> Option<FolioWord>,
    ) {
        let mut gone = Taken::EMPTY;
        let mut relock = Relock::new(*self);
        for (pfn, refs) in folios {
            let Some(word) = drop_some(self, &mut relock, pfn, refs) else { continue };
            if word.has(FolioFlags::LRU) {
                relock.unlink(pfn, LruList::of(word));
            }
            self.note_death(pfn, word);
            gone.push(pfn);
        }
        drop(relock);
        self.free_all(gone.as_slice());
    }

    /// Drops references that no batch has.
    fn drop_users(&self, relock: &mut Relock<'_, A>, pfn: Pfn, refs: u32) -> Option<FolioWord> {
        match self.lru.pending() {
            Pending::Batch => {
                let old = self.folios.drop_refs(pfn, refs);
                if old.has(FolioFlags::PENDING) && old.refs() == refs + 1 {
                    A::trace(Trace::Lru(LruEvent::Dead { pages: self.pages_of(pfn) as i32 }));
                }
                (old.refs() == refs).then_some(old)
            }
            Pending::Slot => self.drop_lazily(relock, pfn, refs),
        }
    }

    /// Drops references of which none is an add batch's; the same code for every policy.
    pub(super) fn drop_plain(
        &self,
        _: &mut Relock<'_, A>,
        pfn: Pfn,
        refs: u32,
    ) -> Option<FolioWord> {
        let old = self.folios.drop_refs(pfn, refs);
        (old.refs() == refs).then_some(old)
    }

    /// Accounts for a folio that ended in the state `word`.
    pub(super) fn note_death(&self, pfn: Pfn, word: FolioWord) {
        debug_assert!(word.maps() == 0, "the folio at {pfn:?} ends while it is mapped: {word:?}");
        if word.has(FolioFlags::MLOCKED) {
            self.count_mlocked(pfn, -1);
        }
    }
    /// Adds the folio's pages, times `sign`, to the counter of locked memory.
    pub(super) fn count_mlocked(&self, pfn: Pfn, sign: i64) {
        let (off, location) = (IrqGuard::<A>::new(), self.location(pfn));
        let pages = sign * i64::from(location.pages);
        self.frames.stats().mod_zone(&off, location.zone, ZoneItem::Mlock, pages);
    }

    /// Uncharges and frees folios whose last reference was dropped.
    pub(super) fn free_all(&self, gone: &[Pfn]) {
        self.uncharge_all(gone);
        for &pfn in gone {
            self.frames.free_pages(pfn, self.table().word(pfn).order());
        }
    }

    /// Uncharges folios, as many of one group as follow one another together.
    fn uncharge_all(&self, gone: &[Pfn]) {
        for some in gone.chunk_by(|&one, &next| self.folios.group(one) == self.folios.group(next)) {
            let group = self.folios.group(some[0]);
            self.groups.uncharge(group, some.iter().map(|&pfn| self.pages_of(pfn)).sum());
            let off = IrqGuard::<A>::new();
            self.groups.stats().count(&off, group, GroupEvent::FolioOut, some.len() as u32);
        }
    }
}
