//! The policy `blockmap` in the frame allocator: [`BlockMap`] replaces page caches, buddy allocator
//! and zone lock; zones, watermarks and counters are those of the other policies.

use super::claim::Request;
use super::zone::{BELOW_HIGH, RECLAIM_ACTIVE, UNCACHED};
use super::{FrameAllocator, IsolateError, Records, Zone};
use crate::blockmap::{AllocRequest, BlockMap, Entered, Refill};
use crate::frame::{FrameState, FrameTable, FrameWord};
use crate::vmstat::ZoneItem;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{IrqGuard, NoPreempt, PreemptGuard};
use mmscale_arch::{Access, Atomic, Cpu, CpuId, Func, Order, PcpEvent, Pfn, Span, Trace};

/// This CPU's cache of a zone, entered. Fields are dropped in this order, so the cache is left
/// before preemption is enabled.
pub(super) struct PinnedCache<'a, A: Cpu> {
    cache: Entered<'a>,
    pinned: PreemptGuard<A>,
}

impl<A: Cpu> FrameAllocator<A> {
    /// Takes a block from this CPU's stacks of the nearest zone. Pages there do not count as free,
    /// so no watermark is checked. The caller records the holder.
    #[inline(always)]
    pub(super) fn take_cached(&self, request: Request) -> Option<(&Zone<A>, Pfn)> {
        let zone = self.nearest(request)?;
        let map = zone.map()?;
        let pinned = PreemptGuard::<A>::new();
        let old = kept_before(map, &pinned);
        let pfn = map.take_cached(&pinned, request.order, request.wanted)?;
        trace_kept(zone, map, pinned.cpu(), old);
        Some((zone, pfn))
    }

    /// Takes a block from a zone; the caller has checked its watermark.
    pub(super) fn rmqueue_blocks(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        request: Request,
    ) -> Option<Pfn> {
        let _span = Span::<A>::enter(Func::RmqueueBulk);
        let pinned = PreemptGuard::<A>::new();
        // Read before the cache is used: this may be where an interrupt drains this CPU.
        let refill = refill(zone);
        let req = AllocRequest {
            cpu: pinned.cpu(),
            order: request.order,
            kind: request.wanted,
            refill,
            reserve: request.reserve,
            spare_pages: self.spare_pages(zone),
        };
        let (old, mut change) = (kept_before(map, &pinned), 0);
        let cached = map.take_cached(&pinned, request.order, request.wanted);
        let pfn = cached.or_else(|| map.claim(&pinned, req, &mut change));
        // Before the delta is folded: an interrupt that drains this CPU may come there, and traces
        // its own change.
        trace_kept(zone, map, pinned.cpu(), old);
        self.fold_delta(zone, map, &pinned, change);
        let pfn = pfn?;
        self.note_held(zone, pfn, request);
        Some(pfn)
    }

    /// Records a block as allocated, if frames have records.
    #[inline]
    pub(super) fn note_held(&self, zone: &Zone<A>, pfn: Pfn, request: Request) {
        let Request { order, wanted, .. } = request;
        if self.config.records == Records::None {
            return;
        }
        FrameTable::touch::<A>(pfn, Access::Write);
        match self.config.records {
            Records::None => {}
            Records::Orders => self.frames.set_held(pfn, order),
            Records::Kept => {
                let (held, zone) = (FrameState::Held, zone.id.index() as u8);
                self.frames.set_word(pfn, FrameWord::new(held, order, wanted, wanted, zone));
            }
        }
    }

    /// Pages of a zone that each CPU could cache while the zone stays above its high watermark.
    #[inline]
    fn spare_pages(&self, zone: &Zone<A>) -> u32 {
        let free = self.stats.zone(zone.id, ZoneItem::FreePages);
        free.saturating_sub(zone.marks.high.into()) as u32 / self.cpus as u32
    }

