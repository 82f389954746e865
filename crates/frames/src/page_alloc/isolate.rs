//! Isolation of pageblocks, so that they become free, and taking free ones offline.

use super::zone::{ISOLATING, ZoneFree};
use super::{FrameAllocator, Zone};
use crate::place::{Place, Table};
use crate::vmstat::ZoneItem;
use crate::zone::{Geometry, IsolateError};
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, Cpu, CpuId, Pfn};

/// A bit for each pageblock of zones with lists: set while the pageblock is isolated. A free reads
/// it without the zone lock, as Linux's `free_unref_page` reads the migrate type of a pageblock.
/// The buddy allocator uses its own record under the lock.
///
/// Written under the zone lock, before the page caches of the zone are drained. A free reads it
/// under the lock of a page cache. Either that lock is released before the drain takes it, and the
/// drain frees the page; or it is taken after the drain, and the free sees the bit. So `Relaxed` is
/// enough.
pub(super) struct Isolated<A: Cpu> {
    bits: Table<A::AtomicU32>,
    geometry: Geometry,
}

impl<A: Cpu> Isolated<A> {
    /// Creates bits for the pageblocks of `frames` frames, none isolated.
    pub(super) fn none(place: &mut Place, frames: usize, geometry: Geometry) -> Self {
        let blocks = frames.div_ceil(geometry.block_pages());
        let words = blocks.div_ceil(u32::BITS as usize);
        Self { bits: place.table(words, |_| A::AtomicU32::new(0)), geometry }
    }
    fn place(&self, pfn: Pfn) -> (usize, u32) {
        let block = self.geometry.block_of(pfn);
        (block / u32::BITS as usize, 1 << (block % u32::BITS as usize))
    }
    /// Bytes of the bits.
    pub(super) fn bytes(&self) -> u64 {
        (self.bits.len() * size_of::<u32>()) as u64
    }
    /// Whether the pageblock of `pfn` is isolated.
    pub(super) fn has(&self, pfn: Pfn) -> bool {
        let (word, bit) = self.place(pfn);
        self.bits[word].load(Relaxed) & bit != 0
    }
    pub(super) fn set(&self, block: Pfn, on: bool) {
        let (word, bit) = self.place(block);
        let bits = &self.bits[word];
        if on {
            bits.fetch_or(bit, Relaxed);
        } else {
            bits.fetch_and(!bit, Relaxed);
        }
    }
}

