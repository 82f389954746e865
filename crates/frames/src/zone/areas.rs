//! The lists of a zone's free blocks: one set of them, or one for each GiB.
//!
//! A *superpageblock* is a GiB of the zone. One with a pageblock that is not movable is *tainted*,
//! the others are *clean*. With a set of lists for each of them, allocations keep to one kind as
//! long as it has memory: so pages that cannot be moved stay together, and whole GiB stay movable.

use crate::frame::{FrameList, FrameTable, MigrateType};
use crate::place::{Place, Table};
use core::marker::PhantomData;
use core::ops::Range;
use mmscale_arch::{Access, Cpu, Line, ORDERS, Op, Order, Pfn};

use super::{Geometry, ZoneId};

mmscale_arch::policies! {
    /// The lists of a zone's free blocks. `Superpageblocks` is "1GB superpageblock memory
    /// allocation" of linux-mm (April and May 2026), without its compaction and evacuation.
    pub enum ZoneLists: "lists", "lists of a zone's free blocks" {
        /// Has one list for each order and type of a zone.
        Whole = "stock",
        /// Has such lists for each GiB of the zone: movable pages come from the fullest GiB that
        /// has only movable ones, others from GiB that have others already. With caches=blockmap a
        /// zone has no lists.
        Superpageblocks = "spb",
    }
}

/// An end of a list.
#[derive(Clone, Copy)]
pub(super) enum End {
    Front,
    Back,
}

/// The part of a zone that a search is limited to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// All of it: the zone has one set of lists.
    Whole,
    /// Superpageblocks with a pageblock that is not movable.
    Tainted,
    /// All other superpageblocks.
    Clean,
}

impl Part {
    /// The parts in the order in which allocations of a type try them.
    fn of_sets(wanted: MigrateType) -> &'static [Self] {
        match wanted {
            MigrateType::Movable => &[Self::Clean, Self::Tainted],
            MigrateType::Unmovable | MigrateType::Reclaimable => &[Self::Tainted, Self::Clean],
        }
    }
}

/// The superpageblock that a search prefers among those of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Prefer {
    /// The one with the fewest free pages.
    Fullest,
    /// The one with the most.
    Emptiest,
}

/// Free blocks by order and type.
struct AreaSet {
    lists: [[FrameList; MigrateType::COUNT]; ORDERS],
    /// By type: a bit for each order that has a block.
    filled: [u16; MigrateType::COUNT],
}

const _: () = assert!(ORDERS <= u16::BITS as usize);

impl AreaSet {
    const EMPTY: Self = Self {
        lists: [const { [const { FrameList::EMPTY }; MigrateType::COUNT] }; ORDERS],
        filled: [0; MigrateType::COUNT],
    };

    #[inline]
    fn first(&self, order: Order, list_type: MigrateType) -> Option<Pfn> {
        self.lists[order.index()][list_type.index()].first()
    }
    /// The smallest order from `order` up that has a block of this type.
    #[inline]
    fn smallest(&self, order: Order, list_type: MigrateType) -> Option<Order> {
        let filled = self.filled[list_type.index()] >> order.get();
        Order::large(order.get() + filled.trailing_zeros() as u8).filter(|_| filled != 0)
    }
}

/// The lists of a zone's free blocks, with the numbers of their blocks.
pub(super) struct Areas<A: Cpu> {
    zone: ZoneId,
    /// By order: the number of blocks on all lists; for the largest order with those never used.
    blocks: [u32; ORDERS],
    /// One set, or one for each superpageblock.
    sets: Table<AreaSet>,
    superpageblocks: Option<Superpageblocks>,
    arch: PhantomData<fn() -> A>,
}