    /// Frees a block of the zone into this CPU's cache or to the map.
    #[inline(never)]
    pub(super) fn free_to_blocks(&self, zone: &Zone<A>, map: &BlockMap<A>, pfn: Pfn, order: Order) {
        if order >= Order::PAGEBLOCK {
            if !zone.keep_whole(map, pfn, order) {
                self.free_to_map(zone, map, pfn, order);
            }
        } else {
            match zone.enter_cache(map) {
                Some(pinned_cache) if zone.keep_part(map, &pinned_cache, pfn, order) => {}
                Some(pinned_cache) => self.free_part(zone, map, pinned_cache, (pfn, order)),
                None => self.free_to_map(zone, map, pfn, order),
            }
        }
    }

    /// Frees a block below a pageblock's order, if its pageblock is not that of the last free, or
    /// if the cache has no room.
    #[inline(never)]
    fn free_part(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        pinned_cache: PinnedCache<'_, A>,
        block: (Pfn, Order),
    ) {
        self.free_part_by(BlockMap::give_part, (zone, map), pinned_cache, block);
    }

    /// Frees a block with `give`, a function of [`BlockMap`] that accepts its order; folds the
    /// delta if it is too large.
    #[inline(always)]
    pub(super) fn free_part_by(
        &self,
        give: impl FnOnce(&BlockMap<A>, Entered<'_>, CpuId, (Pfn, Order)) -> i64,
        (zone, map): (&Zone<A>, &BlockMap<A>),
        PinnedCache { cache, pinned }: PinnedCache<'_, A>,
        block: (Pfn, Order),
    ) {
        let old = kept_before(map, &pinned);
        let delta = give(map, cache, pinned.cpu(), block);
        trace_kept(zone, map, pinned.cpu(), old);
        if delta.unsigned_abs() > zone.lag_pages.into() {
            self.fold_large_delta(zone, map, &pinned);
        }
    }

    /// Frees a block of any order, without the fast paths.
    #[inline(never)]
    pub(super) fn free_to_map(&self, zone: &Zone<A>, map: &BlockMap<A>, pfn: Pfn, order: Order) {
        let pinned = PreemptGuard::<A>::new();
        // Read before the cache is used: this may be where an interrupt drains this CPU.
        let refill = refill(zone);
        let (old, mut change) = (kept_before(map, &pinned), 0);
        map.give(&pinned, (pfn, order), refill, &mut change);
        trace_kept(zone, map, pinned.cpu(), old);
        self.fold_after_free(zone, map, &pinned, change);
    }

    /// Folds this CPU's delta, which exceeds the bound.
    #[inline(never)]
    fn fold_large_delta(&self, zone: &Zone<A>, map: &BlockMap<A>, pinned: &impl NoPreempt<A>) {
        let off = IrqGuard::new();
        if let Some(due) = map.take_delta(pinned) {
            self.stats.mod_zone(&off, zone.id, ZoneItem::FreePages, due);
        }
        drop(off);
        self.look_at_high(zone);
    }

    /// Folds this CPU's delta and `change` after a free, if the delta exceeds its bound.
    #[inline(never)]
    fn fold_after_free(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        pinned: &impl NoPreempt<A>,
        change: i64,
    ) {
        self.fold_delta(zone, map, pinned, change);
        self.look_at_high(zone);
    }

    /// Clears the flag `BELOW_HIGH` of a zone that is above its high watermark.
    #[inline]
    fn look_at_high(&self, zone: &Zone<A>) {
        if zone.pressure().below_high && self.above_high(zone) {
            zone.put(BELOW_HIGH, false);
        }
    }

    /// Folds `change`, and this CPU's delta if it exceeds the bound: 0 where memory is short.
    fn fold_delta(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        pinned: &impl NoPreempt<A>,
        change: i64,
    ) {
        let most = if zone.pressure().below_high { 0 } else { zone.lag_pages.into() };
        let exceeds = map.has_unfolded_delta(pinned, most);
        if !exceeds && change == 0 {
            return;
        }
        let off = IrqGuard::new();
        let delta = if exceeds { map.take_delta(pinned) } else { None };
        let due = delta.unwrap_or(0) + change;
        if due != 0 {
            self.stats.mod_zone(&off, zone.id, ZoneItem::FreePages, due);
        }
    }

    /// Folds this CPU's delta and its counter's byte, for the CPU that drains this one.
    fn fold_for_drain(&self, zone: &Zone<A>, map: &BlockMap<A>, pinned: &impl NoPreempt<A>) {
        let off = IrqGuard::new();
        if let Some(due) = map.take_delta(pinned) {
            self.stats.mod_zone(&off, zone.id, ZoneItem::FreePages, due);
        }
        self.stats.fold_zone(&off, zone.id);
    }

    /// Folds this CPU's deltas of all zones; returns the number of zones with a delta.
    pub(super) fn fold_all_deltas(&self) -> u32 {
        let pinned = PreemptGuard::<A>::new();
        let maps = self.zones.iter().filter_map(|zone| Some((zone, zone.map()?)));
        let mut folded = 0;
        for (zone, map) in maps {
            if !map.has_unfolded_delta(&pinned, 0) {
                continue;
            }
            let off = IrqGuard::new();
            if let Some(due) = map.take_delta(&pinned) {
                self.stats.mod_zone(&off, zone.id, ZoneItem::FreePages, due);
                folded += 1;
            }
        }
        folded
    }

    /// Drains a CPU's cache of one zone. Returns the number of pages freed if it is this CPU's
    /// cache, and 0 for another's, unless caches are shared.
    pub(super) fn drain_blocks(&self, zone: &Zone<A>, map: &BlockMap<A>, cpu: CpuId) -> u32 {
        let (pinned, old) = (PreemptGuard::<A>::new(), map.cached_pages(cpu));
        if pinned.cpu() == cpu {
            let drained = map.drain_here(&pinned);
            if drained.is_some() {
                self.fold_for_drain(zone, map, &pinned);
                map.end_fold(&pinned);
            }
            let pages = drained.unwrap_or(0);
            A::trace(Trace::Pcp(PcpEvent::Drain { zone: zone.id.index() as u16, pages }));
            trace_kept(zone, map, cpu, old);
            return pages;
        }
        if A::SHARED_CACHES {
            let (pages, due) = map.drain_shared(cpu).unwrap_or_default();
            if due != 0 {
                self.stats.mod_zone(&IrqGuard::new(), zone.id, ZoneItem::FreePages, due);
            }
            trace_kept(zone, map, cpu, old);
            return pages;
        }
        drop(pinned);
        // The cache of a CPU that goes offline is drained when it has stopped (`drain_dead`); until
        // then it may be in the middle of an allocation.
        if A::is_online(cpu) {
            map.drain_remote(cpu);
        }
        0
    }

    /// Drains the cache of each CPU once, where CPUs share caches: for as long as a CPU uses its
    /// cache all the time.
    pub(super) fn drain_shared_for_sure(&self, zone: &Zone<A>, map: &BlockMap<A>) {
        for cpu in (0..map.cpus()).map(CpuId::new) {
            let due = loop {
                let pinned = PreemptGuard::<A>::new();
                if pinned.cpu() == cpu {
                    break 0;
                }
                if let Some((_, due)) = map.drain_shared(cpu) {
                    break due;
                }
                drop(pinned);
                A::relax();
            };
            self.stats.mod_zone(&IrqGuard::new(), zone.id, ZoneItem::FreePages, due);
        }
    }

    /// Drains the caches of a CPU that is offline to the maps. Only for the task that takes it
    /// offline: no other task drains a dead CPU's caches.
    pub(super) fn drain_dead(&self, dead: CpuId) {
        // An isolator waits for batches, perhaps with preemption off on this CPU.
        let _pinned = PreemptGuard::<A>::new();
        for (zone, map) in self.zones.iter().filter_map(|zone| Some((zone, zone.map()?))) {
            let old = map.cached_pages(dead);
            let (pages, due) = map.drain_dead(dead);
            self.stats.mod_zone(&IrqGuard::new(), zone.id, ZoneItem::FreePages, due);
            A::trace(Trace::Pcp(PcpEvent::Drain { zone: zone.id.index() as u16, pages }));
            trace_kept(zone, map, dead, old);
        }
    }

    /// Isolates a pageblock; the caller drains the page caches afterwards.
    pub(super) fn isolate_mapped(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        block: Pfn,
    ) -> Result<(), IsolateError> {
        let pages = map.isolate(block).ok_or(IsolateError::NotNow)?;
        let off = IrqGuard::new();
        self.stats.mod_zone(&off, zone.id, ZoneItem::FreePages, -(pages as i64));
        Ok(())
    }

    /// Undoes the isolation of a pageblock.
    pub(super) fn unisolate_mapped(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        block: Pfn,
    ) -> Result<(), IsolateError> {
        let pages = map.unisolate(block).ok_or(IsolateError::NotNow)?;
        self.stats.mod_zone(&IrqGuard::new(), zone.id, ZoneItem::FreePages, pages as i64);
        Ok(())
    }

    /// Handles a drain request of another CPU ([`Cpu::request_drain`]).
    pub fn drain_ipi(&self) {
        let pinned = PreemptGuard::<A>::new();
        for (zone, map) in self.zones.iter().filter_map(|zone| Some((zone, zone.map()?))) {
            let old = map.cached_pages(pinned.cpu());
            let drained = map.drain_here(&pinned).is_some();
            if drained {
                self.fold_for_drain(zone, map, &pinned);
                map.end_fold(&pinned);
            }
            map.ack_drain(&pinned, drained);
            trace_kept(zone, map, pinned.cpu(), old);
        }
    }
}

impl<A: Cpu> Zone<A> {
    /// Enters this CPU's cache. Returns `None` where memory is short, or in an interrupt that came
    /// while the CPU uses it.
    #[inline(always)]
    pub(super) fn enter_cache<'a>(&self, map: &'a BlockMap<A>) -> Option<PinnedCache<'a, A>> {
        if refill(self) == Refill::Exact {
            return None;
        }
        let pinned = PreemptGuard::<A>::new();
        let cache = map.enter_cache(&pinned)?;
        Some(PinnedCache { cache, pinned })
    }

    /// Frees a block below a pageblock's order into this CPU's cache, if that accepts it.
    #[inline(always)]
    pub(super) fn keep_part(
        &self,
        map: &BlockMap<A>,
        pinned_cache: &PinnedCache<'_, A>,
        pfn: Pfn,
        order: Order,
    ) -> bool {
        let old = kept_before(map, &pinned_cache.pinned);
        let kept = map.keep_part(&pinned_cache.cache, pfn, order);
        trace_kept(self, map, pinned_cache.pinned.cpu(), old);
        kept
    }

    /// Frees a pageblock into this CPU's cache, if that accepts it.
    #[inline(always)]
    pub(super) fn keep_whole(&self, map: &BlockMap<A>, pfn: Pfn, order: Order) -> bool {
        if order != Order::PAGEBLOCK || refill(self) == Refill::Exact {
            return false;
        }
        let pinned = PreemptGuard::<A>::new();
        let old = kept_before(map, &pinned);
        let kept = map.give_whole_cached(&pinned, pfn);
        trace_kept(self, map, pinned.cpu(), old);
        kept
    }
}

/// Whether allocations take further blocks for the cache, and frees go into it.
#[inline]
fn refill<A: Cpu>(zone: &Zone<A>) -> Refill {
    let flags = zone.flags.load_uncharged(Relaxed);
    let exact = flags & (BELOW_HIGH | RECLAIM_ACTIVE | UNCACHED) != 0;
    if exact { Refill::Exact } else { Refill::Batch }
}

/// The pages in this CPU's cache, for [`trace_kept`]; 0 if nothing is traced.
#[inline]
fn kept_before<A: Cpu>(map: &BlockMap<A>, pinned: &impl NoPreempt<A>) -> u32 {
    if A::TRACES { map.cached_pages(pinned.cpu()) } else { 0 }
}

/// Traces a change of the pages in the cache of `cpu`, which were `old`.
#[inline]
fn trace_kept<A: Cpu>(zone: &Zone<A>, map: &BlockMap<A>, cpu: CpuId, old: u32) {
    if !A::TRACES {
        return;
    }
    let (count, most) = (map.cached_pages(cpu), map.most_cached_pages() as u32);
    if count != old {
        let zone = zone.id.index() as u16;
        A::trace(Trace::Pcp(PcpEvent::Count { cpu, zone, old, count, high: most, high_min: most }));
    }
}
