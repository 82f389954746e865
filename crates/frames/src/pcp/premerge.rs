//! Merging of the blocks of a drain before zone->lock is taken.
//!
//! The page cache keeps the lists of the policy `stock`. A drain removes its blocks from them under
//! the page cache's lock, sorts them by address, and merges those that are buddies; only then does
//! it take zone->lock, and frees what is left. The records of the blocks change under zone->lock
//! alone, where CPUs that count the pages of a pageblock read them.

use super::{Drained, Pcp, PcpList};
use crate::frame::FrameTable;
use crate::zone::Buddy;
use mmscale_arch::{Cpu, Op, Order, Pfn};

/// The most blocks that leave a page cache in one hold of zone->lock: one more than a batch.
pub(crate) const DRAIN_BLOCKS: usize = 64;

/// Blocks that left the lists of a page cache, and are not in the zone yet.
pub(crate) struct Leaving {
    /// The heads of the blocks as they were cached, in ascending order.
    heads: [Pfn; DRAIN_BLOCKS],
    /// The blocks after merging, in ascending order.
    merged: [(Pfn, Order); DRAIN_BLOCKS],
    head_count: usize,
    merged_count: usize,
    pages: u32,
}

impl Pcp {
    /// Removes blocks of at least `pages` pages from the ends of the lists, one list after the
    /// other, beginning with `first`, and merges buddies among them. Removes fewer pages if there
    /// are no more, or if there are more than [`DRAIN_BLOCKS`] blocks.
    ///
    /// The sort is charged as a merge sort of a list: [`Op::BuddyStep`] for each of its
    /// comparisons. So is each comparison of a block with the one before it.
    pub(crate) fn gather<A: Cpu>(
        &mut self,
        frames: &FrameTable,
        pages: u32,
        first: PcpList,
    ) -> Leaving {
        let mut blocks = [(Pfn::new(0), Order::ZERO); DRAIN_BLOCKS];
        let (before, goal) = (self.count, self.count.saturating_sub(pages));
        let (mut list, mut len) = (first, 0);
        while self.count > goal && len < DRAIN_BLOCKS {
            let Some(pfn) = self.lists[list.0 as usize].last() else {
                list = list.next();
                continue;
            };
            A::work(Op::PcpTake, 1);
            self.lists[list.0 as usize].unlink::<A>(frames, pfn);
            self.count -= list.order().pages() as u32;
            blocks[len] = (pfn, list.order());
            len += 1;
        }
        if len > 1 {
            A::work(Op::BuddyStep, (len * (len - 1).ilog2() as usize + len) as u32);
        }
        blocks[..len].sort_unstable();
        let mut leaving = Leaving {
            heads: blocks.map(|(pfn, _)| pfn),
            merged: blocks,
            head_count: len,
            merged_count: 0,
            pages: before - self.count,
        };
        leaving.merge::<A>();
        leaving
    }
}

impl Leaving {
    /// Merges buddies, up to whole pageblocks: larger blocks may be of two types.
    fn merge<A: Cpu>(&mut self) {
        let mut steps = 0;
        for at in 0..self.head_count {
            let (mut pfn, mut order) = self.merged[at];
            while let Some(last) = self.merged_count.checked_sub(1) {
                steps += 1;
                let below = self.merged[last];
                if order >= Order::PAGEBLOCK || below != (pfn.buddy(order), order) {
                    break;
                }
                let Some(up) = order.up() else { break };
                (pfn, order) = (below.0, up);
                self.merged_count = last;
            }
            self.merged[self.merged_count] = (pfn, order);
            self.merged_count += 1;
        }
        A::work(Op::BuddyStep, steps);
    }
    /// Frees the blocks to their zone.
    pub(crate) fn free<A: Cpu>(self, frames: &FrameTable, buddy: &mut Buddy<A>) -> Drained {
        self.heads[..self.head_count].iter().for_each(|&pfn| frames.set_inside(pfn));
        let mut free = 0;
        for &(pfn, order) in &self.merged[..self.merged_count] {
            A::work(Op::DrainPage, 1);
            free += buddy.free_block(frames, pfn, order);
        }
        Drained { pages: self.pages, free }
    }
}
