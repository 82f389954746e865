//! Allocation of pages: zonelist, watermarks, the CPU's page cache, the zone.

use super::zone::{BELOW_HIGH, FreeLists, FreesTo, ZoneFree};
use super::{AllocError, CachedOrders, FrameAllocator, Gfp, PageCheck, PcpPolicy, Records, Zone};
use crate::blockmap::ReserveAccess;
use crate::frame::{FrameState, FrameTable, MigrateType};
use crate::pcp::{Pcp, PcpList};
use crate::vmstat::ZoneItem;
use crate::zone::{RmqueueMode, ZoneId};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use mmscale_arch::sync::{NoPreempt, PreemptGuard};
use mmscale_arch::{
    Access, Atomic, Cpu, Func, NodeId, Op, Order, PageEvent, PcpEvent, Pfn, Span, Trace,
};

/// Parameters of one allocation.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) order: Order,
    pub(super) wanted: MigrateType,
    /// Access to the reserve of whole pageblocks, with the policy `blockmap`.
    pub(super) reserve: ReserveAccess,
    gfp: Gfp,
    node: NodeId,
}

impl Request {
    /// Whether the request may use the zone's memory.
    #[inline]
    fn allows<A: Cpu>(&self, zone: &Zone<A>) -> bool {
        !self.gfp.contains(Gfp::THIS_NODE) || zone.node == self.node
    }
}

/// Watermark of an attempt: the zone must have more free pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Low,
    Min,
}

impl<A: Cpu> FrameAllocator<A> {
    /// Charges checks of `pages` pages at a place, if the configuration has them there. The maps
    /// of pageblocks have no refills: their blocks are checked when they are handed out.
    #[inline]
    pub(super) fn checked(&self, place: PageCheck, pages: u32) {
        let config = &self.config;
        let has_refills = config.caches != PcpPolicy::Blockmap;
        let where_it_is = match config.check {
            PageCheck::Refill if !has_refills => PageCheck::Alloc,
            check => check,
        };
        if where_it_is == place {
            A::work(Op::PageCheck, pages);
        }
    }

    /// Charges and traces the preparation of an allocated block.
    #[inline]
    fn prepared(&self, pfn: Pfn, order: Order) -> Pfn {
        A::work(Op::PagePrep, 1);
        self.checked(PageCheck::Alloc, order.pages() as u32);
        A::trace(Trace::Page(PageEvent::Alloc { pfn, order }));
        pfn
    }

    /// Allocates a block of 2^`order` frames for `wanted`, from the nearest memory first. The
    /// content is undefined. The holder of the block owns the record of its head.
    ///
    /// As in Linux, a block of several pages may be refused although it is free: while another CPU
    /// drains all caches, or has the block in hand for a moment. A caller that needs it repeats the
    /// call. With `blockmap` and [`Gfp::DRAIN`] a single page above the watermark is found.
    #[inline]
    pub fn alloc_pages(
        &self,
        order: Order,
        wanted: MigrateType,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        self.alloc_pages_node(A::node_of(A::cpu()), order, wanted, gfp)
    }

    /// As [`FrameAllocator::alloc_pages`], from the memory nearest to `node` first.
    #[inline]
    pub fn alloc_pages_node(
        &self,
        node: NodeId,
        order: Order,
        wanted: MigrateType,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        let _span = Span::<A>::enter(Func::AllocPages);
        A::work(Op::AllocEntry, 1);
        if A::fail_alloc() {
            return Err(AllocError::Injected);
        }
        let request = Request { order, wanted, reserve: reserve(order, gfp), gfp, node };
        match self.config.records {
            Records::None => self.alloc_cached(request, |_| {}),
            Records::Orders => self.alloc_cached(request, |pfn| {
                FrameTable::touch::<A>(pfn, Access::Write);
                self.frames.set_held(pfn, order);
            }),
            Records::Kept => self.alloc_recorded(request),
        }
    }

    /// Allocates from this CPU's cache if that has such a block, which `note` then records.
    #[inline(always)]
    fn alloc_cached(&self, request: Request, note: impl FnOnce(Pfn)) -> Result<Pfn, AllocError> {
        let Some((_, pfn)) = self.take_cached(request) else {
            return self.alloc_uncached(request);
        };
        note(pfn);
        Ok(self.prepared(pfn, request.order))
    }

    /// Allocates with records of frames. Not inlined, so that the other paths are short.
    #[inline(never)]
    fn alloc_recorded(&self, request: Request) -> Result<Pfn, AllocError> {
        match self.take_cached(request) {
            Some((zone, pfn)) => {
                self.note_held(zone, pfn, request);
                Ok(self.prepared(pfn, request.order))
            }
            None => self.alloc_uncached(request),
        }
    }

