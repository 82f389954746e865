//! Isolated and offline pageblocks, whose pages are not allocated. All functions are called under
//! the zone lock.
//!
//! The free blocks of isolated pageblocks are on a list of their own, merge only within their
//! pageblock, and do not count as free. An offline pageblock was isolated and all free; its frames
//! are in no block.

use super::areas::End;
use super::buddy::TYPE_MASK;
use super::{Buddy, Geometry};
use crate::frame::{FrameList, FrameState, FrameTable, FrameWord, MigrateType};
use mmscale_arch::{Access, Cpu, Op, Order, Pfn};

/// The pageblock's pages are not allocated.
const ISOLATED: u8 = 1 << 6;
/// The pageblock is offline.
const OFFLINE: u8 = 1 << 7;
const _: () = assert!((ISOLATED | OFFLINE) & TYPE_MASK == 0);

impl<A: Cpu> Buddy<A> {
    /// Whether the pageblock of `pfn` is isolated.
    pub fn is_isolated(&self, pfn: Pfn) -> bool {
        self.isolation(pfn) == ISOLATED
    }
    /// Whether the pageblock of `pfn` is offline.
    pub fn is_offline(&self, pfn: Pfn) -> bool {
        self.isolation(pfn) == OFFLINE
    }
    /// Pageblocks that are isolated now.
    pub fn isolated_blocks(&self) -> u32 {
        self.isolated_blocks
    }
    /// Pageblocks that are offline now.
    pub fn offline_blocks(&self) -> u32 {
        self.offline_blocks
    }
    /// Free pages of isolated pageblocks.
    pub fn isolated_pages(&self) -> u64 {
        self.isolated_pages
    }
    /// The free blocks of isolated pageblocks.
    pub(crate) fn isolated_list(&self) -> &FrameList {
        &self.isolated
    }
    fn set_isolation(&mut self, block: Pfn, to: u8) {
        let at = self.geometry.block_of(block) - self.first_block;
        let bits = &mut self.block_types[at];
        *bits = *bits & TYPE_MASK | to;
    }
    /// Corrupts the state of a pageblock: isolated, while its blocks are not.
    #[cfg(test)]
    pub(crate) fn corrupt_isolation(&mut self, block: Pfn) {
        self.set_isolation(block, ISOLATED);
    }
    /// Corrupts the number of isolated pageblocks.
    #[cfg(test)]
    pub(crate) fn miscount_isolated(&mut self) {
        self.isolated_blocks += 1;
    }
    fn link_isolated(&mut self, frames: &FrameTable, pfn: Pfn, order: Order) {
        A::work(Op::BuddyPut, 1);
        self.isolated.push_front::<A>(frames, pfn);
        self.isolated_pages += order.pages() as u64;
        let (list, zone) = (self.block_type(pfn), self.zone.index() as u8);
        let word = FrameWord::new(FrameState::Free, order, list, MigrateType::Movable, zone);
        frames.set_word(pfn, word);
    }
    fn unlink_isolated(&mut self, frames: &FrameTable, pfn: Pfn, order: Order) {
        A::work(Op::BuddyTake, 1);
        self.isolated.unlink::<A>(frames, pfn);
        self.isolated_pages -= order.pages() as u64;
    }
    /// Frees a block of an isolated pageblock, at most as large as that.
    #[cold]
    pub(super) fn free_isolated(&mut self, frames: &FrameTable, pfn: Pfn, order: Order) {
        let (mut pfn, mut order) = (pfn, order);
        while order < self.geometry.pageblock
            && let Some(up) = order.up()
        {
            let buddy = pfn.buddy(order);
            FrameTable::touch::<A>(buddy, Access::Peek);
            if !frames.is_free_head(buddy, order) {
                break;
            }
            self.unlink_isolated(frames, buddy, order);
            A::work(Op::BuddyStep, 1);
            frames.set_inside(pfn.max(buddy));
            (pfn, order) = (pfn.min(buddy), up);
        }
        self.link_isolated(frames, pfn, order);
    }
    /// Frees a block of several pageblocks, one pageblock at a time: some may be isolated. Returns
    /// the pages that can be allocated.
    #[cold]
    pub(super) fn free_by_pageblocks(
        &mut self,
        frames: &FrameTable,
        pfn: Pfn,
        order: Order,
    ) -> u32 {
        let each = self.geometry.pageblock;
        let blocks = (0..order.pages()).step_by(each.pages()).map(|at| pfn.offset(at));
        blocks.map(|block| self.give_back(frames, block, each)).sum()
    }
    fn give_back(&mut self, frames: &FrameTable, pfn: Pfn, order: Order) -> u32 {
        if self.owners.exist() {
            self.free_fragment(frames, pfn, order)
        } else {
            self.free_block(frames, pfn, order)
        }
    }

