//! Pages that are in swap, and memory for those that come back.

use super::zap::folio_of;
use super::{Area, AreaFlags, Backing, FaultError, Space, SpaceError, VmaRange, Vpn};
use crate::arch::{Arch, Func, NodeId, Order, Pfn, Span};
use crate::folio::{FolioFlags, FolioInit, FolioWord};
use crate::lru::{FolioError, LruPolicy};
use crate::page_alloc::{AllocError, Gfp};
use crate::reclaim::Scope;
use crate::swap::{SwapEntry, SwapError};
use crate::table::{Direction, Leaf, Pte, PteFlags, TableError};
use alloc::vec::Vec;

/// How often memory is reclaimed for one folio (`MAX_RECLAIM_RETRIES`).
const ATTEMPTS: u32 = 16;
/// Folios that are isolated and reclaimed together.
const BATCH: usize = 32;

/// The kind of a swap entry whose page others may have too.
pub(super) const SHARED: u8 = 0;
/// That of an entry whose page its address space had to itself, and still has (the exclusive
/// marker of a swap entry): it may write to the page when that comes back, whoever else has
/// references.
pub(super) const ALONE: u8 = 1;

impl<A: Arch> Space<A> {
    /// A swap entry of the tables is gone.
    pub(super) fn forget_swap(&self, on: Backing<'_, A>, (_, word): (u8, u64)) {
        on.swap.free(on.memory, SwapEntry::from_word(word), 1);
    }
    /// A swap entry is copied.
    pub(super) fn share_swap(&self, on: Backing<'_, A>, (_, word): (u8, u64)) {
        on.swap.dup(SwapEntry::from_word(word));
    }
    /// Whether the page is in memory all the same.
    pub(super) fn is_cached(&self, on: Backing<'_, A>, (_, word): (u8, u64)) -> bool {
        let found = on.swap.lookup(on.memory, SwapEntry::from_word(word));
        found.inspect(|&pfn| on.memory.put(pfn)).is_some()
    }
    /// Gives the folio's slot back, if nobody else needs it. Under its table's lock, so the folio's
    /// own lock is only tried.
    pub(super) fn drop_swap_cache(&self, on: Backing<'_, A>, folio: Pfn) -> bool {
        if !on.swap.trylock_folio(on.memory, folio) {
            return false;
        }
        let freed = on.swap.free_swap(on.memory, folio);
        on.swap.unlock_folio(on.memory, folio);
        freed
    }
    /// A page comes back from swap (`do_swap_page`).
    pub(super) fn swap_in(
        &self,
        on: Backing<'_, A>,
        area: &Area,
        page: Vpn,
        seen: Pte,
        (_, word): (u8, u64),
    ) -> Result<(), FaultError> {
        let _span = Span::<A>::enter(Func::DoSwapPage);
        let (entry, node) = (SwapEntry::from_word(word), self.node_for(area));
        let pfn = match on.swap.read_in(on.memory, entry, node, self.group) {
            Ok(pfn) => pfn,
            Err(SwapError::Io) => return Err(FaultError::Bus),
            Err(SwapError::NoMemory(why)) => return on.make_room(node, Order::ZERO, why),
            // Somebody has brought it in: the next attempt finds it.
            Err(SwapError::Gone) => return Ok(()),
        };
        on.swap.lock_folio(on.memory, pfn);
        let mapped = on.swap.holds(on.memory, pfn, entry)
            && self.map_swapped(on, area, page, seen, pfn, entry);
        if mapped && self.drops_slot(on, area) {
            on.swap.free_swap(on.memory, pfn);
        }
        on.swap.unlock_folio(on.memory, pfn);
        if !mapped {
            on.memory.put(pfn);
        }
        Ok(())
    }
    /// Whether a slot is given back as soon as its page is there (`should_try_to_free_swap`).
    fn drops_slot(&self, on: Backing<'_, A>, area: &Area) -> bool {
        on.swap.is_half_full() || area.flags.contains(AreaFlags::LOCKED)
    }
    /// Puts the folio, whose lock the caller has, in the place of the swap entry `seen`. The
    /// caller's reference goes with the mapping.
    fn map_swapped(
        &self,
        on: Backing<'_, A>,
        area: &Area,
        page: Vpn,
        seen: Pte,
        pfn: Pfn,
        entry: SwapEntry,
    ) -> bool {
        let Some(mut ptes) = self.table.find_pte(on.paging, page) else { return false };
        if ptes.get(page) != seen {
            return false;
        }
        let folios = on.memory.folios;
        // Nobody maps the folio. If no other entry names the slot either, it may still be on its
        // way out of another address space, whose CPUs read it until they are told: then somebody
        // has a reference beside the cache and us. A fork, which would copy the entry, waits for
        // this VMA.
        let fresh = folios.word(pfn).maps() == 0;
        let last = || on.swap.count(entry) == 1 && on.memory.is_exclusive(pfn, 2);
        let alone = fresh && (matches!(seen.as_swap(), Some((ALONE, _))) || last());
        if fresh {
            folios.set_mapping(pfn, self.init_for(area, page).mapping, area.index_of(page));
        }
        folios.add_map(pfn);
        let mut flags = PteFlags::ACCESSED;
        if alone {
            folios.set(pfn, FolioFlags::EXCLUSIVE);
            flags |= self.rights(area);
        }
        if area.flags.contains(AreaFlags::LOCKED) {
            on.memory.mlock(pfn);
        }
        ptes.fill(page, Pte::page(pfn, flags));
        on.swap.free(on.memory, entry, 1);
        true
    }
    /// `MADV_PAGEOUT`: isolates the folios of a part of a VMA and reclaims them, those that others
    /// share excepted.
    pub(super) fn page_out(&self, on: Backing<'_, A>, part: VmaRange) -> Result<(), SpaceError> {
        let mut taken: Vec<Pfn> = Vec::new();
        for leaf in self.table.leaves(on.paging, part, Direction::Forward) {
            let Leaf::Ptes(mut ptes, some) = leaf else { continue };
            for page in Direction::Forward.pages(some) {
                let pte = ptes.get(page);
                let flags = pte.flags();
                let Some(pfn) = pte.pfn().filter(|_| !flags.contains(PteFlags::ZERO)) else {
                    continue;
                };
                let folio = folio_of(pfn, flags);
                let word = on.memory.folios.word(folio);
                if word.maps() != 1 || folio != pfn || !self.can_go(on, word) {
                    continue;
                }
                if flags.contains(PteFlags::ACCESSED) {
                    ptes.clear(page, PteFlags::ACCESSED);
                }
                on.memory.folios.clear(folio, FolioFlags::REFERENCED);
                if on.memory.isolate(folio) {
                    taken.push(folio);
                }
            }
            drop(ptes);
            taken.chunks(BATCH).for_each(|some| on.page_out(some));
            taken.clear();
            A::cond_resched();
        }
        Ok(())
    }
    /// Whether it makes sense to isolate a folio to reclaim it. Linux isolates folios also where
    /// there is no swap, and puts them back.
    fn can_go(&self, on: Backing<'_, A>, word: FolioWord) -> bool {
        let blanket = on.memory.lru.policy() != LruPolicy::Lazy;
        blanket || on.swap.is_on() || word.is_lazyfree()
    }
    /// `MADV_WILLNEED`: brings pages in from swap, to the swap cache.
    pub(super) fn will_need(
        &self,
        on: Backing<'_, A>,
        area: &Area,
        part: VmaRange,
    ) -> Result<(), SpaceError> {
        let mut wanted: Vec<u64> = Vec::new();
        for leaf in self.table.leaves(on.paging, part, Direction::Forward) {
            if let Leaf::Ptes(ptes, some) = leaf {
                let swapped = |page| ptes.get(page).as_swap().map(|(_, word)| word);
                wanted.extend(Direction::Forward.pages(some).filter_map(swapped));
            }
        }
        for word in wanted {
            let (entry, node) = (SwapEntry::from_word(word), self.node_for(area));
            // It is advice: what cannot be had now is had when it is touched.
            if let Ok(pfn) = on.swap.read_in(on.memory, entry, node, self.group) {
                on.memory.put(pfn);
            }
        }
        on.memory.blanket_drain();
        Ok(())
    }
}