    #[inline(never)]
    fn alloc_uncached(&self, request: Request) -> Result<Pfn, AllocError> {
        let found = self.get_page_from_freelist(request, Mark::Low);
        let pfn = found.or_else(|| self.alloc_slowpath(request)).ok_or(AllocError::NoMemory)?;
        Ok(self.prepared(pfn, request.order))
    }

    /// Allocates where memory is low: wakes reclaim, tries again with the min watermark, and drains
    /// page caches if the caller asks for it.
    #[cold]
    fn alloc_slowpath(&self, request: Request) -> Option<Pfn> {
        if request.gfp.contains(Gfp::KSWAPD) {
            self.wakes.fetch_add(1, Relaxed);
            self.wake_reclaimers(request);
        }
        let found = self.get_page_from_freelist(request, Mark::Min);
        if found.is_some() || !request.gfp.contains(Gfp::DRAIN) {
            return found;
        }
        let waited_for = self.zones.iter().any(|zone| zone.map().is_some());
        if waited_for && request.order == Order::ZERO {
            return self.alloc_drained(request);
        }
        // Preemption off: see `alloc_drained`. The `Acquire` pairs with the `Release` that ends the
        // last drain: its pages are visible.
        let _pinned = waited_for.then(PreemptGuard::<A>::new);
        if self.draining.swap(1, Acquire) == 0 {
            self.drain_all();
            self.draining.store(0, Release);
        }
        self.get_page_from_freelist(request, Mark::Min)
    }

    /// Drains all CPUs and tries again, with the policy `blockmap`.
    /// Drains again even if another task is draining, because that task may take the drained pages
    /// itself. Fails only if no page is free: waits for CPUs that are inside a block with free
    /// pages. The reserve of whole pageblocks comes last, after as many attempts as there are CPUs:
    /// each may be inside another block, and has time to leave it.
    fn alloc_drained(&self, request: Request) -> Option<Pfn> {
        let mut waited = false;
        // Preemption stays off while this task drains: another task of its CPU could spin here for
        // the drain to end, and would not let this task continue.
        let _pinned = loop {
            let pinned = PreemptGuard::<A>::new();
            // Pairs with the `Release` below: the pages of the last drain are visible.
            if self.draining.swap(1, Acquire) == 0 {
                break pinned;
            }
            drop(pinned);
            waited = true;
            A::relax();
        };
        let mut found = None;
        if waited {
            found = self.get_page_from_freelist(request, Mark::Min);
        }
        for turn in 0..self.cpus {
            if found.is_some() {
                break;
            }
            if turn == 0 {
                self.drain_all();
            } else {
                A::relax();
            }
            found = self.get_page_from_freelist(request, Mark::Min);
        }
        let request = Request { reserve: ReserveAccess::Full, ..request };
        while found.is_none() && self.is_exactly_available(request) {
            self.drain_all();
            found = self.get_page_from_freelist(request, Mark::Min);
            if found.is_none() && !self.may_be_busy(request) {
                break;
            }
            A::relax();
        }
        // Pairs with the `Acquire` exchanges above and in `alloc_slowpath`: the next task that
        // drains sees the pages of this drain.
        self.draining.store(0, Release);
        found
    }

    /// Whether a zone has more free pages than its min watermark, with the bytes of all CPUs
    /// included. Without them an inexact total could suggest free pages, and a whole pageblock of
    /// the reserve would be broken up for them.
    fn is_exactly_available(&self, request: Request) -> bool {
        self.zonelist(request).iter().map(|&zone| self.zone(zone)).any(|zone| {
            let floor = lowered(zone.marks.min, request.gfp);
            let kept = zone.reserve[request.gfp.best_kind() as usize];
            let free = self.stats.zone_sum(zone.id, ZoneItem::FreePages);
            let memalloc = request.gfp.contains(Gfp::MEMALLOC);
            request.allows(zone) && (memalloc || free > i64::from(floor) + i64::from(kept))
        })
    }

    /// Whether a zone with enough memory for the request has a block that could not be searched.
    fn may_be_busy(&self, request: Request) -> bool {
        self.zonelist(request).iter().map(|&zone| self.zone(zone)).any(|zone| {
            let allowed = request.allows(zone);
            let enough = || {
                let floor = lowered(zone.marks.min, request.gfp);
                request.gfp.contains(Gfp::MEMALLOC) || self.watermark_ok(zone, floor, request)
            };
            allowed && enough() && zone.map().is_some_and(|map| map.is_busy_with(request.order))
        })
    }

