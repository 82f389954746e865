//! Questions about one frame, about one pageblock, and about the number of free pages.
//!
//! Each answer is that of a moment: other CPUs may allocate and free meanwhile. It is exact while
//! none does.

use super::zone::{FreeLists, ZoneFree};
use super::{FrameAllocator, Records, Zone};
use crate::frame::{FrameState, MigrateType};
use crate::vmstat::ZoneItem;
use crate::zone::{Buddy, FrameUse, Pageblock, ZoneId};
use mmscale_arch::{Cpu, Order, Pfn};

/// The number of free pages. Pages of isolated pageblocks are not free.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FreeCount {
    /// In zones, for any CPU.
    pub in_zones: u64,
    /// In CPUs' caches.
    pub in_caches: u64,
}

impl FreeCount {
    /// All free pages.
    pub fn total(self) -> u64 {
        self.in_zones + self.in_caches
    }
}

impl<A: Cpu> FrameAllocator<A> {
    /// The use of a frame; `None` if no zone has it. Waits for the zone's lock, if it has one. With
    /// the policy `blockmap` an allocated frame is looked for in the caches of all CPUs.
    pub fn frame_use(&self, pfn: Pfn) -> Option<FrameUse> {
        let zone = self.zone_of(pfn)?;
        Some(match &zone.free {
            ZoneFree::Lists(lists) => self.listed_use(zone, lists, pfn),
            ZoneFree::Blocks(blocks) => match blocks.map.frame_use(pfn) {
                // A split changes the records alone.
                FrameUse::Held(_) if self.config.records != Records::None => {
                    FrameUse::Held(self.head_of(zone, pfn).map(|(_, order)| order))
                }
                found => found,
            },
            ZoneFree::Guest(_) => match self.head_of(zone, pfn) {
                Some((_, order)) => FrameUse::Held(Some(order)),
                // Of a free block as large, or larger.
                None => FrameUse::Free(Order::ZERO),
            },
        })
    }

    fn listed_use(&self, zone: &Zone<A>, lists: &FreeLists<A>, pfn: Pfn) -> FrameUse {
        let buddy = lists.buddy.lock_irqsave();
        if buddy.untouched().contains(&(pfn.index() as u32)) {
            return FrameUse::Free(self.config.geometry().max);
        }
        if buddy.is_offline(pfn) {
            return FrameUse::Offline;
        }
        match self.head_of(zone, pfn) {
            Some((FrameState::Free, _)) if buddy.is_isolated(pfn) => FrameUse::Isolated,
            Some((FrameState::Free, order)) => FrameUse::Free(order),
            Some((FrameState::Cached, _)) => FrameUse::Cached,
            Some((_, order)) => FrameUse::Held(Some(order)),
            // Its holder or its page cache is changing the records of the block.
            None => FrameUse::Held(None),
        }
    }

    /// The state and the order of the block that has `pfn`, by the records of frames.
    fn head_of(&self, zone: &Zone<A>, pfn: Pfn) -> Option<(FrameState, Order)> {
        self.config.geometry().orders().find_map(|order| {
            let head = pfn.align_down(order);
            let word = zone.extent.has(head.index()).then(|| self.frames.word(head))?;
            let has = word.state() != FrameState::Inside && word.order() >= order;
            has.then(|| (word.state(), word.order()))
        })
    }

    /// The pageblock of `pfn`; `None` if no zone has that frame. Waits for the zone's lock, if it
    /// has one, and reads the records of the pageblock's frames under it.
    pub fn pageblock(&self, pfn: Pfn) -> Option<Pageblock> {
        let zone = self.zone_of(pfn)?;
        let order = self.config.geometry().pageblock;
        let block = pfn.align_down(order);
        let (span, all) = (zone.extent.span(), block.index()..block.index() + order.pages());
        let range = all.start.max(span.start)..all.end.min(span.end);
        let pages = zone.extent.present_in(range.clone());
        Some(match &zone.free {
            ZoneFree::Lists(lists) => {
                let buddy = lists.buddy.lock_irqsave();
                let (free, largest) = self.listed_pages(&buddy, range);
                Pageblock {
                    pages: pages as u32,
                    free: free.min(pages) as u32,
                    largest,
                    migrate_type: buddy.block_type(pfn),
                    isolated: buddy.is_isolated(pfn),
                    offline: buddy.is_offline(pfn),
                }
            }
            ZoneFree::Blocks(blocks) => blocks.map.pageblock(pfn, pages as u32),
            ZoneFree::Guest(_) => self.recorded_pageblock(zone, range),
        })
    }

    /// A pageblock of which only the records are known.
    fn recorded_pageblock(&self, zone: &Zone<A>, range: core::ops::Range<usize>) -> Pageblock {
        let pages = range.len() as u32;
        let held = range.filter(|&at| self.head_of(zone, Pfn::new(at)).is_some()).count();
        Pageblock {
            pages,
            free: pages - held as u32,
            largest: None,
            migrate_type: MigrateType::Movable,
            isolated: false,
            offline: false,
        }
    }

    /// The free pages of a range of a pageblock, and the order of its largest free block. A free
    /// block of several pageblocks has all of the range.
    fn listed_pages(
        &self,
        buddy: &Buddy<A>,
        range: core::ops::Range<usize>,
    ) -> (usize, Option<Order>) {
        let max = self.config.geometry().max;
        let whole = Pfn::new(range.start).align_down(max);
        let untouched = buddy.untouched().contains(&(range.start as u32));
        if untouched || buddy.spans(whole, max) && self.frames.is_free_head(whole, max) {
            return (range.len(), Some(max));
        }
        let (mut at, mut free, mut largest) = (range.start, 0, None);
        while at < range.end {
            let word = self.frames.word(Pfn::new(at));
            if word.state() == FrameState::Free {
                free += word.order().pages();
                largest = largest.max(Some(word.order()));
                at += word.order().pages();
            } else {
                at += 1;
            }
        }
        (free, largest)
    }

    /// Counts the free pages of a zone. Reads a few words of each CPU and no frame, so the time is
    /// proportional to the number of CPUs alone. Waits for the locks of page caches, if the zone
    /// has some.
    ///
    /// Exact while no CPU allocates or frees. Otherwise each CPU that does so meanwhile adds an
    /// error of at most the pages that it moves in that time.
    pub fn count_free_of(&self, zone: ZoneId) -> FreeCount {
        let counted = self.stats.zone_sum(zone, ZoneItem::FreePages);
        let (unfolded, in_caches) = match &self.zone(zone).free {
            ZoneFree::Lists(lists) => {
                (0, lists.pcps.iter().map(|(_, pcp)| u64::from(pcp.lock().count())).sum())
            }
            ZoneFree::Blocks(blocks) => blocks.map.unfolded_and_cached(),
            ZoneFree::Guest(_) => (0, 0),
        };
        FreeCount { in_zones: (counted + unfolded).max(0) as u64, in_caches }
    }

    /// Counts the free pages of all zones: the sum of [`FrameAllocator::count_free_of`].
    pub fn count_free(&self) -> FreeCount {
        let zones = self.zones.iter().map(|zone| self.count_free_of(zone.id));
        zones.fold(FreeCount::default(), |sum, of| FreeCount {
            in_zones: sum.in_zones + of.in_zones,
            in_caches: sum.in_caches + of.in_caches,
        })
    }
}