impl<A: Cpu> Areas<A> {
    /// One set of lists, all empty.
    pub(super) fn whole(place: &mut Place, zone: ZoneId) -> Self {
        Self::of(place, zone, 1, None)
    }
    /// A set of lists for each GiB that `span` has a part of, all empty.
    pub(super) fn by_gib(
        place: &mut Place,
        geometry: Geometry,
        zone: ZoneId,
        span: &Range<u32>,
    ) -> Self {
        let blocks = Superpageblocks::new(place, geometry, span);
        Self::of(place, zone, Superpageblocks::numbers(geometry, span).len(), Some(blocks))
    }
    fn of(
        place: &mut Place,
        zone: ZoneId,
        sets: usize,
        superpageblocks: Option<Superpageblocks>,
    ) -> Self {
        Self {
            zone,
            blocks: [0; ORDERS],
            sets: place.table(sets, |_| AreaSet::EMPTY),
            superpageblocks,
            arch: PhantomData,
        }
    }
    /// Bytes of the sets and of the counts of superpageblocks.
    pub(super) fn bytes(&self) -> usize {
        let counts = self.superpageblocks.as_ref().map_or(0, Superpageblocks::bytes);
        size_of_val(&*self.sets) + counts
    }
    /// By order: the number of free blocks.
    pub(super) fn blocks(&self) -> &[u32; ORDERS] {
        &self.blocks
    }
    /// Adds blocks of the largest order that are on no list, because they were never used.
    pub(super) fn add_unused(&mut self, order: Order, blocks: u32) {
        self.blocks[order.index()] += blocks;
    }
    /// Removes one of them, which the caller puts on a list.
    pub(super) fn remove_unused(&mut self, order: Order) {
        self.blocks[order.index()] -= 1;
    }
    /// The lists of all sets, with their order and type.
    pub(super) fn lists(&self) -> impl Iterator<Item = (Order, MigrateType, &FrameList)> {
        self.sets.iter().flat_map(|set| {
            set.lists.iter().enumerate().flat_map(|(order, lists)| {
                let order = Order::large(order as u8).unwrap_or(Order::ZERO);
                let lists = MigrateType::ALL.into_iter().zip(lists);
                lists.map(move |(list_type, list)| (order, list_type, list))
            })
        })
    }
    #[inline]
    fn set_of(&self, pfn: Pfn) -> usize {
        self.superpageblocks.as_ref().map_or(0, |blocks| blocks.number(pfn))
    }
    /// Charges a write of the line of an order's lists.
    #[inline]
    fn touch_area(&self, set: usize, order: Order) {
        let lines = match &self.superpageblocks {
            None => self.zone.index(),
            Some(blocks) => blocks.lines(self.zone, set),
        };
        A::touch(Line::FreeArea(lines as u32 * 16 + u32::from(order.get())), Access::Write);
    }
    /// Puts a block on its list.
    #[inline]
    pub(super) fn link(
        &mut self,
        frames: &FrameTable,
        (pfn, order): (Pfn, Order),
        list_type: MigrateType,
        end: End,
    ) {
        let at = self.set_of(pfn);
        self.touch_area(at, order);
        let set = &mut self.sets[at];
        let list = &mut set.lists[order.index()][list_type.index()];
        match end {
            End::Front => list.push_front::<A>(frames, pfn),
            End::Back => list.push_back::<A>(frames, pfn),
        }
        set.filled[list_type.index()] |= 1 << order.get();
        self.blocks[order.index()] += 1;
        if let Some(blocks) = &mut self.superpageblocks {
            blocks.count::<A>(self.zone, at, order.pages() as i64, 0);
        }
    }
    /// Removes a block from its list.
    #[inline]
    pub(super) fn unlink(
        &mut self,
        frames: &FrameTable,
        (pfn, order): (Pfn, Order),
        list_type: MigrateType,
    ) {
        let at = self.set_of(pfn);
        self.touch_area(at, order);
        let set = &mut self.sets[at];
        let list = &mut set.lists[order.index()][list_type.index()];
        list.unlink::<A>(frames, pfn);
        if list.is_empty() {
            set.filled[list_type.index()] &= !(1 << order.get());
        }
        self.blocks[order.index()] -= 1;
        if let Some(blocks) = &mut self.superpageblocks {
            blocks.count::<A>(self.zone, at, -(order.pages() as i64), 0);
        }
    }
    /// Counts pageblocks of the superpageblock of `pfn` that become other than movable, or, if
    /// negative, movable.
    #[inline]
    pub(super) fn taint(&mut self, pfn: Pfn, pageblocks: i32) {
        let at = self.set_of(pfn);
        if let Some(blocks) = &mut self.superpageblocks
            && pageblocks != 0
        {
            blocks.count::<A>(self.zone, at, 0, pageblocks);
        }
    }
    /// The parts of the zone in the order in which allocations of `wanted` try them.
    #[inline]
    pub(super) fn parts(&self, wanted: MigrateType) -> &'static [Part] {
        if self.superpageblocks.is_some() { Part::of_sets(wanted) } else { &[Part::Whole] }
    }
    /// The parts in which they look for blocks of other types. A clean superpageblock has none for
    /// movable pages.
    #[inline]
    pub(super) fn fallback_parts(&self, wanted: MigrateType) -> &'static [Part] {
        match wanted {
            MigrateType::Movable if self.superpageblocks.is_some() => &[Part::Tainted],
            _ => self.parts(wanted),
        }
    }
    /// Whether the superpageblock of `pfn` is of this part.
    pub(super) fn is_in(&self, pfn: Pfn, part: Part) -> bool {
        self.superpageblocks.as_ref().is_none_or(|blocks| blocks.part(blocks.number(pfn)) == part)
    }
    /// The first block of the smallest order from `order` up: in the first superpageblock of the
    /// part, the fullest first, that has one.
    #[inline]
    pub(super) fn smallest(
        &self,
        part: Part,
        order: Order,
        list_type: MigrateType,
    ) -> Option<(Pfn, Order)> {
        let in_set = |set: &AreaSet| {
            let at = set.smallest(order, list_type)?;
            Some((set.first(at, list_type)?, at))
        };
        self.find(part, Prefer::Fullest, in_set)
    }
    /// The first block of exactly this order, of the first of these types that has one.
    #[inline]
    pub(super) fn exact<const N: usize>(
        &self,
        (part, prefer): (Part, Prefer),
        order: Order,
        types: [MigrateType; N],
    ) -> Option<(MigrateType, Pfn)> {
        let in_set = |set: &AreaSet| types.iter().find_map(|&of| Some((of, set.first(order, of)?)));
        self.find(part, prefer, in_set)
    }
    #[inline]
    fn find<T>(
        &self,
        part: Part,
        prefer: Prefer,
        in_set: impl Fn(&AreaSet) -> Option<T>,
    ) -> Option<T> {
        match &self.superpageblocks {
            None => in_set(&self.sets[0]),
            Some(blocks) => blocks.in_order(part, prefer).find_map(|at| {
                blocks.touch_counts::<A>(self.zone, at, Access::Read);
                A::work(Op::BuddyStep, 1);
                in_set(&self.sets[at])
            }),
        }
    }
    /// Compares the counts of superpageblocks with their lists, and with `tainted`: the number of
    /// pageblocks of a range of frames that are not movable. An error is the first frame of a
    /// superpageblock with a wrong count.
    pub(super) fn check(
        &self,
        frames: &FrameTable,
        tainted: impl Fn(Pfn, usize) -> u32,
    ) -> Result<(), Pfn> {
        let Some(blocks) = &self.superpageblocks else { return Ok(()) };
        for (at, set) in self.sets.iter().enumerate() {
            let wrong = Err(blocks.start(at));
            let mut free = 0;
            for (order, lists) in set.lists.iter().enumerate() {
                for (list, filled) in lists.iter().zip(set.filled) {
                    for (pfn, _) in list.walk(frames) {
                        free += 1 << order;
                        if blocks.number(pfn) != at {
                            return wrong;
                        }
                    }
                    if (filled >> order & 1 == 1) == list.is_empty() {
                        return wrong;
                    }
                }
            }
            let tainted = tainted(blocks.start(at), blocks.pages);
            if !blocks.is_right(at, free, tainted) {
                return wrong;
            }
        }
        Ok(())
    }
    /// Corrupts the count of free pages of a superpageblock.
    #[cfg(test)]
    pub(crate) fn miscount_superpageblock(&mut self, pfn: Pfn) {
        let at = self.set_of(pfn);
        if let Some(blocks) = &mut self.superpageblocks {
            blocks.counts[at].free += 1;
        }
    }
    /// Corrupts the number of blocks of an order.
    #[cfg(test)]
    pub(crate) fn miscount(&mut self, order: Order) {
        self.blocks[order.index()] += 1;
    }
}

