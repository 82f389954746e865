//! Consistency checks of the allocator: for tests, and for the end of a run.

use super::audit::{Audit, Violation};
use super::blocks::OwnedSeen;
use super::zone::{FreeLists, ZoneFree};
use super::{FrameAllocator, Zone};
use crate::frame::FrameState;
use crate::vmstat::ZoneItem;
use crate::zone::{Buddy, Geometry};
use alloc::vec::Vec;
use core::ops::Range;
use mmscale_arch::{Cpu, CpuId, ORDERS, Pfn};

impl<A: Cpu> FrameAllocator<A> {
    /// Checks that every frame is in exactly one block, that every block is in one state and on its
    /// list, that free buddies are merged, that all counts are right, and that offline CPUs have
    /// left no state. Time and memory are proportional to the number of blocks in use.
    ///
    /// Only while no CPU allocates or frees: it takes the locks one after the other.
    pub fn verify(&self) -> Result<Audit, Violation> {
        let mut audit = Audit::default();
        for zone in self.zones.iter() {
            let found = match &zone.free {
                ZoneFree::Lists(lists) => self.verify_listed(zone, lists)?,
                ZoneFree::Blocks(blocks) => self.verify_mapped(zone, &blocks.map)?,
                ZoneFree::Guest(guest) => self.verify_guest(zone, guest)?,
            };
            audit.free += found.free;
            audit.cached += found.cached;
            audit.held += found.held;
            audit.isolated += found.isolated;
            audit.offline += found.offline;
        }
        self.verify_offline()?;
        Ok(audit)
    }

    /// Checks that offline CPUs have no counts in their bytes and no pages in their caches: no tick
    /// would ever find these.
    fn verify_offline(&self) -> Result<(), Violation> {
        for cpu in (0..self.cpus).map(CpuId::new).filter(|&cpu| !A::is_online(cpu)) {
            let kept = |zone: &Zone<A>| match &zone.free {
                ZoneFree::Lists(lists) => lists.pcps.of(cpu).lock().count() > 0,
                ZoneFree::Blocks(blocks) => blocks.map.has_pages_or_delta(cpu),
                ZoneFree::Guest(_) => false,
            };
            let cached = self.zones.iter().any(kept);
            if cached || self.stats.has_deltas(cpu) {
                return Err(Violation::LeftBehind(cpu));
            }
        }
        Ok(())
    }

