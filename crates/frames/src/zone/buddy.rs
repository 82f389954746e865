//! The buddy allocator: free blocks of 2^0 frames up to the largest order, split on demand, merged
//! when freed.

use super::areas::{Areas, End, Part, ZoneLists};
use super::owners::Owners;
use super::{Extent, Geometry, ZoneId};
use crate::frame::{FrameList, FrameState, FrameTable, FrameWord, MigrateType};
use crate::place::{Place, Table};
use core::ops::Range;
use mmscale_arch::{Access, Cpu, Op, Order, Pfn};

/// The bits of a pageblock's byte that are its type.
pub(super) const TYPE_MASK: u8 = 3;
const _: () = assert!(MigrateType::COUNT <= TYPE_MASK as usize + 1);

/// The free blocks of a zone: the data of the zone lock.
///
/// Memory that was never used is one range of largest blocks; [`Buddy::first_use`] puts one of them
/// on a list at a time, so initialisation costs nothing per block. All of it is movable, as all
/// memory is at first.
pub struct Buddy<A: Cpu> {
    pub(super) zone: ZoneId,
    pub(super) geometry: Geometry,
    /// All frames of the zone.
    pub(super) span: Range<u32>,
    /// Frames that were never on a list; whole largest blocks.
    pub(super) untouched: Range<u32>,
    pub(super) areas: Areas<A>,
    /// A [`MigrateType`] for each pageblock that the span has a part of; zero is movable. The
    /// upper bits are flags of the module `isolate`.
    pub(super) block_types: Table<u8>,
    pub(super) first_block: usize,
    /// The owner of each pageblock, if pageblocks have owners.
    pub(super) owners: Owners<A>,
    /// By CPU: the number of pageblocks that it owns.
    pub(super) owned: Table<u32>,
    /// Free blocks of all orders in isolated pageblocks, and the number of their pages.
    pub(super) isolated: FrameList,
    pub(super) isolated_pages: u64,
    /// Pageblocks that are isolated, and those that are offline.
    pub(super) isolated_blocks: u32,
    pub(super) offline_blocks: u32,
}

fn in_u32(range: Range<usize>) -> Range<u32> {
    range.start as u32..range.end as u32
}

