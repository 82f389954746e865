//! Frees without records of frames: only the zone of a frame is known.
//!
//! Most of memory is in the last zone. So a free first tries this CPU's cache of the last zone,
//! which accepts a block of a recorded pageblock without a search for its zone. Each further step
//! is a function that is not inlined, so that the common path saves few registers.

use super::mapped::PinnedCache;
use super::{FrameAllocator, Zone};
use crate::blockmap::{BlockMap, WORD_ORDER};
use mmscale_arch::{Cpu, Op, Order, PageEvent, Pfn, Trace};

impl<A: Cpu> FrameAllocator<A> {
    /// Frees a block. Blocks below a pageblock's order and others have separate paths.
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
            && let Some(pinned_cache) = zone.enter_cache(map)
        {
            if !zone.keep_part(map, &pinned_cache, pfn, order) {
                if order.get() < WORD_ORDER {
                    self.free_small_elsewhere(pinned_cache, pfn, order);
                } else {
                    self.free_large_elsewhere(pinned_cache, pfn, order);
                }
            }
            return;
        }
        self.free_unrecorded_elsewhere(pfn, order);
    }

    /// Frees a block below a word's order that the cache of the last zone has not accepted on the
    /// fast path.
    #[inline(never)]
    fn free_small_elsewhere(&self, pinned_cache: PinnedCache<'_, A>, pfn: Pfn, order: Order) {
        match self.last_mapped(|map| map.spans_pageblock_of(pfn)) {
            Some(last) => self.free_part_by(BlockMap::give_small, last, pinned_cache, (pfn, order)),
            None => self.free_outside(pinned_cache, pfn, order),
        }
    }

    /// Frees a block of a word or more that the cache of the last zone has not accepted on the fast
    /// path.
    #[inline(never)]
    fn free_large_elsewhere(&self, pinned_cache: PinnedCache<'_, A>, pfn: Pfn, order: Order) {
        match self.last_mapped(|map| map.spans(pfn, order)) {
            Some(last) => self.free_part_by(BlockMap::give_large, last, pinned_cache, (pfn, order)),
            None => self.free_outside(pinned_cache, pfn, order),
        }
    }

    /// Leaves the cache of the last zone, and frees a block of another zone or at an end of the
    /// zone.
    #[inline(never)]
    fn free_outside(&self, pinned_cache: PinnedCache<'_, A>, pfn: Pfn, order: Order) {
        drop(pinned_cache);
        self.free_unrecorded_elsewhere(pfn, order);
    }

    /// The last zone and its map, if `has` returns true for the map.
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

    /// Frees a block of any zone, also where memory is short.
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

/// A zone and its map, if the zone can have a block of `order` at `pfn`.
#[inline(always)]
fn mapped_in<A: Cpu>(zone: &Zone<A>, pfn: Pfn, order: Order) -> Option<(&Zone<A>, &BlockMap<A>)> {
    let map = zone.map()?;
    (pfn.is_aligned(order) && map.spans(pfn, order)).then_some((zone, map))
}

#[cold]
fn never_given(pfn: Pfn, order: Order) -> ! {
    let (pfn, order) = (pfn.index(), order.get());
    panic!("frame {pfn} freed with order {order}: no zone has such a block")
}
