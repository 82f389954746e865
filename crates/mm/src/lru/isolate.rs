//! Isolating folios, putting them back, and requesting a folio's place on its list.
//!
//! The CPU that clears a folio's LRU flag has isolated it: no other CPU moves it. The folio's other
//! flags name its list until the isolating CPU changes that under the lruvec lock. Under `Lazy` a
//! pending folio is isolated by emptying its slot, without a lock, also on another CPU.

use super::batch::Taken;
use super::lists::{End, Relock};
use super::{LruList, LruRef, Pending};
use crate::folio::{FolioFlags, FolioWord};
use crate::memcg::GroupId;
use mmscale_arch::{Func, Machine, NodeId, Pfn, Span};

/// Result of a scan of the tail of a list.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scan {
    /// Number of folios scanned.
    pub scanned: usize,
    /// Number of folios isolated.
    pub taken: usize,
}

impl<A: Machine> LruRef<'_, A> {
    /// Isolates the folio with a new reference, in addition to the one that the caller must already
    /// have (`folio_isolate_lru`). Returns `false` if it is not listed. Under `Stock` and `Freeze`
    /// it may then be in some CPU's batch; under `Lazy` another caller has isolated it.
    pub fn isolate(&self, pfn: Pfn) -> bool {
        let _span = Span::<A>::enter(Func::FolioIsolateLru);
        loop {
            let word = self.folios.word(pfn);
            if word.has(FolioFlags::LRU) {
                let taken = word.with_refs(word.refs() + 1);
                let taken = taken.with(FolioFlags::empty(), FolioFlags::LRU);
                if self.folios.exchange(pfn, word, taken).is_ok() {
                    self.take_off(pfn);
                    return true;
                }
            } else if self.waits_in_slot(word) {
                if self.claim(pfn) {
                    self.folios.clear(pfn, FolioFlags::PENDING);
                    self.note_unpinned();
                    self.lru.tally().demanded.add(1);
                    return true;
                }
                // Another CPU is moving the folio into its slot, or from its slot to its list.
                A::relax();
            } else {
                return false;
            }
        }
    }

    /// Takes an isolated folio off its list.
    fn take_off(&self, pfn: Pfn) {
        let mut relock = Relock::new(*self);
        relock.hold_of(pfn);
        let list = LruList::of(self.folios.word(pfn));
        relock.unlink(pfn, list);
    }

    /// Adds an isolated folio to this CPU's batch and drops the reference of the isolation
    /// (`folio_putback_lru`).
    pub fn putback(&self, pfn: Pfn) {
        let _span = Span::<A>::enter(Func::FolioPutbackLru);
        self.add(pfn);
        self.put(pfn);
    }

    /// Puts isolated folios on the lists of their flags immediately and drops the references of the
    /// isolation (`move_folios_to_lru`). Under `Lazy` they go through this CPU's batch; a caller
    /// that needs one on its list requests it.
    pub fn putback_now(&self, folios: &[Pfn]) {
        let _span = Span::<A>::enter(Func::MoveFoliosToLru);
        match self.lru.pending() {
            Pending::Batch => self.putback_listed(folios),
            Pending::Slot => folios.iter().for_each(|&pfn| self.putback(pfn)),
        }
    }

    fn putback_listed(&self, folios: &[Pfn]) {
        for some in folios.chunks(super::BATCH) {
            let mut back = Taken::EMPTY;
            let mut relock = Relock::new(*self);
            for &pfn in some {
                relock.hold_of(pfn);
                let old = self.folios.set(pfn, FolioFlags::LRU);
                debug_assert!(!old.has(FolioFlags::LRU), "{pfn:?} is on a list: {old:?}");
                let list = LruList::of(self.agree(pfn, old));
                relock.link(pfn, list, End::Head);
                back.push(pfn);
            }
            drop(relock);
            self.drop_batch(&back);
        }
    }

    /// Isolates up to `into.len()` of the oldest folios of a list, each with a reference; scans at
    /// most `limit` (`isolate_lru_folios`). Skips folios without references, which are about to be
    /// freed.
    pub fn isolate_oldest(
        &self,
        group: GroupId,
        node: NodeId,
        list: LruList,
        limit: usize,
        into: &mut [Pfn],
    ) -> Scan {
        let _span = Span::<A>::enter(Func::IsolateLruFolios);
        let lruvec = self.lru.index_of(group, node);
        let (mut scan, mut relock) = (Scan::default(), Relock::new(*self));
        while scan.scanned < limit && scan.taken < into.len() {
            let Some(pfn) = relock.oldest(lruvec, list) else { break };
            scan.scanned += 1;
            let there = |word: FolioWord| {
                let taken = word.with_refs(word.refs() + 1);
                let taken = taken.with(FolioFlags::empty(), FolioFlags::LRU);
                (word.refs() > 0 && word.has(FolioFlags::LRU)).then_some(taken)
            };
            if self.folios.update(pfn, there).is_ok() {
                relock.unlink(pfn, list);
                into[scan.taken] = pfn;
                scan.taken += 1;
            } else {
                // The CPU that drops its last reference, or has isolated it, waits for this lock.
                relock.skip(lruvec, list, pfn);
            }
        }
        scan
    }

    /// Puts a folio, of which the caller has a reference, on its list if it waits in a reachable
    /// batch: that of any CPU under `Lazy`, otherwise this CPU's. Returns whether it is on its list
    /// now; if not, another caller has isolated it, or another CPU's batch has it.
    pub fn demand(&self, pfn: Pfn) -> bool {
        match self.lru.pending() {
            Pending::Batch => {
                if !self.folios.word(pfn).has(FolioFlags::LRU) {
                    self.drain();
                }
                self.folios.word(pfn).has(FolioFlags::LRU)
            }
            Pending::Slot => self.demand_slot(pfn),
        }
    }

    /// Returns whether the folio has at most `users` references, excluding a batch's; copy-on-write
    /// checks this before it reuses a page.
    ///
    /// `Stock` and `Freeze` cannot distinguish a batch's reference: they drain this CPU and count
    /// again, as Linux does, and may return `false` because of another CPU's batch. `Lazy` counts
    /// exactly. The caller's page-table lock excludes new users.
    pub fn is_exclusive(&self, pfn: Pfn, users: u32) -> bool {
        let word = self.folios.word(pfn);
        match self.lru.pending() {
            Pending::Batch if word.refs() > users && !word.has(FolioFlags::LRU) => {
                self.drain();
                self.folios.word(pfn).refs() <= users
            }
            Pending::Batch => word.refs() <= users,
            Pending::Slot => word.users() <= users,
        }
    }

    /// Freezes a folio with exactly `users` references, to split or move it (`folio_ref_freeze`).
    /// Drops the reference of a reachable batch first. Ended by
    /// [`Folios::unfreeze`](crate::folio::Folios::unfreeze).
    pub fn freeze(&self, pfn: Pfn, users: u32) -> bool {
        if self.folios.freeze(pfn, users) {
            return true;
        }
        self.demand(pfn);
        self.folios.freeze(pfn, users)
    }

    /// Returns the exact number of pages on each list of a group on a node; takes their lock once.
    pub fn list_sizes(&self, group: GroupId, node: NodeId) -> [u64; LruList::COUNT] {
        self.lru.lruvecs[self.lru.index_of(group, node)].lock_irqsave().pages
    }
}
