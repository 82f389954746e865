//! The policy `blockmap` in the frame allocator: the same zones, watermarks and counters, and
//! [`BlockMap`] in place of page caches, buddy allocator and zone lock.

use super::claim::Request;
use super::zone::BELOW_HIGH;
use super::{Audit, FrameAllocator, IsolateError, Records, Violation, Zone};
use crate::blockmap::{AllocRequest, BlockMap, Entered, MapError, Refill};
use crate::frame::{FrameState, FrameTable, FrameWord};
use crate::vmstat::ZoneItem;
use mmscale_arch::sync::{IrqGuard, NoPreempt, PreemptGuard};
use mmscale_arch::{Access, Cpu, CpuId, Func, Order, PcpEvent, Pfn, Span, Trace};

/// This CPU's cache of a zone, in use. It is left before preemption is on again: fields are dropped
/// in this order.
pub(super) struct Inside<'a, A: Cpu> {
    cache: Entered<'a>,
    pinned: PreemptGuard<A>,
}

impl<A: Cpu> FrameAllocator<A> {
    /// Takes a block from what this CPU has to itself of the nearest zone. These pages count as
    /// taken, so no watermark is asked. It is not noted yet who holds it.
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

    /// Takes a block from a zone whose watermark allows it.
    pub(super) fn rmqueue_blocks(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        request: Request,
    ) -> Option<Pfn> {
        let _span = Span::<A>::enter(Func::RmqueueBulk);
        let pinned = PreemptGuard::<A>::new();
        // Asked first: an interrupt that drains this CPU may come with the answer.
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
        // Before the account: an interrupt that drains this CPU may come there, and says so itself.
        trace_kept(zone, map, pinned.cpu(), old);
        self.fold_delta(zone, map, &pinned, change);
        let pfn = pfn?;
        self.note_held(zone, pfn, request);
        Some(pfn)
    }

    /// Notes who holds a block, if there are records.
    #[inline]
    pub(super) fn note_held(&self, zone: &Zone<A>, pfn: Pfn, request: Request) {
        if self.config.records == Records::Kept {
            FrameTable::touch::<A>(pfn, Access::Write);
            let (held, zone) = (FrameState::Held, zone.id.index() as u8);
            let word = FrameWord::new(held, request.order, request.wanted, request.wanted, zone);
            self.frames.set_word(pfn, word);
        }
    }

    /// What each CPU could keep of a zone without bringing it below its high watermark.
    #[inline]
    fn spare_pages(&self, zone: &Zone<A>) -> u32 {
        let free = self.stats.zone(zone.id, ZoneItem::FreePages);
        free.saturating_sub(zone.marks.high.into()) as u32 / A::cpus_possible() as u32
    }

    /// Gives a block back to what this CPU has to itself, or to the map. It is of the zone.
    #[inline(never)]
    pub(super) fn free_to_blocks(&self, zone: &Zone<A>, map: &BlockMap<A>, pfn: Pfn, order: Order) {
        if order >= Order::PAGEBLOCK {
            if !zone.keep_whole(map, pfn, order) {
                self.free_to_map(zone, map, pfn, order);
            }
        } else {
            match zone.enter_cache(map) {
                Some(inside) if zone.keep_part(map, &inside, pfn, order) => {}
                Some(inside) => self.free_part(zone, map, inside, (pfn, order)),
                None => self.free_to_map(zone, map, pfn, order),
            }
        }
    }

    /// The same for a part of another pageblock than the one before, or if something has to make
    /// room.
    #[inline(never)]
    fn free_part(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        inside: Inside<'_, A>,
        block: (Pfn, Order),
    ) {
        self.free_part_by(BlockMap::give_part, (zone, map), inside, block);
    }