impl<A: Arch> Backing<'_, A> {
    /// One more entry names the slot.
    pub(super) fn dup_swap(self, entry: SwapEntry) {
        self.swap.dup(entry);
    }
    fn page_out(self, isolated: &[Pfn]) {
        let scope = Scope { memory: self.memory, swap: self.swap, rmap: &self };
        self.reclaim.reclaim_pages(scope, isolated);
    }
    /// A folio, reclaiming memory for it if there is none.
    pub(super) fn new_folio(
        self,
        node: NodeId,
        order: Order,
        gfp: Gfp,
        what: FolioInit,
    ) -> Result<Pfn, FaultError> {
        self.with_room(node, order, || self.memory.alloc_folio(node, order, gfp, what))
    }
    /// The same for a folio of one page that is not born yet.
    pub(super) fn new_unborn(
        self,
        node: NodeId,
        gfp: Gfp,
        what: FolioInit,
    ) -> Result<Pfn, FaultError> {
        let order = Order::ZERO;
        self.with_room(node, order, || self.memory.alloc_unborn(node, order, gfp, what))
    }
    #[inline]
    fn with_room(
        self,
        node: NodeId,
        order: Order,
        alloc: impl Fn() -> Result<Pfn, FolioError>,
    ) -> Result<Pfn, FaultError> {
        for _ in 0..ATTEMPTS {
            match alloc() {
                Ok(pfn) => return Ok(pfn),
                Err(why) => self.make_room(node, order, why)?,
            }
        }
        Err(FaultError::Oom)
    }
    /// Frees memory after `why`: the caller tries again. `Oom`: nothing could be freed.
    pub(super) fn make_room(
        self,
        node: NodeId,
        order: Order,
        why: FolioError,
    ) -> Result<(), FaultError> {
        let group = match why {
            FolioError::Frames(AllocError::Injected) => return Err(FaultError::Oom),
            FolioError::Frames(AllocError::NoMemory) => None,
            FolioError::Group(over) => {
                self.memory.drain_stocks();
                // What other CPUs had charged in advance may do.
                if self.memory.groups.has_room(over.group, order.pages() as u32) {
                    return Ok(());
                }
                Some(over.group)
            }
        };
        let scope = Scope { memory: self.memory, swap: self.swap, rmap: &self };
        let freed = self.reclaim.direct(scope, node, order.pages() as u32, group);
        if freed > 0 { Ok(()) } else { Err(FaultError::Oom) }
    }
    /// What a fault makes of a table that it could not have: somebody has mapped a page of the
    /// other size meanwhile, or there was no memory and there is now: the next attempt tells.
    pub(super) fn table_or_oom(self, why: TableError) -> Result<(), FaultError> {
        match why {
            TableError::Huge | TableError::Table => Ok(()),
            TableError::NoMemory(why) => {
                let here = A::node_of(A::cpu());
                self.make_room(here, Order::ZERO, FolioError::Frames(why))
            }
            TableError::NoAsid => Err(FaultError::Oom),
        }
    }
}
