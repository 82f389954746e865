//! Fallback when a migratetype has no free blocks: claim a pageblock, or steal a block.

use super::Buddy;
use super::areas::End;
use super::areas::{Part, Prefer};
use crate::frame::{FrameState, FrameTable, MigrateType};
use mmscale_arch::{Cpu, Order, Pfn};

/// The source of the last allocation of one hold of the zone lock; the next one starts there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RmqueueMode {
    /// The lists of its own type.
    Own,
    /// Single blocks of another type: the lists were empty, and no pageblock could be claimed.
    Steal,
}

impl<A: Cpu> Buddy<A> {
    /// Takes one block of `order` for `wanted`: from its own lists, or else after claiming a
    /// pageblock of another type, or else a single block of another type. Its record is then in
    /// `state`.
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
        // As in Linux, the same hold does not try to claim again: that would read all records of
        // pageblocks for each page, and take milliseconds per refill. Stealing the first block of a
        // list may therefore miss a second one whose pageblock could be claimed.
        let pfn = self.steal(frames, order, wanted)?;
        *mode = RmqueueMode::Steal;
        Some(pfn)
    }

    /// The first fallback type with a free block of exactly this order in this part of the zone.
    ///
    /// A clean superpageblock is tainted by what is taken: memory that was never used before one
    /// that is in use, and of these the emptiest.
    fn fallback_with(
        &mut self,
        frames: &FrameTable,
        part: Part,
        order: Order,
        wanted: MigrateType,
    ) -> Option<(MigrateType, Pfn)> {
        let movable = MigrateType::Movable;
        let unused = order == self.geometry.max && wanted != movable;
        if unused && part == Part::Clean {
            let unused = self.first_use(frames, part, wanted).map(|pfn| (movable, pfn));
            return unused
                .or_else(|| self.listed_fallback((part, Prefer::Emptiest), order, wanted));
        }
        let prefer = if part == Part::Clean { Prefer::Emptiest } else { Prefer::Fullest };
        let listed = self.listed_fallback((part, prefer), order, wanted);
        listed.or_else(|| {
            let pfn = unused.then(|| self.first_use(frames, part, wanted))??;
            Some((movable, pfn))
        })
    }

    fn listed_fallback(
        &self,
        place: (Part, Prefer),
        order: Order,
        wanted: MigrateType,
    ) -> Option<(MigrateType, Pfn)> {
        self.areas.exact(place, order, wanted.fallbacks())
    }

    /// Claims the pageblock of a free block of another type for `wanted`, if enough of it is free
    /// or compatible, and takes a block of it. Tries the largest blocks first, so that few
    /// pageblocks are fragmented.
    pub(super) fn claim(
        &mut self,
        frames: &FrameTable,
        order: Order,
        wanted: MigrateType,
    ) -> Option<Pfn> {
        let parts = self.areas.fallback_parts(wanted);
        parts.iter().find_map(|&part| self.claim_in(frames, part, order, wanted))
    }

    fn claim_in(
        &mut self,
        frames: &FrameTable,
        part: Part,
        order: Order,
        wanted: MigrateType,
    ) -> Option<Pfn> {
        for at in self.geometry.orders().rev().take_while(|&at| at >= order) {
            let Some((from, pfn)) = self.fallback_with(frames, part, at, wanted) else { continue };
            if !self.may_claim(at, wanted) {
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
        if at >= self.geometry.pageblock {
            self.unlink(frames, pfn, at, from);
            self.set_block_type(pfn, at, wanted);
            self.split(frames, pfn, at, order, wanted);
            return Some(pfn);
        }
        let block = pfn.align_down(self.geometry.pageblock);
        if !self.spans(block, self.geometry.pageblock) {
            return None;
        }
        let census = self.census(frames, block);
        // Compatible pages that are not free. In a pageblock of movable pages, all other pages are
        // assumed to be compatible with both other types.
        let alike = match (wanted, from) {
            (MigrateType::Movable, _) => census.movable,
            (_, MigrateType::Movable) => self.geometry.block_pages() - census.free - census.movable,
            _ => 0,
        };
        if census.free + alike < self.geometry.block_pages() / 2 {
            return None;
        }
        self.move_free_blocks(frames, block, wanted);
        self.set_block_type(block, self.geometry.pageblock, wanted);
        self.take_smallest(frames, order, wanted)
    }

    /// Counts the free and the movable frames of a pageblock. No block crosses its ends, since one
    /// of its blocks is free and smaller.
    ///
    /// A page that is not free counts as movable if the zone allocated it as movable. That field
    /// changes only under the zone lock, unlike the state of pages in page caches.
    fn census(&self, frames: &FrameTable, block: Pfn) -> Census {
        if self.owners.exist() {
            let (free, movable) = self.census_of_pages(frames, block);
            return Census { free, movable };
        }
        let mut census = Census { free: 0, movable: 0 };
        let mut at = 0;
        while at < self.geometry.block_pages() {
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
        while at < self.geometry.block_pages() {
            let pfn = block.offset(at);
            let word = frames.word(pfn);
            if word.state() == FrameState::Free {
                self.unlink(frames, pfn, word.order(), word.list());
                self.link(frames, pfn, word.order(), to, End::Back);
            }
            at += word.order().pages();
        }
    }

    /// Whether a free block of this order justifies claiming its pageblock: always from half a
    /// pageblock's order up; for smaller orders only if the pages are not movable, and would
    /// otherwise fragment the pageblock permanently.
    fn may_claim(&self, order: Order, wanted: MigrateType) -> bool {
        order.get() >= self.geometry.pageblock.get() / 2 || wanted != MigrateType::Movable
    }

    /// Takes one block of another type, the smallest that is large enough, and does not change the
    /// type of its pageblock.
    fn steal(&mut self, frames: &FrameTable, order: Order, wanted: MigrateType) -> Option<Pfn> {
        let parts = self.areas.fallback_parts(wanted);
        parts.iter().find_map(|&part| {
            let mut at = order;
            loop {
                if let Some((from, pfn)) = self.fallback_with(frames, part, at, wanted) {
                    self.unlink(frames, pfn, at, from);
                    self.split(frames, pfn, at, order, from);
                    return Some(pfn);
                }
                at = at.up()?;
            }
        })
    }
}

/// Counts of pages of a pageblock.
struct Census {
    free: usize,
    movable: usize,
}