    /// Puts the range that was never used on the lists, from its nearer end up to the block that
    /// has frame `at`, if that is in the range.
    pub(super) fn use_until(&mut self, frames: &FrameTable, at: u32) {
        let max = self.geometry.max;
        let size = max.pages() as u32;
        let low = at - self.untouched.start.min(at) < self.untouched.end.max(at) - at;
        while self.untouched.contains(&at) {
            let pfn = if low { self.untouched.start } else { self.untouched.end - size };
            if low {
                self.untouched.start += size;
            } else {
                self.untouched.end -= size;
            }
            self.areas.remove_unused(max);
            let pfn = Pfn::new(pfn as usize);
            self.link(frames, pfn, max, MigrateType::Movable, End::Back);
        }
    }
    /// Makes `block` a separate block on the lists, if it is free: removes it from the range that
    /// was never used, or splits the block of two pageblocks that it is a half of.
    fn surface(&mut self, frames: &FrameTable, block: Pfn) {
        let Geometry { pageblock, max } = self.geometry;
        self.use_until(frames, block.index() as u32);
        let whole = block.align_down(max);
        if self.spans(whole, max) && frames.is_free_head(whole, max) {
            let list_type = frames.word(whole).list();
            self.unlink(frames, whole, max, list_type);
            self.split(frames, whole, max, pageblock, list_type);
            self.link(frames, whole, pageblock, list_type, End::Front);
        }
    }
    /// Calls `each` for every free block of a pageblock, and reads every other page; returns the
    /// number of free pages.
    fn each_free(
        &mut self,
        frames: &FrameTable,
        block: Pfn,
        mut each: impl FnMut(&mut Self, Pfn, Order),
    ) -> u64 {
        let (mut at, mut pages) = (0, 0);
        while at < self.geometry.block_pages() {
            let (pfn, word) = (block.offset(at), frames.word(block.offset(at)));
            if word.state() == FrameState::Free {
                at += word.order().pages();
                pages += word.order().pages() as u64;
                each(self, pfn, word.order());
            } else {
                FrameTable::touch::<A>(pfn, Access::Peek);
                at += 1;
            }
        }
        pages
    }
    /// Isolates a pageblock of the zone, and ends its ownership: its free pages can no longer be
    /// allocated. Returns their number, or `None` if it is isolated or offline already.
    pub(crate) fn isolate(&mut self, frames: &FrameTable, block: Pfn) -> Option<u64> {
        if self.isolation(block) != 0 {
            return None;
        }
        self.surface(frames, block);
        let pages = self.each_free(frames, block, |buddy, pfn, order| {
            buddy.unlink(frames, pfn, order, frames.word(pfn).list());
            buddy.link_isolated(frames, pfn, order);
        });
        self.set_isolation(block, ISOLATED);
        self.isolated_blocks += 1;
        self.disown(block, self.geometry.pageblock);
        Some(pages)
    }
    /// Undoes [`Buddy::isolate`]; returns the pages that can be allocated again, or `None` if the
    /// block is not isolated.
    pub(crate) fn unisolate(&mut self, frames: &FrameTable, block: Pfn) -> Option<u64> {
        if !self.is_isolated(block) {
            return None;
        }
        self.set_isolation(block, 0);
        self.isolated_blocks -= 1;
        let pages = self.each_free(frames, block, |buddy, pfn, order| {
            buddy.unlink_isolated(frames, pfn, order);
            buddy.give_back(frames, pfn, order);
        });
        Some(pages)
    }
    /// Takes an isolated pageblock offline if all of it is free. The error is the number of pages
    /// that are not free.
    pub(crate) fn take_offline(&mut self, frames: &FrameTable, block: Pfn) -> Result<(), u32> {
        debug_assert!(self.is_isolated(block));
        if frames.is_free_head(block, self.geometry.pageblock) {
            self.unlink_isolated(frames, block, self.geometry.pageblock);
            frames.set_inside(block);
            self.set_isolation(block, OFFLINE);
            self.isolated_blocks -= 1;
            self.offline_blocks += 1;
            return Ok(());
        }
        let free = self.each_free(frames, block, |_, _, _| {});
        Err(self.geometry.block_pages() as u32 - free as u32)
    }
    /// Brings an offline pageblock online, all free and movable. Returns `false` if it is not
    /// offline.
    pub(crate) fn bring_online(&mut self, frames: &FrameTable, block: Pfn) -> bool {
        if !self.is_offline(block) {
            return false;
        }
        self.set_isolation(block, 0);
        self.offline_blocks -= 1;
        self.set_block_type(block, self.geometry.pageblock, MigrateType::Movable);
        self.give_back(frames, block, self.geometry.pageblock);
        true
    }
}