    /// The same by a `give` that takes in blocks of its order.
    #[inline(always)]
    pub(super) fn free_part_by(
        &self,
        give: impl FnOnce(&BlockMap<A>, Entered<'_>, CpuId, (Pfn, Order)) -> i64,
        (zone, map): (&Zone<A>, &BlockMap<A>),
        Inside { cache, pinned }: Inside<'_, A>,
        block: (Pfn, Order),
    ) {
        let old = kept_before(map, &pinned);
        let delta = give(map, cache, pinned.cpu(), block);
        trace_kept(zone, map, pinned.cpu(), old);
        if delta.unsigned_abs() > zone.lag_pages.into() {
            self.fold_large_delta(zone, map, &pinned);
        }
    }

    /// The same for all other blocks.
    #[inline(never)]
    pub(super) fn free_to_map(&self, zone: &Zone<A>, map: &BlockMap<A>, pfn: Pfn, order: Order) {
        let pinned = PreemptGuard::<A>::new();
        // Asked first: an interrupt that drains this CPU may come with the answer.
        let refill = refill(zone);
        let (old, mut change) = (kept_before(map, &pinned), 0);
        map.give(&pinned, (pfn, order), refill, &mut change);
        trace_kept(zone, map, pinned.cpu(), old);
        self.fold_after_free(zone, map, &pinned, change);
    }

    /// Counts what this CPU has gathered, which is too much to lag.
    #[inline(never)]
    fn fold_large_delta(&self, zone: &Zone<A>, map: &BlockMap<A>, pinned: &impl NoPreempt<A>) {
        let off = IrqGuard::new();
        if let Some(due) = map.take_delta(pinned) {
            self.stats.mod_zone(&off, zone.id, ZoneItem::FreePages, due);
        }
        drop(off);
        self.look_at_high(zone);
    }

    /// Counts what came back, where it is too much to lag or memory is short.
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

    /// Says so if a zone is no longer below its high watermark.
    #[inline]
    fn look_at_high(&self, zone: &Zone<A>) {
        if zone.pressure().below_high && self.above_high(zone) {
            zone.put(BELOW_HIGH, false);
        }
    }

    /// Counts what this CPU has gathered if it is more than may lag, and `change`.
    fn fold_delta(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
        pinned: &impl NoPreempt<A>,
        change: i64,
    ) {
        let most = if zone.pressure().below_high { 0 } else { zone.lag_pages.into() };
        let owes = map.has_unfolded_delta(pinned, most);
        if !owes && change == 0 {
            return;
        }
        let off = IrqGuard::new();
        let owed = if owes { map.take_delta(pinned) } else { None };
        let due = owed.unwrap_or(0) + change;
        if due != 0 {
            self.stats.mod_zone(&off, zone.id, ZoneItem::FreePages, due);
        }
    }

    /// Counts all that this CPU has gathered, for whoever needs to know what is free.
    fn fold_for_drain(&self, zone: &Zone<A>, map: &BlockMap<A>, pinned: &impl NoPreempt<A>) {
        let off = IrqGuard::new();
        if let Some(due) = map.take_delta(pinned) {
            self.stats.mod_zone(&off, zone.id, ZoneItem::FreePages, due);
        }
        self.stats.fold_zone(&off, zone.id);
    }

    /// Counts all that this CPU has gathered; in how many zones there was something.
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

    /// Has a CPU give up what it keeps of one zone; how many pages, as far as this CPU knows.
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
        drop(pinned);
        // What a CPU keeps that goes away comes home when it has stopped (`drain_dead`); until then
        // it may be in the middle of an allocation.
        if A::is_online(cpu) {
            map.drain_remote(cpu);
        }
        0
    }

    /// Gives what a CPU keeps that has stopped for good, and has not come back, to the maps. Only
    /// for the one who sees it off: nobody else looks after a dead CPU's pages.
    pub(super) fn drain_dead(&self, dead: CpuId) {
        // Who isolates waits for who gives pageblocks back, perhaps with preemption off here.
        let _pinned = PreemptGuard::<A>::new();
        for (zone, map) in self.zones.iter().filter_map(|zone| Some((zone, zone.map()?))) {
            let old = map.cached_pages(dead);
            let (pages, due) = map.drain_dead(dead);
            self.stats.mod_zone(&IrqGuard::new(), zone.id, ZoneItem::FreePages, due);
            A::trace(Trace::Pcp(PcpEvent::Drain { zone: zone.id.index() as u16, pages }));
            trace_kept(zone, map, dead, old);
        }
    }