impl<A: Cpu> Buddy<A> {
    /// Creates an allocator for these frames, none of which is free before [`Buddy::free_all`].
    /// `owners` CPUs may own pageblocks.
    pub(crate) fn new(
        place: &mut Place,
        (geometry, lists): (Geometry, ZoneLists),
        zone: ZoneId,
        extent: &Extent,
        owners: usize,
    ) -> Self {
        let span = in_u32(extent.span());
        let first_block = geometry.block_of(Pfn::new(span.start as usize));
        let end_block = (span.end as usize).div_ceil(geometry.block_pages());
        let areas = match lists {
            ZoneLists::Whole => Areas::whole(place, zone),
            ZoneLists::Superpageblocks => Areas::by_gib(place, geometry, zone, &span),
        };
        let owned_blocks = first_block..if owners > 0 { end_block } else { first_block };
        Self {
            zone,
            geometry,
            untouched: span.end..span.end,
            span,
            areas,
            block_types: place.zeroed(end_block - first_block),
            first_block,
            owners: Owners::new(place, owned_blocks),
            owned: place.zeroed(owners),
            isolated: FrameList::EMPTY,
            isolated_pages: 0,
            isolated_blocks: 0,
            offline_blocks: 0,
        }
    }
    /// Makes all frames free and movable. The ends of the span and of holes need no alignment.
    pub(crate) fn free_all(&mut self, frames: &FrameTable, extent: &Extent) {
        let geometry = self.geometry;
        let block = geometry.max.pages() as u32;
        let whole = |part: Range<u32>| {
            let (from, to) = (part.start.next_multiple_of(block), part.end & !(block - 1));
            if from < to { from..to } else { part.end..part.end }
        };
        // Only one stretch may be unused. The last of the largest: a zone without holes has one.
        let stretches = || extent.stretches().map(in_u32);
        let largest = stretches().max_by_key(|part| whole(part.clone()).len());
        let largest = largest.unwrap_or(self.span.clone());
        let untouched = whole(largest.clone());
        self.untouched = untouched.clone();
        self.areas.add_unused(geometry.max, untouched.len() as u32 >> geometry.max.get());
        for part in stretches() {
            if part == largest {
                self.add_ends(frames, part.start..untouched.start);
                self.add_ends(frames, untouched.end..part.end);
            } else {
                self.add_ends(frames, part);
            }
        }
    }
    /// The owners of pageblocks, in words that any CPU may read.
    pub(crate) fn owners(&self) -> Owners<A> {
        self.owners.clone()
    }
    /// Puts a range on the lists, as blocks as large as possible.
    fn add_ends(&mut self, frames: &FrameTable, range: Range<u32>) {
        let mut at = range.start;
        while at < range.end {
            let max = self.geometry.max;
            let fits = (range.end - at).ilog2().min(at.trailing_zeros()).min(max.get().into());
            let order = Order::large(fits as u8).unwrap_or(max);
            self.link(frames, Pfn::new(at as usize), order, MigrateType::Movable, End::Back);
            at += 1 << fits;
        }
    }
    /// The exact number of free pages.
    pub fn free_pages(&self) -> u64 {
        let blocks = self.areas.blocks().iter().enumerate();
        blocks.map(|(order, &blocks)| u64::from(blocks) << order).sum()
    }
    /// The number of free blocks of one order.
    pub fn free_blocks(&self, order: Order) -> u32 {
        self.areas.blocks()[order.index()]
    }
    /// The GiB that the zone has a part of, and those with a pageblock that is not movable.
    pub fn tainted_gib(&self) -> (u32, u32) {
        let block_order = self.geometry.gib_order() - self.geometry.pageblock.get();
        let gib = |at: usize| (self.first_block + at) >> block_order;
        let (mut all, mut tainted) = (0, 0);
        let (mut last, mut last_tainted) = (None, None);
        for (at, bits) in self.block_types.iter().enumerate() {
            all += u32::from(last.replace(gib(at)) != Some(gib(at)));
            if bits & TYPE_MASK != MigrateType::Movable as u8 {
                tainted += u32::from(last_tainted.replace(gib(at)) != Some(gib(at)));
            }
        }
        (all, tainted)
    }
    /// Bytes of the lists.
    pub(crate) fn list_bytes(&self) -> usize {
        self.areas.bytes()
    }
    /// Compares the counts of superpageblocks with lists and pageblocks. An error is the first
    /// frame of a superpageblock with a wrong count.
    pub(crate) fn check_areas(&self, frames: &FrameTable) -> Result<(), Pfn> {
        self.areas.check(frames, |start, pages| {
            let blocks = start.index() / self.geometry.block_pages()..;
            let blocks = blocks.take(pages / self.geometry.block_pages());
            let bits =
                blocks.filter_map(|at| self.block_types.get(at.checked_sub(self.first_block)?));
            bits.filter(|&bits| bits & TYPE_MASK != MigrateType::Movable as u8).count() as u32
        })
    }
    /// The type of the pageblock that holds `pfn`.
    #[inline]
    pub fn block_type(&self, pfn: Pfn) -> MigrateType {
        let bits = self.block_types[self.geometry.block_of(pfn) - self.first_block];
        MigrateType::from_index(usize::from(bits & TYPE_MASK))
    }
    /// The isolation flags of the pageblock that holds `pfn`; 0: neither isolated nor offline.
    #[inline]
    pub(super) fn isolation(&self, pfn: Pfn) -> u8 {
        self.block_types[self.geometry.block_of(pfn) - self.first_block] & !TYPE_MASK
    }
    /// Sets the type of the pageblocks of the block at `pfn`, none of which is isolated, and ends
    /// their ownership.
    pub(super) fn set_block_type(&mut self, pfn: Pfn, order: Order, to: MigrateType) {
        let first = self.geometry.block_of(pfn) - self.first_block;
        let count = order.pages().div_ceil(self.geometry.block_pages());
        let types = &mut self.block_types[first..first + count];
        let fixed = |&of: &u8| i32::from(of & TYPE_MASK != MigrateType::Movable as u8);
        let before: i32 = types.iter().map(fixed).sum();
        types.fill(to as u8);
        self.areas.taint(pfn, count as i32 * fixed(&(to as u8)) - before);
        self.disown(pfn, order);
    }
    /// Whether the zone has the whole block.
    #[inline]
    pub(crate) fn spans(&self, pfn: Pfn, order: Order) -> bool {
        let start = pfn.index() as u32;
        self.span.start <= start && start as usize + order.pages() <= self.span.end as usize
    }
    pub(crate) fn untouched(&self) -> Range<u32> {
        self.untouched.clone()
    }
    /// Corrupts the number of free blocks.
    #[cfg(test)]
    pub(crate) fn miscount(&mut self, order: Order) {
        self.areas.miscount(order);
    }
    /// Corrupts the free pages of a superpageblock.
    #[cfg(test)]
    pub(crate) fn miscount_superpageblock(&mut self, pfn: Pfn) {
        self.areas.miscount_superpageblock(pfn);
    }
    /// Corrupts a pageblock's type: its free blocks are on another type's lists.
    #[cfg(test)]
    pub(crate) fn mistype(&mut self, pfn: Pfn, to: MigrateType) {
        self.set_block_type(pfn, self.geometry.pageblock, to);
    }
    /// Corrupts a list: adds a free block without merging it.
    #[cfg(test)]
    pub(crate) fn misplace(
        &mut self,
        frames: &FrameTable,
        pfn: Pfn,
        order: Order,
        list_type: MigrateType,
    ) {
        self.link(frames, pfn, order, list_type, End::Front);
    }
    pub(crate) fn lists(&self) -> impl Iterator<Item = (Order, MigrateType, &FrameList)> {
        self.areas.lists()
    }

