//! The way back where no records are kept: nothing is known of a frame but which zone it is in.

use super::mapped::Inside;
use super::{FrameAllocator, Zone};
use crate::blockmap::{BlockMap, WORD_ORDER};
use mmscale_arch::{Cpu, Op, Order, PageEvent, Pfn, Trace};

impl<A: Cpu> FrameAllocator<A> {
    /// Gives a block back. Parts of pageblocks and whole ones go different ways from here.
    ///
    /// Most of memory is in the last zone. What a CPU keeps of that takes in a block without asking
    /// whose it is: it knows its own.
    #[inline]
    pub(super) fn free_unrecorded(&self, pfn: Pfn, order: Order) {
        if order < Order::PAGEBLOCK {
            self.free_part_unrecorded(pfn, order);
        } else {
            self.free_whole_unrecorded(pfn, order);
        }
    }

    #[inline(never)]
    fn free_part_unrecorded(&self, pfn: Pfn, order: Order) {
        note_freed::<A>(pfn, order);
        if let Some(zone) = self.zones.last()
            && let Some(map) = zone.map()
            && pfn.is_aligned(order)
            && let Some(inside) = zone.enter_cache(map)
        {
            if !zone.keep_part(map, &inside, pfn, order) {
                if order.get() < WORD_ORDER {
                    self.free_small_elsewhere(inside, pfn, order);
                } else {
                    self.free_large_elsewhere(inside, pfn, order);
                }
            }
            return;
        }
        self.free_unrecorded_elsewhere(pfn, order);
    }

    /// The same with the cache of the last zone where it does not just keep the block. Apart, and
    /// with no more than it takes, so that whoever keeps it need not prepare for this.
    #[inline(never)]
    fn free_small_elsewhere(&self, inside: Inside<'_, A>, pfn: Pfn, order: Order) {
        match self.last_mapped(|map| map.spans_pageblock_of(pfn)) {
            Some(last) => self.free_part_by(BlockMap::give_small, last, inside, (pfn, order)),
            None => self.free_outside(inside, pfn, order),
        }
    }

    /// The same for a word or more.
    #[inline(never)]
    fn free_large_elsewhere(&self, inside: Inside<'_, A>, pfn: Pfn, order: Order) {
        match self.last_mapped(|map| map.spans(pfn, order)) {
            Some(last) => self.free_part_by(BlockMap::give_large, last, inside, (pfn, order)),
            None => self.free_outside(inside, pfn, order),
        }
    }

    /// Leaves the cache of the last zone: the block is another's, or lies at an end of the zone.
    #[inline(never)]
    fn free_outside(&self, inside: Inside<'_, A>, pfn: Pfn, order: Order) {
        drop(inside);
        self.free_unrecorded_elsewhere(pfn, order);
    }

    /// The last zone, with its map, if that has what it is asked for.
    #[inline(always)]
    fn last_mapped(
        &self,
        has: impl FnOnce(&BlockMap<A>) -> bool,
    ) -> Option<(&Zone<A>, &BlockMap<A>)> {
        let zone = self.zones.last()?;
        let map = zone.map()?;
        has(map).then_some((zone, map))
    }

    #[inline(never)]
    fn free_whole_unrecorded(&self, pfn: Pfn, order: Order) {
        note_freed::<A>(pfn, order);
        if let Some(zone) = self.zones.last()
            && let Some(map) = zone.map()
            && pfn.is_aligned(order)
            && zone.keep_whole(map, pfn, order)
        {
            return;
        }
        self.free_unrecorded_elsewhere(pfn, order);
    }

    /// The same for whichever zone has it, and if memory is short.
    #[inline(never)]
    fn free_unrecorded_elsewhere(&self, pfn: Pfn, order: Order) {
        let Some((last, others)) = self.zones.split_last() else { never_given(pfn, order) };
        if let Some((zone, map)) = mapped_in(last, pfn, order) {
            return self.free_to_map(zone, map, pfn, order);
        }
        match others.iter().find_map(|zone| mapped_in(zone, pfn, order)) {
            Some((zone, map)) => self.free_to_blocks(zone, map, pfn, order),
            None => never_given(pfn, order),
        }
    }
}

#[inline(always)]
fn note_freed<A: Cpu>(pfn: Pfn, order: Order) {
    A::work(Op::PagePrep, 1);
    A::trace(Trace::Page(PageEvent::Free { pfn, order }));
}

/// A zone, with its map, if a block of `order` may lie there in it.
#[inline(always)]
fn mapped_in<A: Cpu>(zone: &Zone<A>, pfn: Pfn, order: Order) -> Option<(&Zone<A>, &BlockMap<A>)> {
    let map = zone.map()?;
    (pfn.is_aligned(order) && map.spans(pfn, order)).then_some((zone, map))
}

#[cold]
fn never_given(pfn: Pfn, order: Order) -> ! {
    let (pfn, order) = (pfn.index(), order.get());
    panic!("frame {pfn} freed with order {order}: no such block was ever handed out")
}
