//! Pageblocks that CPUs own: moving them and their pages between the zone and page caches.
//!
//! All functions are called under the zone lock. A caller that takes blocks for a CPU, or remembers
//! them for it, also holds that CPU's page-cache lock.

use super::Buddy;
use super::areas::End;
use super::owners::Owners;
use crate::frame::{FrameState, FrameTable, MigrateType};
use mmscale_arch::{Access, Cpu, CpuId, Order, PAGEBLOCK_ORDER, PcpEvent, Pfn, Trace};

impl<A: Cpu> Buddy<A> {
    /// The CPU that owns the pageblock of `pfn`.
    pub fn owner(&self, pfn: Pfn) -> Option<CpuId> {
        if self.owners.exist() { self.owners.get(pfn) } else { None }
    }
    /// The number of pageblocks of the zone that `cpu` owns.
    pub fn owned_by(&self, cpu: CpuId) -> u32 {
        self.owned.get(cpu.index()).copied().unwrap_or(0)
    }
    /// Ends the ownership of the pageblocks of a block, or of the pageblock that it is part of.
    pub(super) fn disown(&mut self, pfn: Pfn, order: Order) {
        if self.owners.exist() {
            Owners::<A>::blocks_of(pfn, order).for_each(|block| self.set_owner(block, None));
        }
    }
    fn set_owner(&mut self, block: Pfn, owner: Option<CpuId>) {
        let before = self.owners.set(block, owner);
        if let Some(cpu) = before {
            self.count_owned(cpu, -1);
        }
        if let Some(cpu) = owner {
            self.count_owned(cpu, 1);
        }
    }
    fn count_owned(&mut self, cpu: CpuId, change: i8) {
        let owned = &mut self.owned[cpu.index()];
        *owned = owned.wrapping_add_signed(change.into());
        A::trace(Trace::Pcp(PcpEvent::Owned { cpu, zone: self.zone.index() as u16, change }));
    }
    /// Ends the ownership of the pageblocks that `cpu` owns among `most` pageblocks of the zone,
    /// beginning with number `from`. Returns the next number, or `None` when there are no more.
    pub(crate) fn disown_cpu(&mut self, cpu: CpuId, from: usize, most: usize) -> Option<usize> {
        let until = (from + most).min(self.block_types.len());
        for at in from..until {
            if self.owned_by(cpu) == 0 {
                return None;
            }
            let block = Pfn::new((self.first_block + at) << PAGEBLOCK_ORDER);
            if self.owners.get(block) == Some(cpu) {
                self.set_owner(block, None);
            }
        }
        (until < self.block_types.len()).then_some(until)
    }
    /// Marks a pageblock as remembered by `cpu`. Returns `true` if the caller must add it to the
    /// CPU's list of pageblocks with fragments in the zone: `cpu` owns it and does not have it on
    /// the list yet.
    pub(crate) fn remember(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        self.owners.remember(pfn, cpu)
    }
    /// Clears the mark after the pageblock was removed from that list. Returns `false` if the entry
    /// was stale.
    pub(crate) fn forget(&mut self, pfn: Pfn, cpu: CpuId) -> bool {
        self.owners.forget(pfn, cpu)
    }
    /// Whether the pageblock is marked as remembered by its owner.
    pub(crate) fn is_remembered(&self, pfn: Pfn) -> bool {
        self.owners.exist() && self.owners.is_remembered(pfn)
    }

    /// Corrupts the owner of a pageblock, without the counts.
    #[cfg(test)]
    pub(crate) fn corrupt_owner(&mut self, block: Pfn, owner: CpuId) {
        self.owners.set(block, Some(owner));
    }
    /// Corrupts the number of owned pageblocks.
    #[cfg(test)]
    pub(crate) fn miscount_owned(&mut self, cpu: CpuId) {
        self.owned[cpu.index()] += 1;
    }

