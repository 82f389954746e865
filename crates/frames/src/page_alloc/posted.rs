//! Both ways where CPUs own pageblocks (`PcpPolicy::Posted`).
//!
//! A page goes back to the page cache of the CPU that owns its pageblock, whoever frees it. The
//! owner is read without a lock, then the owner's page cache is locked if it is free, and then the
//! owner is read again: a CPU that has gone away lost its pageblocks before its page cache was
//! emptied, so nobody who still finds it the owner then comes too late for that.

use super::claim::Request;
use super::zone::{BELOW_HIGH, FreeLists};
use super::{FrameAllocator, Zone};
use crate::frame::FrameWord;
use crate::pcp::{Home, Pcp, PcpList, RefillPhase};
use crate::vmstat::ZoneItem;
use mmscale_arch::sync::{NoPreempt, PreemptGuard, SpinGuard};
use mmscale_arch::{Cpu, CpuId, Func, PcpEvent, Pfn, Span, Trace, planted};

/// Pageblocks that one hold of the zone lock looks at for those of a CPU that is gone.
const DISOWN_STEP: usize = 1024;

/// A page cache, locked.
type LockedPcp<'a, A> = SpinGuard<'a, A, Pcp, PreemptGuard<A>>;

impl<A: Cpu> FrameAllocator<A> {
    /// Takes a block from this CPU's page cache, which is refilled if it has none large enough.
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

    /// Puts the block into the page cache of the CPU that owns its pageblock, or of this one if
    /// none does, and gives back what is too many there. `false`: that cache's lock was taken, or
    /// the pageblock is isolated.
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
        if isolating && !planted!(PostedIsolationIgnored) && self.isolated.has(pfn) {
            return false;
        }
        if cpu != pcp.cpu() {
            A::trace(Trace::Pcp(PcpEvent::FreeRemote { owner: cpu, pages }));
        }
        let old = pcp.count();
        pcp.put_owned::<A>(&self.frames, pfn, word, home);
        let mut left = pcp.note_free(word.order(), pressure);
        // Holds of the zone lock, one after the other, as long as nobody else wants the cache.
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

/// The page cache that a block at `pfn` belongs into, locked; or whose it is, if it is taken.
fn lock_for<A: Cpu>(
    lists: &FreeLists<A>,
    pfn: Pfn,
) -> Result<(CpuId, Home, LockedPcp<'_, A>), CpuId> {
    let mut owner = lists.owners.get(pfn);
    loop {
        let pinned = PreemptGuard::<A>::new();
        let cpu = owner.unwrap_or(pinned.cpu());
        let pcp = lists.pcps.of(cpu).try_lock_with(pinned).ok_or(cpu)?;
        // A block that has no owner gets none while a page of it is not free.
        let is_same = || planted!(PostedOwnerReadOnce) || lists.owners.get(pfn) == owner;
        if owner.is_none() || is_same() {
            let home = if owner.is_some() { Home::Owner } else { Home::Other };
            return Ok((cpu, home, pcp));
        }
        owner = None;
    }
}
