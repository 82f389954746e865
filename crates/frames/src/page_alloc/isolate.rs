//! Pageblocks that are taken out of use: isolated, so that they empty; offline, once they have.

use super::zone::{ISOLATING, ZoneFree};
use super::{FrameAllocator, Zone};
use crate::vmstat::ZoneItem;
use crate::zone::IsolateError;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, Cpu, CpuId, Order, Pfn, planted};

impl<A: Cpu> FrameAllocator<A> {
    /// Isolates the pageblock of `pfn`: none of its pages is handed out any more, also not those
    /// that come back from now on. Its free pages do not count as free, and no CPU owns it. Page
    /// caches of the zone are drained, so that none has a page of it. Where CPUs cannot interrupt
    /// one another ([`Cpu::request_drain`]) with the policy `blockmap` each has to drain its own
    /// afterwards. Waits for spin locks, so not for interrupts.
    pub fn isolate_pageblock(&self, pfn: Pfn) -> Result<(), IsolateError> {
        self.isolate_pageblocks(&[pfn])
    }
    /// Isolates several pageblocks as [`FrameAllocator::isolate_pageblock`] does one, and drains
    /// page caches once for all of them. If one cannot be isolated none is.
    pub fn isolate_pageblocks(&self, pfns: &[Pfn]) -> Result<(), IsolateError> {
        for (nth, &pfn) in pfns.iter().enumerate() {
            if let Err(why) = self.mark_isolated(pfn) {
                pfns[..nth].iter().try_for_each(|&pfn| self.unisolate_pageblock(pfn))?;
                return Err(why);
            }
        }
        let holds = |zone: &&Zone<A>| pfns.iter().any(|&pfn| self.is_in(zone, pfn));
        self.zones.iter().filter(holds).for_each(|zone| self.drain_isolated(zone));
        Ok(())
    }
    fn is_in(&self, zone: &Zone<A>, pfn: Pfn) -> bool {
        self.zone_of(pfn).is_some_and(|of| of.id == zone.id)
    }
    fn mark_isolated(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let (zone, block) = self.whole_block(pfn)?;
        match &zone.free {
            ZoneFree::Lists(lists) => {
                let mut buddy = lists.buddy.lock_irqsave();
                let pages = buddy.isolate(&self.frames, block).ok_or(IsolateError::NotNow)?;
                zone.put(ISOLATING, true);
                self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, -(pages as i64));
                Ok(())
            }
            ZoneFree::Blocks(blocks) => self.isolate_mapped(zone, &blocks.map, block),
        }
    }
    /// Drains the page caches of a zone. A CPU that puts a page into a page cache asks under that
    /// cache's lock whether something is isolated: after this no page of the block gets into one.
    fn drain_isolated(&self, zone: &Zone<A>) {
        for cpu in (0..A::cpus_possible()).map(CpuId::new) {
            if !planted!(IsolateCachesKept) {
                self.drain_pages_zone(zone.id, cpu);
            }
        }
        if let Some(map) = zone.map() {
            map.wait_for_dying();
        }
    }
    /// Undoes [`FrameAllocator::isolate_pageblock`].
    pub fn unisolate_pageblock(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let (zone, block) = self.whole_block(pfn)?;
        match &zone.free {
            ZoneFree::Lists(lists) => {
                let mut buddy = lists.buddy.lock_irqsave();
                let pages = buddy.unisolate(&self.frames, block).ok_or(IsolateError::NotNow)?;
                zone.put(ISOLATING, buddy.isolated_blocks() > 0);
                self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, pages as i64);
                Ok(())
            }
            ZoneFree::Blocks(blocks) => self.unisolate_mapped(zone, &blocks.map, block),
        }
    }
    /// Takes the pageblock of `pfn` away for good, if all its pages are free: isolates it first if
    /// it is not, and if some pages are in use leaves it as it was. The zone manages fewer pages
    /// then and the limits of its page caches follow; its watermarks stay.
    pub fn offline_pageblock(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let (zone, block) = self.whole_block(pfn)?;
        let mine = match self.isolate_pageblock(pfn) {
            Err(IsolateError::NotNow) => false,
            done => done.map(|()| true)?,
        };
        let done = self.try_offline(zone, block);
        match done {
            Ok(()) => self.refresh_limits(),
            Err(_) if mine => self.unisolate_pageblock(pfn)?,
            Err(_) => {}
        }
        done
    }
    fn try_offline(&self, zone: &Zone<A>, block: Pfn) -> Result<(), IsolateError> {
        let pages = Order::PAGEBLOCK.pages() as u32;
        match &zone.free {
            ZoneFree::Lists(lists) => {
                let mut buddy = lists.buddy.lock_irqsave();
                if !buddy.is_isolated(block) {
                    return Err(IsolateError::NotNow);
                }
                buddy.take_offline(&self.frames, block).map_err(IsolateError::Busy)?;
                zone.put(ISOLATING, buddy.isolated_blocks() > 0);
                zone.offline.fetch_add(pages, Relaxed);
            }
            ZoneFree::Blocks(blocks) => {
                blocks.map.take_offline(block)?;
                zone.offline.fetch_add(pages, Relaxed);
            }
        }
        Ok(())
    }
    /// Brings an offline pageblock back: all of it free and movable.
    pub fn online_pageblock(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let (zone, block) = self.whole_block(pfn)?;
        let pages = Order::PAGEBLOCK.pages();
        match &zone.free {
            ZoneFree::Lists(lists) => {
                let mut buddy = lists.buddy.lock_irqsave();
                if !buddy.bring_online(&self.frames, block) {
                    return Err(IsolateError::NotNow);
                }
                zone.offline.fetch_sub(pages as u32, Relaxed);
                self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, pages as i64);
            }
            ZoneFree::Blocks(blocks) => {
                blocks.map.bring_online(block)?;
                zone.offline.fetch_sub(pages as u32, Relaxed);
                self.unisolate_mapped(zone, &blocks.map, block)?;
            }
        }
        self.refresh_limits();
        Ok(())
    }
    /// The pageblock of `pfn` and its zone, which must have all of it.
    fn whole_block(&self, pfn: Pfn) -> Result<(&Zone<A>, Pfn), IsolateError> {
        let zone = self.zone_of(pfn).ok_or(IsolateError::NoBlock)?;
        let block = pfn.align_down(Order::PAGEBLOCK);
        let end = block.index() + Order::PAGEBLOCK.pages();
        let whole = zone.start <= block && end <= zone.start.index() + zone.pages as usize;
        if whole { Ok((zone, block)) } else { Err(IsolateError::NoBlock) }
    }
}