    /// Phase 0: takes every free block of a pageblock that the page cache's CPU owns, and calls
    /// `each` for it. Reads every page that is not free, as the kernel would have to: the sizes of
    /// blocks in use belong to their holders.
    pub(crate) fn recover(
        &mut self,
        frames: &FrameTable,
        block: Pfn,
        mut each: impl FnMut(Pfn, Order),
    ) {
        let mut at = 0;
        while at < Order::PAGEBLOCK.pages() {
            let pfn = block.offset(at);
            let word = frames.word(pfn);
            if word.state() == FrameState::Free {
                let order = word.order();
                debug_assert!(order < Order::PAGEBLOCK, "a whole pageblock has no owner");
                self.unlink(frames, pfn, order, word.list());
                self.hand_out(frames, pfn, order, word.list(), FrameState::Cached);
                each(pfn, order);
                at += order.pages();
            } else {
                FrameTable::touch::<A>(pfn, Access::Peek);
                at += 1;
            }
        }
    }
    /// Phase 1: takes a whole pageblock for `wanted`, possibly of another type, and makes `cpu` its
    /// owner.
    pub(crate) fn take_pageblock(
        &mut self,
        frames: &FrameTable,
        wanted: MigrateType,
        cpu: CpuId,
    ) -> Option<Pfn> {
        let own = self.take_smallest(frames, Order::PAGEBLOCK, wanted);
        let pfn = own.or_else(|| self.claim(frames, Order::PAGEBLOCK, wanted))?;
        self.hand_out(frames, pfn, Order::PAGEBLOCK, wanted, FrameState::Cached);
        self.set_owner(pfn, Some(cpu));
        Some(pfn)
    }
    /// Phase 2: takes a block of this order from the type's own lists.
    pub(crate) fn take_chunk(
        &mut self,
        frames: &FrameTable,
        order: Order,
        wanted: MigrateType,
    ) -> Option<Pfn> {
        let pfn = self.take_smallest(frames, order, wanted)?;
        self.hand_out(frames, pfn, order, wanted, FrameState::Cached);
        Some(pfn)
    }
    /// As [`Buddy::free_block`], where pageblocks have owners: a fragment of an owned pageblock
    /// goes to the end of its list, where it is taken last; a whole pageblock loses its owner.
    pub(crate) fn free_fragment(&mut self, frames: &FrameTable, pfn: Pfn, order: Order) -> u32 {
        if order > Order::PAGEBLOCK && self.isolated_blocks > 0 {
            return self.free_by_pageblocks(frames, pfn, order);
        }
        let pages = order.pages() as u32;
        let Some((pfn, order, list_type)) = self.merge(frames, pfn, order) else { return 0 };
        let end = if order >= Order::PAGEBLOCK {
            self.disown(pfn, order);
            End::Front
        } else if self.owners.get(pfn).is_some() || self.merge_likely(frames, pfn, order) {
            End::Back
        } else {
            End::Front
        };
        self.link(frames, pfn, order, list_type, end);
        pages
    }

    /// Counts the free and the movable frames of a pageblock, where page caches split and merge
    /// blocks without the zone lock: only the sizes of free blocks are known, so every other page
    /// is read. A page inside a block was allocated for the type of the last head before it: page
    /// caches merge only blocks that were allocated for the same type.
    pub(super) fn census_of_pages(&self, frames: &FrameTable, block: Pfn) -> (usize, usize) {
        let (mut free, mut movable, mut at) = (0, 0, 0);
        let mut taken_as = MigrateType::Movable;
        while at < Order::PAGEBLOCK.pages() {
            let pfn = block.offset(at);
            FrameTable::touch::<A>(pfn, Access::Peek);
            let word = frames.word(pfn);
            if word.state() == FrameState::Free {
                free += word.order().pages();
                at += word.order().pages();
                continue;
            }
            if word.state() != FrameState::Inside {
                taken_as = word.taken_as();
            }
            movable += usize::from(taken_as == MigrateType::Movable);
            at += 1;
        }
        (free, movable)
    }
}