/// Superpageblocks by the pages that are free, in quarters, rounded up.
const QUARTERS: usize = 4;

/// The counts of one superpageblock.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Pages on its lists.
    free: u32,
    /// Pageblocks that are not movable.
    tainted: u32,
    /// The class that it is in; `None`: it has no free page.
    class: Option<u8>,
}

/// The counts of a zone's superpageblocks, and the order in which searches try them.
struct Superpageblocks {
    /// The number of the zone's first GiB, and the order and the pages of one.
    first: usize,
    order: u8,
    pages: usize,
    counts: Table<Counts>,
    /// By class, a bit for each superpageblock: clean ones by their free quarters, then tainted
    /// ones. In the kernel these are linked lists.
    classes: [Table<u64>; 2 * QUARTERS],
}

impl Superpageblocks {
    fn new(place: &mut Place, geometry: Geometry, span: &Range<u32>) -> Self {
        let (order, numbers) = (geometry.gib_order(), Self::numbers(geometry, span));
        let words = numbers.len().div_ceil(u64::BITS as usize);
        Self {
            first: numbers.start,
            order,
            pages: 1 << order,
            counts: place.table(numbers.len(), |_| Counts::default()),
            classes: core::array::from_fn(|_| place.zeroed(words)),
        }
    }
    /// The numbers of the GiB that `span` has a part of.
    fn numbers(geometry: Geometry, span: &Range<u32>) -> Range<usize> {
        let order = geometry.gib_order();
        span.start as usize >> order..(span.end as usize).div_ceil(1 << order)
    }
    fn bytes(&self) -> usize {
        let words: usize = self.classes.iter().map(|class| size_of_val(&**class)).sum();
        size_of_val(&*self.counts) + words
    }
    #[inline]
    fn number(&self, pfn: Pfn) -> usize {
        (pfn.index() >> self.order) - self.first
    }
    fn start(&self, at: usize) -> Pfn {
        Pfn::new((self.first + at) << self.order)
    }
    /// The number of the lines of a superpageblock, which no other one has: zones are numbered in
    /// the order of the memory map, and two of them share a GiB at most with their neighbours.
    #[inline]
    fn lines(&self, zone: ZoneId, at: usize) -> usize {
        ZoneId::MAX + zone.index() + self.first + at
    }
    /// Charges an access to the line of a superpageblock's counts, the last of its lines.
    #[inline]
    fn touch_counts<A: Cpu>(&self, zone: ZoneId, at: usize, access: Access) {
        A::touch(Line::FreeArea(self.lines(zone, at) as u32 * 16 + 15), access);
    }
    #[inline]
    fn part(&self, at: usize) -> Part {
        if self.counts[at].tainted > 0 { Part::Tainted } else { Part::Clean }
    }
    fn class(&self, at: usize) -> Option<u8> {
        let quarters = (self.counts[at].free as usize * QUARTERS).div_ceil(self.pages);
        let tainted = usize::from(self.part(at) == Part::Tainted);
        quarters.checked_sub(1).map(|quarters| (tainted * QUARTERS + quarters) as u8)
    }
    /// Changes the counts of a superpageblock, and its class.
    #[inline]
    fn count<A: Cpu>(&mut self, zone: ZoneId, at: usize, pages: i64, tainted: i32) {
        self.touch_counts::<A>(zone, at, Access::Write);
        let counts = &mut self.counts[at];
        counts.free = (i64::from(counts.free) + pages) as u32;
        counts.tainted = counts.tainted.wrapping_add_signed(tainted);
        let (before, now) = (counts.class, self.class(at));
        if before == now {
            return;
        }
        A::work(Op::BuddyStep, 1);
        let (word, bit) = (at / 64, 1 << (at % 64));
        if let Some(class) = before {
            self.classes[usize::from(class)][word] &= !bit;
        }
        if let Some(class) = now {
            self.classes[usize::from(class)][word] |= bit;
        }
        self.counts[at].class = now;
    }
    /// The superpageblocks of a part that have free pages, in the order that is preferred.
    fn in_order(&self, part: Part, prefer: Prefer) -> impl Iterator<Item = usize> {
        let base = if part == Part::Tainted { QUARTERS } else { 0 };
        (0..QUARTERS).flat_map(move |nth| {
            let quarter = match prefer {
                Prefer::Fullest => nth,
                Prefer::Emptiest => QUARTERS - 1 - nth,
            };
            self.classes[base + quarter]
                .iter()
                .enumerate()
                .flat_map(|(word, &bits)| ones(bits).map(move |bit| word * 64 + bit))
        })
    }
    fn is_right(&self, at: usize, free: u32, tainted: u32) -> bool {
        let counts = self.counts[at];
        let is_in = |class: usize| self.classes[class][at / 64] >> (at % 64) & 1 == 1;
        let class = counts.class.map(usize::from);
        (counts.free, counts.tainted, counts.class) == (free, tainted, self.class(at))
            && (0..self.classes.len()).all(|of| is_in(of) == (Some(of) == class))
    }
}

/// The numbers of the bits that are set, smallest first.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as usize;
        let found = (bits != 0).then_some(bit);
        bits &= bits.wrapping_sub(1);
        found
    })
}