    fn verify_listed(&self, zone: &Zone<A>, lists: &FreeLists<A>) -> Result<Audit, Violation> {
        let (mut listed, mut owned): (Vec<Pfn>, _) = (Vec::new(), OwnedSeen::default());
        for (cpu, pcp) in lists.pcps.iter() {
            let pcp = pcp.lock();
            let checked = pcp.check(&self.frames, |pfn, word| {
                listed.push(pfn);
                owned.cached(cpu, pfn, word);
            });
            checked.map_err(|pfn| pfn.map_or(Violation::PcpCount(zone.id), Violation::List))?;
            owned.remembered.extend(pcp.remembered().map(|block| (block, cpu)));
        }
        let mut buddy = lists.buddy.lock_irqsave();
        self.verify_lists(zone, &mut buddy, &mut listed)?;
        let areas = buddy.check_areas(&self.frames);
        areas.map_err(Violation::Superpageblock)?;
        self.verify_isolated(zone, &buddy, &mut listed)?;
        self.verify_owners((zone, lists), &buddy, owned)?;
        listed.sort_unstable();
        if let Some(twice) = listed.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Violation::Lost(twice[0]));
        }
        let audit = self.verify_frames(zone, &buddy, &listed)?;
        drop(buddy);
        let counted = self.stats.zone_snapshot(zone.id, ZoneItem::FreePages);
        if counted == audit.free as i64 { Ok(audit) } else { Err(Violation::Counter(zone.id)) }
    }

    fn verify_lists(
        &self,
        zone: &Zone<A>,
        buddy: &mut Buddy<A>,
        listed: &mut Vec<Pfn>,
    ) -> Result<(), Violation> {
        let max = self.config.geometry().max;
        let mut blocks = [0u32; ORDERS];
        blocks[max.index()] = buddy.untouched().len() as u32 >> max.get();
        for (order, list_type, list) in buddy.lists() {
            for (pfn, linked) in list.walk(&self.frames) {
                let word = self.frames.word(pfn);
                let known = word.state() == FrameState::Free && word.order() == order;
                if !linked || !known || word.list() != list_type {
                    return Err(Violation::List(pfn));
                }
                if buddy.block_type(pfn) != list_type {
                    return Err(Violation::BlockType(pfn));
                }
                if self.kept_back(buddy, pfn, order) {
                    return Err(Violation::Isolation(pfn));
                }
                blocks[order.index()] += 1;
                listed.push(pfn);
            }
        }
        match self
            .config
            .geometry()
            .orders()
            .find(|&order| blocks[order.index()] != buddy.free_blocks(order))
        {
            Some(order) => Err(Violation::AreaCount(zone.id, order)),
            None => Ok(()),
        }
    }

    fn verify_frames(
        &self,
        zone: &Zone<A>,
        buddy: &Buddy<A>,
        listed: &[Pfn],
    ) -> Result<Audit, Violation> {
        let Geometry { pageblock, max } = self.config.geometry();
        let (mut audit, mut on_list) = (Audit::default(), listed.iter());
        let untouched = buddy.untouched();
        let Range { start, end } = zone.extent.span();
        let mut at = start;
        while at < end {
            if let Some(end) = zone.extent.hole_end(at) {
                at = end;
                continue;
            }
            if untouched.contains(&(at as u32)) {
                audit.free += untouched.len() as u64;
                at = untouched.end as usize;
                continue;
            }
            let pfn = Pfn::new(at);
            if buddy.is_offline(pfn) {
                at += self.verify_offline_block(pfn)?;
                audit.offline += pageblock.pages() as u64;
                continue;
            }
            let word = self.frames.word(pfn);
            let (order, pages) = (word.order(), word.order().pages() as u64);
            match word.state() {
                FrameState::Inside => return Err(Violation::Cover(pfn)),
                FrameState::Free if buddy.is_isolated(pfn) => audit.isolated += pages,
                FrameState::Free => audit.free += pages,
                FrameState::Cached if buddy.is_isolated(pfn) => {
                    return Err(Violation::Isolation(pfn));
                }
                FrameState::Cached => audit.cached += pages,
                FrameState::Held => audit.held += pages,
            }
            if word.may_merge() && word.state() != FrameState::Cached {
                return Err(Violation::Stray(pfn));
            }
            let all_there = || zone.extent.first_missing(at..at + order.pages()).is_none();
            let fits = pfn.is_aligned(order) && all_there();
            if !fits || usize::from(word.zone()) != zone.id.index() {
                return Err(Violation::Shape(pfn));
            }
            if word.state() != FrameState::Held && on_list.next() != Some(&pfn) {
                return Err(Violation::Lost(pfn));
            }
            let mut rest = (1..order.pages()).map(|page| pfn.offset(page));
            if let Some(other) = rest.find(|&page| !self.frames.is_blank(page)) {
                return Err(Violation::Cover(other));
            }
            let buddy_pfn = pfn.buddy(order);
            let inside = (start..end).contains(&buddy_pfn.index());
            // Neither an isolated pageblock nor its neighbour merges with the other.
            let apart = order >= pageblock
                && inside
                && (buddy.is_isolated(pfn) || buddy.is_isolated(buddy_pfn));
            if word.state() == FrameState::Free
                && order < max
                && inside
                && !apart
                && self.frames.is_free_head(buddy_pfn, order)
            {
                return Err(Violation::Unmerged(pfn));
            }
            at += order.pages();
        }
        match on_list.next() {
            Some(&pfn) => Err(Violation::Lost(pfn)),
            None => Ok(audit),
        }
    }
}
