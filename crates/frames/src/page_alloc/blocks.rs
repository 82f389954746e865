//! Consistency checks of pageblocks: owners, isolation.

use super::audit::Violation;
use super::zone::FreeLists;
use super::{FrameAllocator, Zone};
use crate::frame::{FrameState, FrameWord};
use crate::zone::Buddy;
use alloc::vec;
use alloc::vec::Vec;
use mmscale_arch::{Cpu, CpuId, Order, Pfn};

/// Pageblocks as the page caches of a zone have them.
#[derive(Default)]
pub(super) struct OwnedSeen {
    /// Pageblocks of which a page cache has blocks that may merge.
    merging: Vec<(Pfn, CpuId)>,
    /// Pageblocks on the lists of pageblocks with fragments in the zone.
    pub(super) remembered: Vec<(Pfn, CpuId)>,
    /// A block that may merge although it was allocated for another type than its pageblock's.
    odd: Option<Pfn>,
}

impl OwnedSeen {
    /// Records a cached block.
    pub(super) fn cached(&mut self, cpu: CpuId, pfn: Pfn, word: FrameWord) {
        if word.may_merge() {
            self.merging.push((pfn.align_down(Order::PAGEBLOCK), cpu));
            if word.list() != word.taken_as() {
                self.odd = Some(pfn);
            }
        }
    }
}

impl<A: Cpu> FrameAllocator<A> {
    /// The order of a pageblock.
    fn pageblock_order(&self) -> Order {
        self.config.geometry().pageblock
    }
    fn pageblocks(&self, zone: &Zone<A>) -> impl Iterator<Item = Pfn> {
        let span = zone.extent.span();
        let first = Pfn::new(span.start).align_down(self.pageblock_order());
        let pages = span.end - first.index();
        (0..pages).step_by(self.pageblock_order().pages()).map(move |at| first.offset(at))
    }
    /// Whether a block has a part in a pageblock that is isolated or offline.
    pub(super) fn kept_back(&self, buddy: &Buddy<A>, pfn: Pfn, order: Order) -> bool {
        let each = self.pageblock_order().pages();
        let mut parts = (0..order.pages()).step_by(each).map(|at| pfn.offset(at));
        parts.any(|part| buddy.is_isolated(part) || buddy.is_offline(part))
    }
    /// Checks that the records of an offline pageblock's frames are blank; returns their number.
    pub(super) fn verify_offline_block(&self, block: Pfn) -> Result<usize, Violation> {
        let mut frames = (0..self.pageblock_order().pages()).map(|at| block.offset(at));
        match frames.find(|&pfn| !self.frames.is_blank(pfn)) {
            Some(pfn) => Err(Violation::Isolation(pfn)),
            None => Ok(self.pageblock_order().pages()),
        }
    }
    pub(super) fn verify_isolated(
        &self,
        zone: &Zone<A>,
        buddy: &Buddy<A>,
        listed: &mut Vec<Pfn>,
    ) -> Result<(), Violation> {
        let mut pages = 0;
        for (pfn, linked) in buddy.isolated_list().walk(&self.frames) {
            let word = self.frames.word(pfn);
            if !linked || word.state() != FrameState::Free || word.order() > self.pageblock_order()
            {
                return Err(Violation::List(pfn));
            }
            if !buddy.is_isolated(pfn) {
                return Err(Violation::Isolation(pfn));
            }
            if word.list() != buddy.block_type(pfn) {
                return Err(Violation::BlockType(pfn));
            }
            pages += word.order().pages() as u64;
            listed.push(pfn);
        }
        let isolated = self.pageblocks(zone).filter(|&block| buddy.is_isolated(block)).count();
        let offline = self.pageblocks(zone).filter(|&block| buddy.is_offline(block)).count();
        let blocks = (buddy.isolated_blocks() as usize, buddy.offline_blocks() as usize);
        let shown = self.pageblocks(zone).all(|at| self.isolated.has(at) == buddy.is_isolated(at));
        let gone = offline * self.pageblock_order().pages();
        let fine = shown
            && pages == buddy.isolated_pages()
            && blocks == (isolated, offline)
            && zone.condition().1 == (isolated > 0)
            && zone.managed_pages() as usize + gone == zone.pages() as usize;
        if fine { Ok(()) } else { Err(Violation::IsolatedCount(zone.id)) }
    }
    pub(super) fn verify_owners(
        &self,
        (zone, lists): (&Zone<A>, &FreeLists<A>),
        buddy: &Buddy<A>,
        mut seen: OwnedSeen,
    ) -> Result<(), Violation> {
        if let Some(odd) = seen.odd {
            return Err(Violation::Stray(odd));
        }
        seen.merging.sort_unstable();
        seen.merging.dedup();
        let twice = seen.merging.windows(2).find(|pair| pair[0].0 == pair[1].0);
        if let Some(&[(block, _), _]) = twice {
            return Err(Violation::Stray(block));
        }
        let elsewhere =
            |&&(block, cpu): &&(Pfn, CpuId)| buddy.owner(block).is_some_and(|owner| owner != cpu);
        if let Some(&(block, _)) = seen.merging.iter().find(elsewhere) {
            return Err(Violation::Stray(block));
        }
        if !lists.owners.exist() {
            return Ok(());
        }
        let mut owned = vec![0; self.cpus];
        for block in self.pageblocks(zone) {
            let Some(cpu) = buddy.owner(block) else { continue };
            owned[cpu.index()] += 1;
            if !A::is_online(cpu)
                || self.is_whole(buddy, block)
                || self.kept_back(buddy, block, self.pageblock_order())
            {
                return Err(Violation::Owner(block));
            }
            if buddy.is_remembered(block) && !seen.remembered.contains(&(block, cpu)) {
                return Err(Violation::Remembered(block));
            }
        }
        let wrong = owned.iter().enumerate().map(|(cpu, &count)| (CpuId::new(cpu), count));
        match wrong.into_iter().find(|&(cpu, count)| buddy.owned_by(cpu) != count) {
            Some((cpu, _)) => Err(Violation::OwnedCount(cpu)),
            None => Ok(()),
        }
    }
    /// Whether a pageblock is one free block of the zone, or part of one.
    fn is_whole(&self, buddy: &Buddy<A>, block: Pfn) -> bool {
        let max = self.config.geometry().max;
        buddy.untouched().contains(&(block.index() as u32))
            || self.frames.is_free_head(block, self.pageblock_order())
            || self.frames.is_free_head(block.align_down(max), max)
    }
}
