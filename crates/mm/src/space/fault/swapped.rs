//! Pages in swap, and memory for pages that are read back.

use super::{Handled, Patience};
use crate::folio::{FolioFlags, FolioInit};
use crate::lru::FolioError;
use crate::oom::{OomResult, OomRetries, Shortage};
use crate::pgtable::{Direction, Leaf, MakeRoom, Pte, PteFlags, TableError};
use crate::reclaim::ReclaimRef;
use crate::space::zap::folio_of;
use crate::space::{FaultError, MmRef, Space, SpaceError, Vma, VmaFlags, VmaRange, Vpn};
use crate::swap::{SwapEntry, SwapError};
use crate::tlb::Leave;
use alloc::vec::Vec;
use mmscale_arch::{Func, Machine, NodeId, Op, Order, Pfn, Span};
use mmscale_frames::page_alloc::{AllocError, Gfp};

/// Rounds of reclaim that free something but not enough, before the OOM killer is called
/// (`MAX_RECLAIM_RETRIES`).
const ATTEMPTS: u32 = 16;
/// The OOM killer is not called for larger blocks (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: Order = match Order::new(3) {
    Some(order) => order,
    None => panic!("no such order"),
};
/// Folios that are isolated and reclaimed together.
const BATCH: usize = 32;

/// Swap entry whose page other address spaces may have too.
pub(crate) const SHARED: u8 = 0;
/// Swap entry whose page its address space had exclusively, and still has (`pte_swp_exclusive`).
/// The program may write to the page after swap-in even if the folio has other references.
pub(crate) const ALONE: u8 = 1;

