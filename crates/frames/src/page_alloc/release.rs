//! Frees: into the CPU's page cache, and from there, in bulk, to the zone.

use super::zone::{BELOW_HIGH, FreeLists, FreesTo, ZoneFree};
use super::{BulkHold, FrameAllocator, PcpPolicy, Records, Zone};
use crate::frame::{FrameState, FrameTable, FrameWord};
use crate::pcp::{Pcp, PcpList};
use crate::vmstat::ZoneItem;
use crate::zone::ZoneId;
use mmscale_arch::sync::{NoPreempt, PreemptGuard};
use mmscale_arch::{Access, Cpu, CpuId, Func, Op, Order, PageEvent, PcpEvent, Pfn, Span, Trace};

/// Charges the checks of a block that is freed, and the reset of its pages' records.
#[inline]
fn prepare_free<A: Cpu>(order: Order) {
    A::work(Op::PagePrep, 1);
    if order > Order::ZERO {
        A::work(Op::PageTail, order.pages() as u32 - 1);
    }
}

impl<A: Cpu> FrameAllocator<A> {
    /// Frees a block that [`FrameAllocator::alloc_pages`] returned for the same `order`.
    ///
    /// With records or orders it panics if `pfn` is not the head of such a block: if it was freed
    /// already, has another size, or was never allocated. Without them a part of a block is freed
    /// in the same way, and a wrong call may return and have its frame handed out twice.
    #[inline]
    pub fn free_pages(&self, pfn: Pfn, order: Order) {
        let _span = Span::<A>::enter(Func::FreePages);
        match self.config.records {
            Records::None => self.free_unrecorded(pfn, order),
            Records::Orders => self.free_ordered(pfn, order),
            Records::Kept => self.free_recorded(pfn, order),
        }
    }

    /// Frees with records of frames. Not inlined, so that the path without records is short.
    #[inline(never)]
    fn free_recorded(&self, pfn: Pfn, order: Order) {
        let word = self.check_held(pfn, order);
        self.free_claimed(pfn, word);
    }

    /// Frees with the order of each block. Not inlined, as `free_recorded`.
    #[inline(never)]
    fn free_ordered(&self, pfn: Pfn, order: Order) {
        FrameTable::touch::<A>(pfn, Access::Write);
        if !self.frames.release_held(pfn, order) {
            self.bad_free(pfn, order);
        }
        self.free_unrecorded(pfn, order);
    }

    /// Frees a block whose record was `word` when the caller found it allocated.
    #[inline]
    pub(super) fn free_claimed(&self, pfn: Pfn, word: FrameWord) {
        let order = word.order();
        prepare_free::<A>(order);
        A::trace(Trace::Page(PageEvent::Free { pfn, order }));
        let zone = &self.zones[usize::from(word.zone())];
        match &zone.free {
            ZoneFree::Lists(lists) => self.free_to_lists(zone, lists, pfn, word),
            ZoneFree::Blocks(blocks) => {
                FrameTable::touch::<A>(pfn, Access::Write);
                self.frames.set_inside(pfn);
                self.free_to_blocks(zone, &blocks.map, pfn, order);
            }
            ZoneFree::Guest(guest) => self.free_to_guest(zone, guest, pfn, order),
        }
    }

    /// Frees a block into a page cache or to the buddy allocator.
    #[inline(never)]
    fn free_to_lists(&self, zone: &Zone<A>, lists: &FreeLists<A>, pfn: Pfn, word: FrameWord) {
        let order = word.order();
        if let Some(list) = self.pcp_list(lists, order, word.list())
            && match lists.frees_to {
                FreesTo::FreeingCpu => self.free_to_pcp((zone, lists), pfn, word, list),
                FreesTo::Owner => self.free_to_owner((zone, lists), pfn, word),
            }
        {
            return;
        }
        self.free_one_page(zone, lists, pfn, order);
    }

