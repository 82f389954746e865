//! Consistency checks of a zone whose free pages are bits of a map.

use super::{Audit, FrameAllocator, Records, Violation, Zone};
use crate::blockmap::{BlockMap, MapError};
use crate::frame::FrameState;
use crate::vmstat::ZoneItem;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, Cpu, Pfn};

impl<A: Cpu> FrameAllocator<A> {
    /// Checks a zone's map, and compares it with the counter and with the records, if there are
    /// any.
    pub(super) fn verify_mapped(
        &self,
        zone: &Zone<A>,
        map: &BlockMap<A>,
    ) -> Result<Audit, Violation> {
        let found = map.verify().map_err(|error| match error {
            MapError::Count(pfn) => Violation::BlockCount(pfn),
            MapError::Owner(pfn) => Violation::BlockOwner(pfn),
            MapError::Unfiled(pfn) => Violation::BlockUnfiled(pfn),
            MapError::Unhinted(pfn, order) => Violation::HintMissing(pfn, order),
            MapError::Misfiled(pfn) => Violation::BlockMisfiled(pfn),
            MapError::CacheCount(_) => Violation::PcpCount(zone.id),
            MapError::Cached(pfn) => Violation::Lost(pfn),
        })?;
        if self.config.records != Records::None {
            self.verify_held(zone, map)?;
        }
        let counted = self.stats.zone_snapshot(zone.id, ZoneItem::FreePages) + found.unfolded;
        if counted != found.free as i64 {
            return Err(Violation::Counter(zone.id));
        }
        let (free, cached, isolated) = (found.free, found.cached, found.isolated);
        if found.offline != u64::from(zone.offline.load(Relaxed)) {
            return Err(Violation::IsolatedCount(zone.id));
        }
        let held = u64::from(zone.managed_pages()) - free - cached - isolated;
        Ok(Audit { free, cached, held, isolated, offline: found.offline })
    }

    /// Checks that records and map agree on the allocated frames. Free blocks are not checked.
    fn verify_held(&self, zone: &Zone<A>, map: &BlockMap<A>) -> Result<(), Violation> {
        let mut inside_until = 0;
        for (first, held) in map.held_words() {
            for bit in 0..u64::BITS as usize {
                let at = first.index() + bit;
                let (pfn, held) = (Pfn::new(at), held >> bit & 1 != 0);
                // The zone may lack frames of the pageblocks at its ends and at holes.
                if !zone.extent.has(at) {
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
}
