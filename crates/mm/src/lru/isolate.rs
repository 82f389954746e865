//! Taking folios off their lists, putting them back, asking for one in particular.
//!
//! Whoever clears a folio's LRU flag has isolated it: nobody else moves it, and its list is that of
//! its other flags until the lruvec lock says otherwise. Under `Lazy` a pending folio is isolated
//! by emptying its slot: without a lock, and whichever CPU it waits on.

use super::batch::Taken;
use super::lists::{End, Relock};
use super::{LruList, Memory, Pending};
use crate::folio::{FolioFlags, FolioWord};
use crate::group::GroupId;
use mmscale_arch::{Func, Machine, NodeId, Pfn, Span, planted};

/// What a look at the end of a list gave.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Scan {
    /// Folios looked at.
    pub scanned: usize,
    /// Folios isolated.
    pub taken: usize,
}

impl<A: Machine> Memory<'_, A> {
    /// Takes the folio off its list, with a reference of the caller's own beside the one that the
    /// caller needs for asking (`folio_isolate_lru`). `false`: it is not on one. Under `Stock` and
    /// `Freeze` that may mean that it waits in some CPU's batch; under `Lazy` it means that
    /// somebody else has it.
    pub fn isolate(&self, pfn: Pfn) -> bool {
        let _span = Span::<A>::enter(Func::FolioIsolateLru);
        loop {
            let word = self.folios.word(pfn);
            if word.has(FolioFlags::LRU) {
                let taken = word.with_refs(word.refs() + 1);
                let taken = taken.with(FolioFlags::empty(), FolioFlags::LRU);
                if planted!(LruIsolatedInTwoSteps) {
                    self.folios.get(pfn);
                    self.folios.clear(pfn, FolioFlags::LRU);
                    self.take_off(pfn);
                    return true;
                }
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
                // It is going into its slot, or from there to its list: a matter of moments.
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

    /// Puts an isolated folio back through this CPU's batch, and drops the reference that came with
    /// the isolation (`folio_putback_lru`).
    pub fn putback(&self, pfn: Pfn) {
        let _span = Span::<A>::enter(Func::FolioPutbackLru);
        self.add(pfn);
        self.put(pfn);
    }

    /// Puts isolated folios back on their lists at once, those of their flags, and drops the
    /// references that came with the isolation (`move_folios_to_lru`). Under `Lazy` they go back
    /// through this CPU's batch, like any others: whoever wants one on its list asks for it.
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

    /// Isolates up to `into.len()` of the oldest folios of a list, each with a reference; looks at
    /// up to `limit` (`isolate_lru_folios`). Folios that are about to be freed are left.
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
                let is_used = word.refs() > 0 || planted!(LruDyingRevived);
                (is_used && word.has(FolioFlags::LRU)).then_some(taken)
            };
            if self.folios.update(pfn, there).is_ok() {
                relock.unlink(pfn, list);
                into[scan.taken] = pfn;
                scan.taken += 1;
            } else {
                // Its last user, or who isolated it, waits for this lock.
                relock.skip(lruvec, list, pfn);
            }
        }
        scan
    }

    /// Brings a folio of which the caller has a reference to its list, if it waits in a batch that
    /// can be reached: of any CPU under `Lazy`, this CPU's otherwise. Whether it is on its list
    /// now; if not, somebody has isolated it, or another CPU's batch has it.
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

    /// Whether the folio has no more than `users` references, a batch's not counted: what
    /// copy-on-write asks before it reuses a page. `Stock` and `Freeze` cannot tell batches'
    /// references from others: they drain this CPU and count again, as Linux does; the answer may
    /// be no because of another CPU's batch. `Lazy` knows. The caller keeps new users away, by its
    /// page-table lock.
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

    /// Takes a folio with just `users` references away from everybody: for splitting or moving it
    /// (`folio_ref_freeze`). A batch's reference that can be reached is got rid of first. Ended by
    /// [`Folios::unfreeze`](crate::folio::Folios::unfreeze).
    pub fn freeze(&self, pfn: Pfn, users: u32) -> bool {
        if self.folios.freeze(pfn, users) {
            return true;
        }
        self.demand(pfn);
        self.folios.freeze(pfn, users)
    }

    /// The pages on each list of a group on a node, exactly; takes their lock once.
    pub fn list_sizes(&self, group: GroupId, node: NodeId) -> [u64; LruList::COUNT] {
        self.lru.lruvecs[self.lru.index_of(group, node)].lock_irqsave().pages
    }

    /// The pages on a list, exactly; takes its lock.
    pub fn list_pages(&self, group: GroupId, node: NodeId, list: LruList) -> u64 {
        self.lru.lruvecs[self.lru.index_of(group, node)].lock_irqsave().pages[list as usize]
    }
}