    /// Frees blocks of the same `order` together, such as the huge pages of a process that has
    /// exited. A page cache would hold few of them, and take the zone lock for each. So with the
    /// policy `stock` the zone lock is taken once for consecutive blocks of one zone.
    ///
    /// Panics as [`FrameAllocator::free_pages`] does.
    pub fn free_large(&self, blocks: &[Pfn], order: Order) {
        let frees_to = |zone: &Zone<A>| zone.lists().map(|lists| lists.frees_to);
        let in_zones = self.config.records != Records::None
            && self.zones.iter().all(|zone| frees_to(zone) == Some(FreesTo::FreeingCpu));
        if !in_zones {
            return blocks.iter().for_each(|&pfn| self.free_pages(pfn, order));
        }
        let _span = Span::<A>::enter(Func::FreeOnePage);
        for &pfn in blocks {
            self.check_held(pfn, order);
            prepare_free::<A>(order);
        }
        let zone_of = |pfn: Pfn| usize::from(self.frames.word(pfn).zone());
        for some in blocks.chunk_by(|&one, &next| zone_of(one) == zone_of(next)) {
            let zone = &self.zones[zone_of(some[0])];
            let mut buddy = self.listed(zone.id).buddy.lock_irqsave();
            let mut free = 0;
            for &pfn in some {
                A::trace(Trace::Page(PageEvent::Free { pfn, order }));
                free += buddy.free_block(&self.frames, pfn, order);
            }
            self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, free.into());
        }
    }

    #[inline]
    pub(super) fn check_held(&self, pfn: Pfn, order: Order) -> FrameWord {
        assert!(pfn.index() < self.frames.len(), "freed frame {} does not exist", pfn.index());
        let word = self.frames.word(pfn);
        if !word.is(FrameState::Held, order) {
            not_held(pfn, order, word);
        }
        word
    }

    #[cold]
    fn bad_free(&self, pfn: Pfn, order: Order) -> ! {
        assert!(pfn.index() < self.frames.len(), "freed frame {} does not exist", pfn.index());
        not_held(pfn, order, self.frames.word(pfn))
    }

    /// Frees the block into this CPU's page cache, and drains what exceeds its limit. Returns
    /// `false` if the cache's lock was taken, or if the pageblock is isolated.
    #[inline]
    fn free_to_pcp(
        &self,
        (zone, lists): (&Zone<A>, &FreeLists<A>),
        pfn: Pfn,
        word: FrameWord,
        list: PcpList,
    ) -> bool {
        let pinned = PreemptGuard::<A>::new();
        let cpu = pinned.cpu();
        let Some(mut pcp) = lists.pcps.of(cpu).try_lock_with(pinned) else { return false };
        let (pressure, isolating) = zone.condition();
        if isolating && self.isolated.has(pfn) {
            return false;
        }
        let old = pcp.count();
        pcp.put::<A>(&self.frames, list, pfn, word);
        let surplus = pcp.note_free(word.order(), pressure);
        if surplus == 0 {
            self.trace_count(zone, cpu, &pcp, old);
            return true;
        }
        let step = self.hold_pages(&pcp, surplus);
        let moved = self.free_pcppages_bulk((zone, lists), &mut pcp, step, list);
        self.trace_count(zone, cpu, &pcp, old);
        drop(pcp);
        self.free_rest((zone, lists), cpu, surplus.saturating_sub(moved), list);
        if pressure.below_high && self.above_high(zone) {
            zone.put(BELOW_HIGH, false);
        }
        true
    }

    /// Drains the remaining pages, one hold after the other, while no other CPU takes the page
    /// cache's lock and the caller stays on its CPU.
    fn free_rest(
        &self,
        (zone, lists): (&Zone<A>, &FreeLists<A>),
        cpu: CpuId,
        mut left: u32,
        list: PcpList,
    ) {
        while left > 0 {
            let pinned = PreemptGuard::<A>::new();
            if pinned.cpu() != cpu {
                return;
            }
            let Some(mut pcp) = lists.pcps.of(cpu).try_lock_with(pinned) else { return };
            let old = pcp.count();
            if old == 0 {
                return;
            }
            let step = self.hold_pages(&pcp, left);
            let moved = self.free_pcppages_bulk((zone, lists), &mut pcp, step, list);
            self.trace_count(zone, cpu, &pcp, old);
            left = left.saturating_sub(moved);
        }
    }

    /// The number of `due` pages that one hold of the zone lock frees.
    #[inline]
    pub(super) fn hold_pages(&self, pcp: &Pcp, due: u32) -> u32 {
        match self.config.hold {
            BulkHold::Batch => due.min(pcp.limits().batch),
            BulkHold::Whole => due,
        }
    }

    /// Moves `pages` pages of a locked page cache to its zone; returns the number of pages moved.
    /// With the policy `premerge` it moves fewer if they are more than 64 blocks.
    pub(super) fn free_pcppages_bulk(
        &self,
        (zone, lists): (&Zone<A>, &FreeLists<A>),
        pcp: &mut Pcp,
        pages: u32,
        first: PcpList,
    ) -> u32 {
        let _span = Span::<A>::enter(Func::FreePcppagesBulk);
        pcp.merge_owned::<A>(&self.frames);
        let premerges = self.config.caches == PcpPolicy::Premerge;
        let leaving = premerges.then(|| pcp.gather::<A>(&self.frames, pages, first));
        let mut buddy = lists.buddy.lock_irqsave();
        let moved = match leaving {
            Some(blocks) => blocks.free(&self.frames, &mut *buddy),
            None => pcp.drain(&self.frames, &mut *buddy, pages, first),
        };
        self.stats.mod_zone_singly(&buddy, zone.id, ZoneItem::FreePages, moved.free.into());
        drop(buddy);
        A::trace(Trace::Pcp(PcpEvent::Drain { zone: zone.id.index() as u16, pages: moved.pages }));
        moved.pages
    }

    /// As [`FrameAllocator::free_pcppages_bulk`], if the zone lock is free now. Blocks are not
    /// merged before: if the lock is taken, they would have to go back to their lists.
    pub(super) fn try_free_pcppages_bulk(
        &self,
        (zone, lists): (&Zone<A>, &FreeLists<A>),
        pcp: &mut Pcp,
        pages: u32,
    ) -> Option<u32> {
        let _span = Span::<A>::enter(Func::FreePcppagesBulk);
        pcp.merge_owned::<A>(&self.frames);
        let mut buddy = lists.buddy.try_lock_irqsave()?;
        let moved = pcp.drain(&self.frames, &mut *buddy, pages, PcpList::FIRST);
        self.stats.mod_zone_singly(&buddy, zone.id, ZoneItem::FreePages, moved.free.into());
        drop(buddy);
        A::trace(Trace::Pcp(PcpEvent::Drain { zone: zone.id.index() as u16, pages: moved.pages }));
        Some(moved.pages)
    }

    /// Frees a block to its zone directly.
    fn free_one_page(&self, zone: &Zone<A>, lists: &FreeLists<A>, pfn: Pfn, order: Order) {
        let _span = Span::<A>::enter(Func::FreeOnePage);
        let mut buddy = lists.buddy.lock_irqsave();
        let free = match lists.frees_to {
            FreesTo::FreeingCpu => buddy.free_block(&self.frames, pfn, order),
            FreesTo::Owner => buddy.free_fragment(&self.frames, pfn, order),
        };
        self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, free.into());
    }

    /// Drains one page cache (`drain_pages_zone`), in holds of at most `batch << 5` pages; returns
    /// the number of pages freed. Any CPU may call it for any other.
    pub fn drain_pages_zone(&self, zone: ZoneId, cpu: CpuId) -> u32 {
        let _span = Span::<A>::enter(Func::DrainPages);
        let zone = self.zone(zone);
        match &zone.free {
            ZoneFree::Lists(lists) => self.drain_pcp(zone, lists, cpu),
            ZoneFree::Blocks(blocks) => self.drain_blocks(zone, &blocks.map, cpu),
            ZoneFree::Guest(guest) => guest.drain(cpu),
        }
    }

    fn drain_pcp(&self, zone: &Zone<A>, lists: &FreeLists<A>, cpu: CpuId) -> u32 {
        let mut drained = 0;
        loop {
            let mut pcp = lists.pcps.of(cpu).lock();
            let old = pcp.count();
            if old == 0 {
                return drained;
            }
            let step = pcp.limits.largest_drain();
            drained += self.free_pcppages_bulk((zone, lists), &mut pcp, step, PcpList::FIRST);
            self.trace_count(zone, cpu, &pcp, old);
        }
    }
}

#[cold]
fn not_held(pfn: Pfn, order: Order, word: FrameWord) -> ! {
    let (pfn, order) = (pfn.index(), order.get());
    match word.state() {
        FrameState::Held => panic!(
            "frame {pfn} freed with order {order}, but allocated with order {}",
            word.order().get()
        ),
        FrameState::Free | FrameState::Cached => {
            panic!("frame {pfn} of order {order} freed twice: it is {:?} already", word.state())
        }
        FrameState::Inside => panic!(
            "frame {pfn} freed with order {order}, but it is not the head of an allocated block"
        ),
    }
}
