//! Allocation and frees where CPUs own pageblocks (`PcpPolicy::Posted`).
//!
//! A page is freed to the page cache of the CPU that owns its pageblock, on any CPU. The freeing
//! CPU reads the owner without a lock, tries the lock of the owner's page cache, and reads the
//! owner again. A CPU that goes offline loses its pageblocks before its page cache is drained. So
//! if the second read still finds it the owner, the drain comes later and frees this page too.

use super::claim::Request;
use super::zone::{BELOW_HIGH, FreeLists};
use super::{FrameAllocator, PageCheck, Zone};
use crate::frame::FrameWord;
use crate::pcp::{Home, Pcp, PcpList, RefillPhase};
use crate::vmstat::ZoneItem;
use mmscale_arch::sync::{NoPreempt, PreemptGuard, SpinGuard};
use mmscale_arch::{Cpu, CpuId, Func, PcpEvent, Pfn, Span, Trace};

/// Pageblocks that one hold of the zone lock searches for those of an offline CPU.
const DISOWN_STEP: usize = 1024;

/// A page cache, locked.
type LockedPcp<'a, A> = SpinGuard<'a, A, Pcp, PreemptGuard<A>>;

impl<A: Cpu> FrameAllocator<A> {
    /// Takes a block from this CPU's page cache; refills it if it has no large enough block.
    pub(super) fn rmqueue_owned(
        &self,
        zone: &Zone<A>,
        lists: &FreeLists<A>,
        request: Request,
    ) -> Option<Pfn> {
        let pinned = PreemptGuard::<A>::new();
        let cpu = pinned.cpu();
        let mut pcp = lists.pcps.of(cpu).try_lock_with(pinned)?;
        let old = pcp.count();
        pcp.note_alloc();
        let (order, wanted) = (request.order, request.wanted);
        let pfn = pcp.take_owned::<A>(&self.frames, order, wanted).or_else(|| {
            self.refill_phases(zone, lists, &mut pcp, request);
            pcp.take_owned::<A>(&self.frames, order, wanted)
        });
        self.trace_count(zone, cpu, &pcp, old);
        pfn
    }

    fn refill_phases(&self, zone: &Zone<A>, lists: &FreeLists<A>, pcp: &mut Pcp, request: Request) {
        let (order, wanted) = (request.order, request.wanted);
        let blocks = pcp.refill_size(order, zone.pressure().below_high);
        let _span = Span::<A>::enter(Func::RmqueueBulk);
        let mut buddy = lists.buddy.lock_irqsave();
        let moved = pcp.refill_owned(&self.frames, &mut *buddy, order, wanted, blocks);
        self.checked(PageCheck::Refill, moved.total());
        let change = -i64::from(moved.total());
        self.stats.mod_zone_singly(&buddy, zone.id, ZoneItem::FreePages, change);
        drop(buddy);
        let number = zone.id.index() as u16;
        for phase in RefillPhase::ALL {
            let pages = moved.pages[phase as usize];
            if pages > 0 {
                A::trace(Trace::Pcp(PcpEvent::Phase { zone: number, phase: phase as u8, pages }));
            }
        }
        A::trace(Trace::Pcp(PcpEvent::Refill { zone: number, pages: moved.total() }));
    }

    /// Frees the block into the page cache of the CPU that owns its pageblock, or of this CPU if it
    /// has no owner, and drains what exceeds that cache's limit. Returns `false` if that cache's
    /// lock was taken, or if the pageblock is isolated.
    pub(super) fn free_to_owner(
        &self,
        (zone, lists): (&Zone<A>, &FreeLists<A>),
        pfn: Pfn,
        word: FrameWord,
    ) -> bool {
        let pages = word.order().pages() as u32;
        let (cpu, home, mut pcp) = match lock_for(lists, pfn) {
            Ok(found) => found,
            Err(cpu) => {
                A::trace(Trace::Pcp(PcpEvent::Busy { cpu, pages }));
                return false;
            }
        };
        let (pressure, isolating) = zone.condition();
        if isolating && self.isolated.has(pfn) {
            return false;
        }
        if cpu != pcp.cpu() {
            A::trace(Trace::Pcp(PcpEvent::FreeRemote { owner: cpu, pages }));
        }
        let old = pcp.count();
        pcp.put_owned::<A>(&self.frames, pfn, word, home);
        let mut left = pcp.note_free(word.order(), pressure);
        // One hold of the zone lock after the other, while no other CPU takes the cache's lock.
        let mut before = old;
        loop {
            let step = self.hold_pages(&pcp, left);
            let moved = match step {
                0 => 0,
                step => self.free_pcppages_bulk((zone, lists), &mut pcp, step, PcpList::FIRST),
            };
            self.trace_count(zone, cpu, &pcp, before);
            left = left.saturating_sub(moved);
            drop(pcp);
            if left == 0 {
                break;
            }
            let Some(again) = lists.pcps.of(cpu).try_lock() else { break };
            pcp = again;
            before = pcp.count();
            if before == 0 {
                break;
            }
        }
        if pressure.below_high && self.above_high(zone) {
            zone.put(BELOW_HIGH, false);
        }
        true
    }

    /// Ends the ownership of all pageblocks of `cpu`.
    pub(super) fn disown(&self, cpu: CpuId) {
        let lists = self.zones.iter().filter_map(Zone::lists);
        for lists in lists.filter(|lists| lists.owners.exist()) {
            let mut from = Some(0);
            while let Some(at) = from {
                from = lists.buddy.lock_irqsave().disown_cpu(cpu, at, DISOWN_STEP);
            }
        }
    }
}

/// Locks the page cache into which a block at `pfn` is freed. The error is the CPU of that cache,
/// if its lock is taken.
fn lock_for<A: Cpu>(
    lists: &FreeLists<A>,
    pfn: Pfn,
) -> Result<(CpuId, Home, LockedPcp<'_, A>), CpuId> {
    let mut owner = lists.owners.get(pfn);
    loop {
        let pinned = PreemptGuard::<A>::new();
        let cpu = owner.unwrap_or(pinned.cpu());
        let pcp = lists.pcps.of(cpu).try_lock_with(pinned).ok_or(cpu)?;
        // A pageblock without owner gets none while a page of it is not free.
        if owner.is_none() || lists.owners.get(pfn) == owner {
            let home = if owner.is_some() { Home::Owner } else { Home::Other };
            return Ok((cpu, home, pcp));
        }
        owner = None;
    }
}