    /// Puts a block that was never used on its list, if there is one: the first of them. With
    /// superpageblocks the last one for pages that cannot be moved, so that these stay apart, if it
    /// is in this part of the zone.
    #[inline]
    pub(super) fn first_use(
        &mut self,
        frames: &FrameTable,
        part: Part,
        wanted: MigrateType,
    ) -> Option<Pfn> {
        if self.untouched.is_empty() {
            return None;
        }
        let max = self.geometry.max;
        let size = max.pages() as u32;
        let from_start = part == Part::Whole || wanted == MigrateType::Movable;
        let at = if from_start { self.untouched.start } else { self.untouched.end - size };
        let pfn = Pfn::new(at as usize);
        if !from_start && !self.areas.is_in(pfn, part) {
            return None;
        }
        if from_start {
            self.untouched.start += size;
        } else {
            self.untouched.end -= size;
        }
        self.areas.remove_unused(max);
        self.link(frames, pfn, max, MigrateType::Movable, End::Front);
        Some(pfn)
    }
    /// Puts a block on a free list.
    #[inline]
    pub(super) fn link(
        &mut self,
        frames: &FrameTable,
        pfn: Pfn,
        order: Order,
        list_type: MigrateType,
        end: End,
    ) {
        A::work(Op::BuddyPut, 1);
        self.areas.link(frames, (pfn, order), list_type, end);
        let zone = self.zone.index() as u8;
        let taken_as = MigrateType::Movable;
        frames.set_word(pfn, FrameWord::new(FrameState::Free, order, list_type, taken_as, zone));
    }
    /// Removes a block from its free list. The caller sets its record.
    #[inline]
    pub(super) fn unlink(
        &mut self,
        frames: &FrameTable,
        pfn: Pfn,
        order: Order,
        list_type: MigrateType,
    ) {
        A::work(Op::BuddyTake, 1);
        self.areas.unlink(frames, (pfn, order), list_type);
    }
    /// Splits the block at `pfn`, which is on no list, from order `from` down to `to`; the upper
    /// halves become free blocks of `list_type`.
    #[inline]
    pub(super) fn split(
        &mut self,
        frames: &FrameTable,
        pfn: Pfn,
        from: Order,
        to: Order,
        list_type: MigrateType,
    ) {
        let mut order = from;
        while order > to
            && let Some(half) = order.down()
        {
            order = half;
            A::work(Op::BuddyStep, 1);
            self.link(frames, pfn.offset(half.pages()), half, list_type, End::Front);
        }
    }
    /// Takes the smallest block of `list_type` that is large enough, split to `order`.
    #[inline]
    pub(super) fn take_smallest(
        &mut self,
        frames: &FrameTable,
        order: Order,
        list_type: MigrateType,
    ) -> Option<Pfn> {
        let parts = self.areas.parts(list_type);
        let (pfn, at) = parts.iter().find_map(|&part| {
            let listed = self.areas.smallest(part, order, list_type);
            listed.or_else(|| {
                let unused = list_type == MigrateType::Movable && order <= self.geometry.max;
                let pfn = unused.then(|| self.first_use(frames, part, list_type))??;
                Some((pfn, self.geometry.max))
            })
        })?;
        self.unlink(frames, pfn, at, list_type);
        self.split(frames, pfn, at, order, list_type);
        Some(pfn)
    }
    /// Sets the record of a block that was just taken.
    #[inline]
    pub(super) fn hand_out(
        &self,
        frames: &FrameTable,
        pfn: Pfn,
        order: Order,
        taken_as: MigrateType,
        state: FrameState,
    ) {
        let list = self.block_type(pfn);
        let zone = self.zone.index() as u8;
        frames.set_word(pfn, FrameWord::new(state, order, list, taken_as, zone));
    }
    /// Frees a block and merges it with its buddies as far as they are free.
    ///
    /// The block is the caller's, and on no list. A block whose next merge is likely (the buddy one
    /// order up is free) goes to the end of its list, where it is allocated late and may merge
    /// before. Returns the number of its pages that can be allocated now: those of isolated
    /// pageblocks cannot.
    #[inline]
    pub(crate) fn free_block(&mut self, frames: &FrameTable, pfn: Pfn, order: Order) -> u32 {
        if order > self.geometry.pageblock && self.isolated_blocks > 0 {
            return self.free_by_pageblocks(frames, pfn, order);
        }
        let pages = order.pages() as u32;
        let Some((pfn, order, list_type)) = self.merge(frames, pfn, order) else { return 0 };
        let end = if self.merge_likely(frames, pfn, order) { End::Back } else { End::Front };
        self.link(frames, pfn, order, list_type, end);
        pages
    }
    /// Merges a block with its buddies as far as they are free; the result is on no list. Returns
    /// `None` if its pageblock is isolated: the block is then on the list of isolated blocks.
    #[inline]
    pub(super) fn merge(
        &mut self,
        frames: &FrameTable,
        pfn: Pfn,
        order: Order,
    ) -> Option<(Pfn, Order, MigrateType)> {
        debug_assert!(self.spans(pfn, order), "the block is of another zone");
        let list_type = self.block_type(pfn);
        if self.isolation(pfn) != 0 {
            self.free_isolated(frames, pfn, order);
            return None;
        }
        let (mut pfn, mut order) = (pfn, order);
        let max = self.geometry.max;
        while let Some(up) = order.up().filter(|&up| up <= max) {
            let buddy = pfn.buddy(order);
            if !self.spans(buddy, order) {
                break;
            }
            // If the buddy is not free, its holder may be writing to its record.
            FrameTable::touch::<A>(buddy, Access::Peek);
            if !frames.is_free_head(buddy, order) {
                break;
            }
            let buddy_type = frames.word(buddy).list();
            if order >= self.geometry.pageblock && self.isolation(buddy) != 0 {
                break;
            }
            self.unlink(frames, buddy, order, buddy_type);
            if order >= self.geometry.pageblock && buddy_type != list_type {
                self.set_block_type(buddy, order, list_type);
            }
            A::work(Op::BuddyStep, 1);
            frames.set_inside(pfn.max(buddy));
            pfn = pfn.min(buddy);
            order = up;
        }
        Some((pfn, order, list_type))
    }
    #[inline]
    pub(super) fn merge_likely(&self, frames: &FrameTable, pfn: Pfn, order: Order) -> bool {
        let Some(up) = order.up() else { return false };
        if up >= self.geometry.max {
            return false;
        }
        let higher = pfn.align_down(up).buddy(up);
        if !self.spans(higher, up) {
            return false;
        }
        FrameTable::touch::<A>(higher, Access::Peek);
        frames.is_free_head(higher, up)
    }
}