    /// Whether a zone's map adds up with the counter, and with the records if there are any.
    pub(super) fn verify_mapped(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
    ) -> Result<Audit, Violation> {
        let found = map.verify().map_err(|error| match error {
            MapError::Count(pfn) => Violation::BlockCount(pfn),
            MapError::Inside(pfn) => Violation::BlockOwner(pfn),
            MapError::Unfiled(pfn) => Violation::BlockUnfiled(pfn),
            MapError::Unhinted(pfn, order) => Violation::RoomUnnoted(pfn, order),
            MapError::Misfiled(pfn) => Violation::BlockMisfiled(pfn),
            MapError::Keeps(_) => Violation::PcpCount(zone.id),
            MapError::Kept(pfn) => Violation::Lost(pfn),
        })?;
        if self.config.records == Records::Kept {
            self.verify_held(map)?;
        }
        let counted = self.stats.zone_snapshot(zone.id, ZoneItem::FreePages) + found.unfolded;
        if counted != found.free as i64 {
            return Err(Violation::Counter(zone.id));
        }
        let (free, cached, isolated) = (found.free, found.cached, found.isolated);
        if found.offline != u64::from(zone.pages - zone.managed_pages()) {
            return Err(Violation::IsolatedCount(zone.id));
        }
        let held = u64::from(zone.managed_pages()) - free - cached - isolated;
        Ok(Audit { free, cached, held, isolated, offline: found.offline })
    }

    /// Whether the records agree with the map on who holds what. Blocks of which all is free are
    /// not looked into.
    fn verify_held(&self, map: &BlockMap<A>) -> Result<(), Violation> {
        let mut inside_until = 0;
        for (first, held) in map.held_words() {
            for bit in 0..u64::BITS as usize {
                let at = first.index() + bit;
                let (pfn, held) = (Pfn::new(at), held >> bit & 1 != 0);
                // At its ends the zone may lack some frames of a pageblock.
                if !map.spans(pfn, Order::ZERO) {
                    continue;
                }
                let word = self.frames.word(pfn);
                let head = word.state() == FrameState::Held;
                if at < inside_until && (head || !held) || at >= inside_until && head != held {
                    return Err(Violation::Cover(pfn));
                }
                if head {
                    inside_until = at + word.order().pages();
                    if !pfn.is_aligned(word.order()) || !map.spans(pfn, word.order()) {
                        return Err(Violation::Shape(pfn));
                    }
                }
            }
        }
        Ok(())
    }

    /// Isolates a pageblock; page caches are to be drained afterwards.
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

    /// Undoes it.
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

    /// Another CPU wants what this one keeps ([`Cpu::request_drain`]).
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
    /// This CPU's cache, for as long as it stays here, where there is memory enough to keep some.
    #[inline(always)]
    pub(super) fn enter_cache<'a>(&self, map: &'a BlockMap<A>) -> Option<Inside<'a, A>> {
        if refill(self) == Refill::Exact {
            return None;
        }
        let pinned = PreemptGuard::<A>::new();
        let cache = map.enter_cache(&pinned)?;
        Some(Inside { cache, pinned })
    }

    /// Gives a part of a pageblock back to what this CPU has to itself, if that takes it in.
    #[inline(always)]
    pub(super) fn keep_part(
        &self,
        map: &BlockMap<A>,
        inside: &Inside<'_, A>,
        pfn: Pfn,
        order: Order,
    ) -> bool {
        let old = kept_before(map, &inside.pinned);
        let kept = map.keep_part(&inside.cache, pfn, order);
        trace_kept(self, map, inside.pinned.cpu(), old);
        kept
    }

    /// The same for pageblocks.
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

/// How much to take at a time, and whether to keep what comes back.
#[inline]
fn refill<A: Cpu>(zone: &Zone<A>) -> Refill {
    let pressure = zone.pressure();
    if pressure.below_high || pressure.reclaim_active { Refill::Exact } else { Refill::Batch }
}

/// What this CPU keeps, for [`trace_kept`].
#[inline]
fn kept_before<A: Cpu>(map: &BlockMap<A>, pinned: &impl NoPreempt<A>) -> u32 {
    if A::TRACES { map.cached_pages(pinned.cpu()) } else { 0 }
}

/// Says that `cpu` kept `old` pages and now keeps what it does.
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
