//! What happens when a migratetype has run out: claim a pageblock, or steal a block.

use super::Buddy;
use super::buddy::{End, PAGEBLOCK_PAGES};
use crate::frame::{FrameState, FrameTable, MigrateType};
use mmscale_arch::{Cpu, Order, PAGEBLOCK_ORDER, Pfn};

/// Where the last allocation of one hold of the zone lock found its block; the next one starts
/// there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RmqueueMode {
    /// On the lists of its own type.
    Own,
    /// Nothing there and nothing to claim: it took single blocks of another type.
    Steal,
}

impl<A: Cpu> Buddy<A> {
    /// Takes one block of `order` for `wanted`: from its own lists, else by making a whole
    /// pageblock of another type its own, else a single block of another type. Its record then
    /// says `state`.
    pub(crate) fn take(
        &mut self,
        frames: &FrameTable,
        order: Order,
        wanted: MigrateType,
        mode: &mut RmqueueMode,
        state: FrameState,
    ) -> Option<Pfn> {
        let pfn = self.find(frames, order, wanted, mode)?;
        self.hand_out(frames, pfn, order, wanted, state);
        Some(pfn)
    }

    fn find(
        &mut self,
        frames: &FrameTable,
        order: Order,
        wanted: MigrateType,
        mode: &mut RmqueueMode,
    ) -> Option<Pfn> {
        if *mode == RmqueueMode::Own {
            // A claimed pageblock refills the type's own lists.
            let own = self.take_smallest(frames, order, wanted);
            let own = own.or_else(|| self.claim(frames, order, wanted));
            if own.is_some() {
                return own;
            }
        }
        // In the same hold it is not looked again for something to claim, as in Linux: that is all
        // records of pageblocks for each page, milliseconds of a refill. Who steals the first block
        // of a list may pass over a second that could be claimed.
        let pfn = self.steal(frames, order, wanted)?;
        *mode = RmqueueMode::Steal;
        Some(pfn)
    }

    /// The type to fall back to that has a free block of exactly this order.
    fn fallback_with(
        &mut self,
        frames: &FrameTable,
        order: Order,
        wanted: MigrateType,
    ) -> Option<(MigrateType, Pfn)> {
        let found = |from| self.first(frames, order, from).map(|pfn| (from, pfn));
        wanted.fallbacks().into_iter().find_map(found)
    }

    /// Largest blocks first, so that what is broken up stays together: makes the pageblock of a
    /// free block of another type belong to `wanted`, if enough of it is free or compatible.
    pub(super) fn claim(
        &mut self,
        frames: &FrameTable,
        order: Order,
        wanted: MigrateType,
    ) -> Option<Pfn> {
        for at in Order::all().rev().take_while(|&at| at >= order) {
            let Some((from, pfn)) = self.fallback_with(frames, at, wanted) else { continue };
            if !may_claim(at, wanted) {
                break;
            }
            if let Some(pfn) = self.claim_block(frames, (pfn, at, from), order, wanted) {
                return Some(pfn);
            }
        }
        None
    }

    fn claim_block(
        &mut self,
        frames: &FrameTable,
        (pfn, at, from): (Pfn, Order, MigrateType),
        order: Order,
        wanted: MigrateType,
    ) -> Option<Pfn> {
        if at >= Order::PAGEBLOCK {
            self.unlink(frames, pfn, at, from);
            self.set_block_type(pfn, at, wanted);
            self.split(frames, pfn, at, order, wanted);
            return Some(pfn);
        }
        let block = pfn.align_down(Order::PAGEBLOCK);
        if !self.spans(block, Order::PAGEBLOCK) {
            return None;
        }
        let census = self.census(frames, block);
        // What is not free and fits anyway. Of a pageblock of movable pages, everything that is
        // not movable is taken to suit both other types.
        let alike = match (wanted, from) {
            (MigrateType::Movable, _) => census.movable,
            (_, MigrateType::Movable) => PAGEBLOCK_PAGES - census.free - census.movable,
            _ => 0,
        };
        if census.free + alike < PAGEBLOCK_PAGES / 2 {
            return None;
        }
        self.move_free_blocks(frames, block, wanted);
        self.set_block_type(block, Order::PAGEBLOCK, wanted);
        self.take_smallest(frames, order, wanted)
    }

    /// What the frames of a pageblock are used for. No block reaches over its ends: one of its
    /// blocks is free and smaller than it.
    ///
    /// A page that is not free counts as movable if the zone handed it out for that. This, unlike
    /// what a page cache's pages are, changes only under the zone lock.
    fn census(&self, frames: &FrameTable, block: Pfn) -> Census {
        if self.owners.exist() {
            let (free, movable) = self.census_of_pages(frames, block);
            return Census { free, movable };
        }
        let mut census = Census { free: 0, movable: 0 };
        let mut at = 0;
        while at < PAGEBLOCK_PAGES {
            let pfn = block.offset(at);
            FrameTable::touch::<A>(pfn, mmscale_arch::Access::Peek);
            let word = frames.word(pfn);
            let pages = word.order().pages();
            match word.state() {
                FrameState::Free => census.free += pages,
                _ if word.taken_as() == MigrateType::Movable => census.movable += pages,
                _ => {}
            }
            at += pages;
        }
        census
    }

    /// Moves every free block of a pageblock to the lists of `to`.
    fn move_free_blocks(&mut self, frames: &FrameTable, block: Pfn, to: MigrateType) {
        let mut at = 0;
        while at < PAGEBLOCK_PAGES {
            let pfn = block.offset(at);
            let word = frames.word(pfn);
            if word.state() == FrameState::Free {
                self.unlink(frames, pfn, word.order(), word.list());
                self.link(frames, pfn, word.order(), to, End::Back);
            }
            at += word.order().pages();
        }
    }

    /// Smallest blocks first: takes one block of another type and leaves its pageblock alone.
    fn steal(&mut self, frames: &FrameTable, order: Order, wanted: MigrateType) -> Option<Pfn> {
        let mut at = order;
        loop {
            if let Some((from, pfn)) = self.fallback_with(frames, at, wanted) {
                self.unlink(frames, pfn, at, from);
                self.split(frames, pfn, at, order, from);
                return Some(pfn);
            }
            at = at.up()?;
        }
    }
}

/// The pages of a pageblock.
struct Census {
    free: usize,
    movable: usize,
}

/// Whether finding a block of this order justifies claiming its pageblock: always for half a
/// pageblock's order and more; for less only if what comes would stay and fragment the block.
fn may_claim(order: Order, wanted: MigrateType) -> bool {
    order.get() >= PAGEBLOCK_ORDER / 2 || wanted != MigrateType::Movable
}