impl<A: Cpu> FrameAllocator<A> {
    /// Isolates the pageblock of `pfn`: none of its pages is allocated any more, including pages
    /// that are freed later. Its free pages do not count as free, and no CPU owns it. The page
    /// caches of the zone are drained, so that none has a page of it. With the policy `blockmap`,
    /// where CPUs cannot interrupt one another ([`Cpu::request_drain`]), each CPU must drain its
    /// own cache afterwards. Waits for spin locks, so it must not be called in interrupts.
    pub fn isolate_pageblock(&self, pfn: Pfn) -> Result<(), IsolateError> {
        self.isolate_pageblocks(&[pfn])
    }
    /// Isolates several pageblocks as [`FrameAllocator::isolate_pageblock`] does one, and drains
    /// page caches once for all of them. If one cannot be isolated none is.
    pub fn isolate_pageblocks(&self, pfns: &[Pfn]) -> Result<(), IsolateError> {
        for (nth, &pfn) in pfns.iter().enumerate() {
            if let Err(why) = self.mark_isolated(pfn) {
                // A pageblock that is no longer isolated was unisolated by another caller.
                pfns[..nth].iter().for_each(|&pfn| _ = self.unisolate_pageblock(pfn));
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
                self.isolated.set(block, true);
                zone.put(ISOLATING, true);
                self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, -(pages as i64));
                Ok(())
            }
            ZoneFree::Blocks(blocks) => self.isolate_mapped(zone, &blocks.map, block),
            // A guest has no such call.
            ZoneFree::Guest(_) => Err(IsolateError::NotNow),
        }
    }
    /// Drains the page caches of a zone. A CPU that frees into a page cache checks under that
    /// cache's lock whether the pageblock is isolated ([`Isolated`]): after this call no page of
    /// the block gets into a cache.
    fn drain_isolated(&self, zone: &Zone<A>) {
        for cpu in (0..self.cpus).map(CpuId::new) {
            self.drain_pages_zone(zone.id, cpu);
        }
        if let Some(map) = zone.map() {
            if A::SHARED_CACHES {
                self.drain_shared_for_sure(zone, map);
            }
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
                self.isolated.set(block, false);
                zone.put(ISOLATING, buddy.isolated_blocks() > 0);
                self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, pages as i64);
                Ok(())
            }
            ZoneFree::Blocks(blocks) => self.unisolate_mapped(zone, &blocks.map, block),
            ZoneFree::Guest(_) => Err(IsolateError::NotNow),
        }
    }
    /// Takes the pageblock of `pfn` offline, if all its pages are free. Isolates it first if it is
    /// not isolated, and undoes that if some pages are in use. The zone then manages fewer pages,
    /// and the limits of its page caches are adapted; its watermarks do not change.
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
        let pages = self.config.geometry().pageblock.pages() as u32;
        match &zone.free {
            ZoneFree::Lists(lists) => {
                let mut buddy = lists.buddy.lock_irqsave();
                if !buddy.is_isolated(block) {
                    return Err(IsolateError::NotNow);
                }
                buddy.take_offline(&self.frames, block).map_err(IsolateError::Busy)?;
                self.isolated.set(block, false);
                zone.put(ISOLATING, buddy.isolated_blocks() > 0);
                zone.offline.fetch_add(pages, Relaxed);
            }
            ZoneFree::Guest(_) => return Err(IsolateError::NotNow),
            ZoneFree::Blocks(blocks) => {
                blocks.map.take_offline(block)?;
                zone.offline.fetch_add(pages, Relaxed);
            }
        }
        Ok(())
    }
    /// Brings an offline pageblock online: all of it is then free and movable.
    pub fn online_pageblock(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let (zone, block) = self.whole_block(pfn)?;
        let pages = self.config.geometry().pageblock.pages();
        match &zone.free {
            ZoneFree::Lists(lists) => {
                let mut buddy = lists.buddy.lock_irqsave();
                if !buddy.bring_online(&self.frames, block) {
                    return Err(IsolateError::NotNow);
                }
                zone.offline.fetch_sub(pages as u32, Relaxed);
                self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, pages as i64);
            }
            ZoneFree::Guest(_) => return Err(IsolateError::NotNow),
            ZoneFree::Blocks(blocks) => {
                blocks.map.bring_online(block)?;
                zone.offline.fetch_sub(pages as u32, Relaxed);
                self.unisolate_mapped(zone, &blocks.map, block)?;
            }
        }
        self.refresh_limits();
        Ok(())
    }
    /// The pageblock of `pfn` and its zone; an error if no zone has all of it.
    fn whole_block(&self, pfn: Pfn) -> Result<(&Zone<A>, Pfn), IsolateError> {
        let zone = self.zone_of(pfn).ok_or(IsolateError::NoBlock)?;
        let pageblock = self.config.geometry().pageblock;
        let block = pfn.align_down(pageblock);
        let end = block.index() + pageblock.pages();
        let span = zone.extent.span();
        let whole = span.start <= block.index() && end <= span.end;
        if whole { Ok((zone, block)) } else { Err(IsolateError::NoBlock) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::MigrateType;
    use crate::page_alloc::{AllocConfig, Gfp, MemoryMap, PcpPolicy};
    use mmscale_arch::Order;
    use mmscale_stepped::{self as stepped, Stepped};

    /// The zone lock is held here: a free that takes it waits for ever, which the machine refuses.
    #[test]
    fn a_free_next_to_an_isolated_pageblock_takes_no_zone_lock() {
        for caches in [PcpPolicy::Stock, PcpPolicy::Posted] {
            stepped::boot(2, 1000);
            let config = AllocConfig { caches, ..AllocConfig::default() };
            let frames = FrameAllocator::<Stepped>::new(&MemoryMap::single(1 << 18), config);
            let frames = frames.unwrap();
            let take = || frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
            let page = take().unwrap();
            let other = Pfn::new(if page.pageblock() == 9 { 8 } else { 9 } * 512);
            frames.isolate_pageblock(other).unwrap();
            let zone = frames.listed(frames.zones[0].id()).buddy.lock_irqsave();
            frames.free_pages(page, Order::ZERO);
            drop(zone);
            assert_eq!(frames.verify().unwrap().cached, 1, "{caches:?}");
            stepped::assert_quiet();
        }
    }
}