impl<A: Machine> Space<A> {
    /// Frees the reference of a swap entry that was taken from the tables.
    pub(crate) fn forget_swap(&self, on: MmRef<'_, A>, (_, word): (u8, u64)) {
        on.swap.free(on.memory, SwapEntry::from_word(word), 1);
    }
    /// Like [`Space::forget_swap`], but does not free a folio that only the swap cache has: returns
    /// its reference for the caller to drop.
    pub(crate) fn forget_swap_but_folio(
        &self,
        on: MmRef<'_, A>,
        (_, word): (u8, u64),
    ) -> Option<Pfn> {
        on.swap.free_but_folio(on.memory, SwapEntry::from_word(word))
    }
    /// Takes a reference for a copy of a swap entry.
    pub(crate) fn share_swap(&self, on: MmRef<'_, A>, (_, word): (u8, u64)) {
        on.swap.dup(SwapEntry::from_word(word));
    }
    /// Whether the page of a swap entry is in the swap cache.
    pub(crate) fn is_cached(&self, on: MmRef<'_, A>, (_, word): (u8, u64)) -> bool {
        let found = on.swap.lookup(on.memory, SwapEntry::from_word(word));
        found.inspect(|&pfn| on.memory.put(pfn)).is_some()
    }
    /// Frees the folio's swap slot if no other entry names it. Called under a page-table lock, so
    /// the folio lock is only tried.
    pub(crate) fn drop_swap_cache(&self, on: MmRef<'_, A>, folio: Pfn) -> bool {
        if !on.swap.trylock_folio(on.memory, folio) {
            return false;
        }
        let freed = on.swap.free_swap(on.memory, folio);
        on.swap.unlock_folio(on.memory, folio);
        freed
    }
    /// Handles a fault on a page in swap (`do_swap_page`).
    pub(super) fn swap_in(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
        seen: Pte,
        (_, word): (u8, u64),
        patience: Patience,
    ) -> Result<Handled, FaultError> {
        let _span = Span::<A>::enter(Func::DoSwapPage);
        let (entry, node) = (SwapEntry::from_word(word), self.node_for(vma));
        let read = on.with_room(node, Order::ZERO, |more| {
            let gfp = Gfp::RECLAIMING | more;
            match on.swap.start_read(on.memory, entry, node, self.group, gfp) {
                Err(SwapError::NoMemory(why)) => Err(why),
                other => Ok(other),
            }
        });
        let pfn = match read? {
            Ok(pfn) => pfn,
            Err(SwapError::Io | SwapError::NoMemory(_)) => return Err(FaultError::Bus),
            // Another fault has brought it in: the retry finds it.
            Err(SwapError::Gone) => return Ok(Handled::Done),
        };
        if !on.swap.trylock_folio(on.memory, pfn) {
            if patience == Patience::Return {
                return Ok(Handled::Wait(pfn));
            }
            on.swap.lock_folio(on.memory, pfn);
        }
        if !on.memory.folios.word(pfn).has(FolioFlags::UPTODATE) {
            on.swap.read_failed(on.memory, pfn);
            return Err(FaultError::Bus);
        }
        let mapped = on.swap.holds(on.memory, pfn, entry)
            && self.map_swapped(on, vma, page, seen, pfn, entry);
        if mapped && self.drops_slot(on, vma) {
            on.swap.free_swap(on.memory, pfn);
        }
        on.swap.unlock_folio(on.memory, pfn);
        if !mapped {
            on.memory.put(pfn);
        }
        Ok(Handled::Done)
    }
    /// Whether a slot is freed as soon as its page is mapped (`should_try_to_free_swap`).
    fn drops_slot(&self, on: MmRef<'_, A>, vma: &Vma) -> bool {
        on.swap.is_half_full() || vma.flags.contains(VmaFlags::LOCKED)
    }
    /// Maps the folio, which the caller has locked, instead of the swap entry `seen`. On success
    /// the mapping takes over the caller's reference.
    fn map_swapped(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
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
        // The folio is not mapped. If no other entry names the slot, an address space that is
        // reclaimed just now may still use the folio until its CPUs have flushed: then it has a
        // reference in addition to the swap cache's and ours. A fork, which would copy the entry,
        // waits for this VMA.
        let fresh = folios.word(pfn).maps() == 0;
        let last = || on.swap.count(entry) == 1 && on.memory.is_exclusive(pfn, 2);
        let alone = fresh && (matches!(seen.as_swap(), Some((ALONE, _))) || last());
        if fresh {
            folios.set_mapping(pfn, self.init_for(vma, page).mapping, vma.index_of(page));
        }
        on.memory.add_map(pfn);
        let mut flags = PteFlags::ACCESSED;
        if alone {
            folios.set(pfn, FolioFlags::EXCLUSIVE);
            flags |= self.rights(vma);
        }
        if vma.flags.contains(VmaFlags::LOCKED) {
            on.memory.mlock(pfn);
        }
        A::work(Op::MapPage, 1);
        ptes.fill(page, Pte::page(pfn, flags));
        on.swap.free(on.memory, entry, 1);
        true
    }
    /// `MADV_PAGEOUT`: isolates the folios of a part of a VMA and reclaims them, except shared
    /// ones. Does so without swap too, as Linux does: then they are put back.
    pub(crate) fn page_out(&self, on: MmRef<'_, A>, part: VmaRange) -> Result<(), SpaceError> {
        // Folios in limbo are on no LRU list and cannot be isolated, though they may be in use
        // again.
        on.leave_limbo(Leave::Passed);
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
                if word.maps() != 1 || folio != pfn || !word.has(FolioFlags::ANON) {
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
    /// `MADV_WILLNEED`: reads pages of files, and pages from swap into the swap cache.
    pub(crate) fn will_need(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        part: VmaRange,
    ) -> Result<(), SpaceError> {
        if vma.file.is_some() {
            self.will_need_file(on, vma, part);
        }
        let mut wanted: Vec<u64> = Vec::new();
        for leaf in self.table.leaves(on.paging, part, Direction::Forward) {
            if let Leaf::Ptes(ptes, some) = leaf {
                let swapped = |page| ptes.get(page).as_swap().map(|(_, word)| word);
                wanted.extend(Direction::Forward.pages(some).filter_map(swapped));
            }
        }
        for word in wanted {
            let (entry, node) = (SwapEntry::from_word(word), self.node_for(vma));
            // This is advice: a page that cannot be read now is read by the fault.
            if let Ok(pfn) = on.swap.read_in(on.memory, entry, node, self.group, Gfp::KERNEL) {
                on.memory.put(pfn);
            }
        }
        on.memory.blanket_drain();
        Ok(())
    }
}

impl<A: Machine> MmRef<'_, A> {
    /// Whether the folio is anonymous.
    pub(crate) fn is_anonymous(self, folio: Pfn) -> bool {
        self.memory.folios.word(folio).has(FolioFlags::ANON)
    }
    /// Takes another reference to the slot.
    pub(crate) fn dup_swap(self, entry: SwapEntry) {
        self.swap.dup(entry);
    }
    fn page_out(self, isolated: &[Pfn]) {
        let scope = ReclaimRef { memory: self.memory, swap: self.swap, rmap: &self };
        self.reclaim.reclaim_pages(scope, isolated);
    }
    /// Allocates a folio, and reclaims memory if there is none.
    pub(crate) fn new_folio(
        self,
        node: NodeId,
        order: Order,
        gfp: Gfp,
        what: FolioInit,
    ) -> Result<Pfn, FaultError> {
        let alloc = |more| self.memory.alloc_folio(node, order, gfp | more, what);
        self.with_room(node, order, alloc)
    }
    /// Like [`MmRef::new_folio`], for a folio of one page that is not initialised yet.
    pub(crate) fn new_initializing(
        self,
        node: NodeId,
        gfp: Gfp,
        what: FolioInit,
    ) -> Result<Pfn, FaultError> {
        let order = Order::ZERO;
        let alloc = |more| self.memory.alloc_initializing(node, order, gfp | more, what);
        self.with_room(node, order, alloc)
    }
    /// Calls `alloc`, and reclaims memory and retries while that helps. `alloc` gets additional
    /// flags for the allocation.
    #[inline]
    fn with_room<T>(
        self,
        node: NodeId,
        order: Order,
        alloc: impl Fn(Gfp) -> Result<T, FolioError>,
    ) -> Result<T, FaultError> {
        match alloc(Gfp::empty()) {
            Ok(done) => Ok(done),
            Err(why) => self.with_more_room(node, order, why, alloc),
        }
    }
    #[cold]
    fn with_more_room<T>(
        self,
        node: NodeId,
        order: Order,
        mut why: FolioError,
        alloc: impl Fn(Gfp) -> Result<T, FolioError>,
    ) -> Result<T, FaultError> {
        let mut retries = OomRetries::new();
        loop {
            let more = self.make_room(node, order, why, &mut retries)?;
            match alloc(more) {
                Ok(done) => return Ok(done),
                Err(next) => why = next,
            }
        }
    }
    /// Frees memory after the failure `why`, and returns the additional flags for a retry (the slow
    /// path of `__alloc_pages`). Fails with `Oom` if no memory can be freed, with `Killed` if the
    /// caller is to exit.
    fn make_room(
        self,
        node: NodeId,
        order: Order,
        why: FolioError,
        retries: &mut OomRetries,
    ) -> Result<Gfp, FaultError> {
        let group = match why {
            FolioError::Frames(AllocError::Injected) => return Err(FaultError::Oom),
            FolioError::Frames(AllocError::NoMemory) => None,
            FolioError::Group(over) => Some(over.group),
        };
        if self.spaces.is_caller_dying(self) {
            let first = !core::mem::replace(&mut retries.reserve_used, true);
            return if first { Ok(Gfp::VICTIM) } else { Err(FaultError::Killed) };
        }
        let scope = ReclaimRef { memory: self.memory, swap: self.swap, rmap: &self };
        let pages = order.pages() as u32;
        if self.reclaim.direct(scope, node, pages, group) > 0 {
            retries.reclaimed += 1;
            if retries.reclaimed <= ATTEMPTS {
                // If the attempt fails, free pages may be in the caches of other CPUs.
                return Ok(Gfp::DRAIN);
            }
        }
        if let Some(group) = group
            && !core::mem::replace(&mut retries.stocks_drained, true)
        {
            self.memory.drain_stocks();
            // Charges that other CPUs have in stock may be enough.
            if self.memory.groups.has_room(group, pages) {
                return Ok(Gfp::empty());
            }
        }
        retries.reclaimed = 0;
        if order > COSTLY_ORDER {
            return Err(FaultError::Oom);
        }
        match self.oom.out_of_memory(self, Shortage { node, order, group }, retries) {
            OomResult::Retry => Ok(Gfp::DRAIN),
            OomResult::NoVictim => Err(FaultError::Oom),
        }
    }
    /// Converts a failure to get a page table into the result of a fault. If another task has
    /// mapped a page of the other size, the program retries the access; otherwise there is no
    /// memory.
    pub(crate) fn table_or_oom(self, why: TableError) -> Result<(), FaultError> {
        match why {
            TableError::Huge | TableError::Table => Ok(()),
            TableError::NoMemory(_) if self.spaces.is_caller_dying(self) => Err(FaultError::Killed),
            TableError::NoMemory(_) | TableError::NoAsid => Err(FaultError::Oom),
        }
    }
}

impl<A: Machine> MakeRoom for MmRef<'_, A> {
    fn make_room(&self, why: AllocError, retries: &mut OomRetries) -> Result<Gfp, AllocError> {
        let (here, why_not) = (A::node_of(A::cpu()), why);
        let made = MmRef::make_room(*self, here, Order::ZERO, FolioError::Frames(why), retries);
        made.map_err(|_| why_not)
    }
}