    /// Wakes reclaim on every node whose zones the request may use.
    fn wake_reclaimers(&self, request: Request) {
        let mut before = None;
        for &zone in self.zonelist(request) {
            let node = self.zone(zone).node;
            let other = request.gfp.contains(Gfp::THIS_NODE) && node != request.node;
            if !other && before != Some(node) {
                self.wake_reclaimer(node);
                before = Some(node);
            }
        }
    }

    /// The zones that the request accepts, nearest first. Nodes without memory have no list of
    /// their own and use the first.
    #[inline]
    pub(super) fn zonelist(&self, request: Request) -> &[ZoneId] {
        let lists = self.zonelists.get(request.node.index()).unwrap_or(&self.zonelists[0]);
        &lists[request.gfp.best_kind() as usize]
    }

    /// The first zone of the request's list.
    #[inline]
    pub(super) fn nearest(&self, request: Request) -> Option<&Zone<A>> {
        let nearest = self.nearest.get(request.node.index()).unwrap_or(&self.nearest[0]);
        self.zones.get(nearest[request.gfp.best_kind() as usize]?.index())
    }

    #[inline]
    fn get_page_from_freelist(&self, request: Request, mark: Mark) -> Option<Pfn> {
        for &zone in self.zonelist(request) {
            let zone = self.zone(zone);
            if !request.allows(zone) {
                continue;
            }
            // The high watermark is checked here, so that frees, which are hotter, need not.
            let below_high = zone.pressure().below_high;
            let high_is_fine = !below_high && self.watermark_ok(zone, zone.marks.high, request);
            if !high_is_fine {
                if !below_high {
                    zone.put(BELOW_HIGH, true);
                }
                let floor = match mark {
                    Mark::Low => zone.marks.low,
                    Mark::Min => lowered(zone.marks.min, request.gfp),
                };
                let memalloc = mark == Mark::Min && request.gfp.contains(Gfp::MEMALLOC);
                if !memalloc && !self.watermark_ok(zone, floor, request) {
                    continue;
                }
            }
            let found = self.rmqueue(zone, request);
            let found = found.or_else(|| self.rmqueue_rather_here(zone, request));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// With the policy `blockmap`: takes a single page from a whole pageblock of this zone, before
    /// another zone is tried. Otherwise the pageblock would stay whole until all CPUs are drained.
    #[cold]
    fn rmqueue_rather_here(&self, zone: &Zone<A>, request: Request) -> Option<Pfn> {
        let kept = zone.map().is_some() && request.reserve == ReserveAccess::None;
        let zones = self.zonelist(request);
        let others = zones.last().is_some_and(|&last| last != zone.id());
        if !kept || !others || request.order != Order::ZERO {
            return None;
        }
        self.rmqueue(zone, Request { reserve: ReserveAccess::Partial, ..request })
    }

    /// Whether the zone would have more than `mark` free pages after the allocation, in addition to
    /// its reserve for better requests. Whether it has a large enough block is known only under its
    /// lock.
    #[inline]
    fn watermark_ok(&self, zone: &Zone<A>, mark: u32, request: Request) -> bool {
        let reserve = zone.reserve[request.gfp.best_kind() as usize];
        let free = self.stats.zone(zone.id, ZoneItem::FreePages);
        let usable = free.saturating_sub(request.order.pages() as u64 - 1);
        let kept = u64::from(mark) + u64::from(reserve);
        usable > kept
    }

    /// Whether an allocation that may go down to the min watermark would find a page now, by the
    /// counters.
    pub fn is_available(&self, node: NodeId, order: Order, gfp: Gfp) -> bool {
        let (wanted, reserve) = (MigrateType::Movable, ReserveAccess::None);
        let request = Request { order, wanted, reserve, gfp, node };
        self.zonelist(request).iter().any(|&zone| {
            let zone = self.zone(zone);
            self.watermark_ok(zone, lowered(zone.marks.min, gfp), request)
        })
    }

    /// Whether the zone has more free pages than its high watermark.
    pub(super) fn above_high(&self, zone: &Zone<A>) -> bool {
        self.stats.zone(zone.id, ZoneItem::FreePages) > u64::from(zone.marks.high)
    }

    #[inline]
    fn rmqueue(&self, zone: &Zone<A>, request: Request) -> Option<Pfn> {
        match &zone.free {
            ZoneFree::Lists(lists) => self.rmqueue_listed(zone, lists, request),
            ZoneFree::Blocks(blocks) => self.rmqueue_blocks(zone, &blocks.map, request),
            ZoneFree::Guest(guest) => self.rmqueue_guest(zone, guest, request),
        }
    }

    /// Takes a block from page caches and a buddy allocator. Not inlined, so that the path without
    /// lists is short.
    #[inline(never)]
    fn rmqueue_listed(
        &self,
        zone: &Zone<A>,
        lists: &FreeLists<A>,
        request: Request,
    ) -> Option<Pfn> {
        if let Some(list) = self.pcp_list(lists, request.order, request.wanted) {
            let pfn = match lists.frees_to {
                FreesTo::FreeingCpu => self.rmqueue_pcplist(zone, lists, request, list),
                FreesTo::Owner => self.rmqueue_owned(zone, lists, request),
            };
            if pfn.is_some() {
                return pfn;
            }
        }
        self.rmqueue_buddy(zone, lists, request)
    }

    /// The list of page caches for a block; `None` if they have no such blocks.
    #[inline]
    pub(super) fn pcp_list(
        &self,
        lists: &FreeLists<A>,
        order: Order,
        list_type: MigrateType,
    ) -> Option<PcpList> {
        let single =
            self.config.orders == CachedOrders::Single && lists.frees_to == FreesTo::FreeingCpu;
        let fits = |most| order.pages() <= most as usize;
        let cached = (order == Order::ZERO || !single) && self.config.cached_pages.is_none_or(fits);
        if cached { PcpList::of(order, list_type) } else { None }
    }

    #[inline]
    fn rmqueue_pcplist(
        &self,
        zone: &Zone<A>,
        lists: &FreeLists<A>,
        request: Request,
        list: PcpList,
    ) -> Option<Pfn> {
        let pinned = PreemptGuard::<A>::new();
        let cpu = pinned.cpu();
        let mut pcp = lists.pcps.of(cpu).try_lock_with(pinned)?;
        let old = pcp.count();
        pcp.note_alloc();
        if !pcp.has_block(list) {
            self.rmqueue_bulk((zone, lists), &mut pcp, list, request);
        }
        let pfn = pcp.take::<A>(&self.frames, list);
        self.trace_count(zone, cpu, &pcp, old);
        pfn
    }

    fn rmqueue_bulk(
        &self,
        (zone, lists): (&Zone<A>, &FreeLists<A>),
        pcp: &mut Pcp,
        list: PcpList,
        request: Request,
    ) {
        let blocks = pcp.refill_size(request.order, zone.pressure().below_high);
        let _span = Span::<A>::enter(Func::RmqueueBulk);
        let mut buddy = lists.buddy.lock_irqsave();
        let moved = pcp.refill(&self.frames, &mut *buddy, list, request.wanted, blocks);
        self.checked(PageCheck::Refill, moved);
        self.stats.mod_zone_singly(&buddy, zone.id, ZoneItem::FreePages, -i64::from(moved));
        drop(buddy);
        A::trace(Trace::Pcp(PcpEvent::Refill { zone: zone.id.index() as u16, pages: moved }));
    }

    /// Takes a block from the buddy allocator directly.
    fn rmqueue_buddy(&self, zone: &Zone<A>, lists: &FreeLists<A>, request: Request) -> Option<Pfn> {
        let _span = Span::<A>::enter(Func::Rmqueue);
        let (order, mut mode) = (request.order, RmqueueMode::Own);
        let mut buddy = lists.buddy.lock_irqsave();
        let pfn = buddy.take(&self.frames, order, request.wanted, &mut mode, FrameState::Held)?;
        self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, -(order.pages() as i64));
        drop(buddy);
        self.checked(PageCheck::Refill, order.pages() as u32);
        Some(pfn)
    }
}

/// The access of a request to the reserve of whole pageblocks, at first. Requests that may go below
/// the min watermark have full access, and so have single pages that cannot wait. Other single
/// pages get it when nothing else is left.
fn reserve(order: Order, gfp: Gfp) -> ReserveAccess {
    let urgent = gfp.intersects(Gfp::HIGH | Gfp::MEMALLOC | Gfp::VICTIM);
    let at_once = order == Order::ZERO && !gfp.contains(Gfp::DIRECT);
    if urgent || at_once { ReserveAccess::Full } else { ReserveAccess::None }
}

/// The min watermark for urgent allocations and for victims.
fn lowered(min: u32, gfp: Gfp) -> u32 {
    let urgent = lowered_if_urgent(min, gfp);
    if gfp.contains(Gfp::VICTIM) { urgent - urgent / 2 } else { urgent }
}

fn lowered_if_urgent(min: u32, gfp: Gfp) -> u32 {
    if !gfp.contains(Gfp::HIGH) {
        return min;
    }
    let half = min - min / 2;
    if gfp.contains(Gfp::NON_BLOCK) { half - half / 4 } else { half }
}
