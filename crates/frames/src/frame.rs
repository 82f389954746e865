//! Records of frames, 12 bytes each, and lists of them; or only their states and orders, a byte
//! each.
//!
//! A frame is either the *head* of a block of 2^order frames, or inside one. Only the records of
//! heads have content. The record of a frame inside a block is all zero, and so is that of a frame
//! that was never used: the table is zeroed memory, so unused frames cost nothing.
//!
//! The state of the head ([`FrameState`]) determines who may write a frame's record. Any CPU may
//! read the state: the buddy allocator checks whether a neighbour that it does not own is free.
//! Whether a frame is free changes only under the zone lock, so the check is stable under that
//! lock, although other fields of the same record may change concurrently. The fields are therefore
//! relaxed atomics (plain loads and stores on hardware); the locks order them.

use crate::place::{Place, Table, Zero};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use mmscale_arch::{Access, Cpu, Line, Order, Pfn};

/// Mobility of a block's pages; blocks of one type share pageblocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum MigrateType {
    /// Pages that can be migrated: user memory. All memory is movable at first, so it is zero.
    Movable = 0,
    /// Pages that cannot be migrated.
    Unmovable = 1,
    /// Pages that cannot be migrated, but can be freed on demand: caches.
    Reclaimable = 2,
}

impl MigrateType {
    /// The number of types.
    pub const COUNT: usize = 3;
    /// All types.
    pub const ALL: [Self; Self::COUNT] = [Self::Movable, Self::Unmovable, Self::Reclaimable];

    /// The type as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
    /// The type with this index. Panics unless it is below `COUNT`.
    #[inline]
    pub const fn from_index(index: usize) -> Self {
        match index {
            0 => Self::Movable,
            1 => Self::Unmovable,
            2 => Self::Reclaimable,
            _ => panic!("no migrate type has such an index"),
        }
    }
    /// The types that an allocation tries when its own has no free blocks, in Linux's order.
    #[inline]
    pub const fn fallbacks(self) -> [Self; 2] {
        match self {
            Self::Unmovable => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }
}

/// State of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameState {
    /// Not the head of a block: inside one, never used, or no memory. Written by the owner of the
    /// head.
    Inside = 0,
    /// Head of a free block on a buddy list. Written under the zone lock.
    Free = 1,
    /// Head of a block on a page cache's list. Written under that cache's lock.
    Cached = 2,
    /// Head of an allocated block. Written by its holder.
    Held = 3,
}

/// The number of states.
const STATES: u8 = 4;
const _: () = assert!(FrameState::Held as u8 + 1 == STATES && FrameState::Inside as u8 == 0);

/// The record of the head of a block.
///
/// | bits | content |
/// |---|---|
/// | 0-3 | the state |
/// | 4-7 | the order |
/// | 8-11 | the list: see [`FrameWord::list`] |
/// | 12-15 | the type for which the zone allocated it |
/// | 16-23 | the zone |
/// | 24 | whether it may merge in its page cache |
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameWord(u32);

const STATE_MASK: u32 = 0xf;
const SIZE_MASK: u32 = u8::MAX as u32;
const ORDER_SHIFT: u32 = 4;
const LIST_SHIFT: u32 = 8;
const TAKEN_SHIFT: u32 = 12;
const ZONE_SHIFT: u32 = 16;
const MAY_MERGE: u32 = 1 << 24;

impl FrameWord {
    /// A block of `zone` in `state`.
    #[inline]
    pub(crate) const fn new(
        state: FrameState,
        order: Order,
        list: MigrateType,
        taken_as: MigrateType,
        zone: u8,
    ) -> Self {
        Self(
            state as u32
                | (order.get() as u32) << ORDER_SHIFT
                | (list as u32) << LIST_SHIFT
                | (taken_as as u32) << TAKEN_SHIFT
                | (zone as u32) << ZONE_SHIFT,
        )
    }
    /// The state and the order, as the record has them.
    #[inline]
    const fn head(state: FrameState, order: Order) -> u8 {
        state as u8 | order.get() << ORDER_SHIFT
    }
    /// The record with another state.
    #[inline]
    pub(crate) const fn with_state(self, state: FrameState) -> Self {
        Self(self.0 & !STATE_MASK | state as u32)
    }
    /// The record with another order.
    #[inline]
    pub(crate) const fn with_order(self, order: Order) -> Self {
        Self(self.0 & !(0xf << ORDER_SHIFT) | (order.get() as u32) << ORDER_SHIFT)
    }
    /// The record of a block that may merge with its buddy in the page cache that has both.
    #[inline]
    pub(crate) const fn merging(self) -> Self {
        Self(self.0 | MAY_MERGE)
    }
    /// The record of a block that merges only in its zone.
    #[inline]
    pub(crate) const fn not_merging(self) -> Self {
        Self(self.0 & !MAY_MERGE)
    }
    /// Whether the block may merge with its buddy in the page cache that has both.
    #[inline]
    pub const fn may_merge(self) -> bool {
        self.0 & MAY_MERGE != 0
    }
    /// Whether the block is cached, of exactly this order, and may merge.
    #[inline]
    pub(crate) const fn merges_at(self, order: Order) -> bool {
        self.may_merge() && self.is(FrameState::Cached, order)
    }
    /// Whether the frame is the head of a block of exactly this order in this state.
    #[inline]
    pub const fn is(self, state: FrameState, order: Order) -> bool {
        (self.0 & SIZE_MASK) as u8 == Self::head(state, order)
    }
    /// The state of the frame.
    #[inline]
    pub const fn state(self) -> FrameState {
        match self.0 & STATE_MASK {
            0 => FrameState::Inside,
            1 => FrameState::Free,
            2 => FrameState::Cached,
            _ => FrameState::Held,
        }
    }
    /// The size of the block.
    #[inline]
    pub const fn order(self) -> Order {
        match Order::large((self.0 >> ORDER_SHIFT & 0xf) as u8) {
            Some(order) => order,
            None => panic!("a frame record is damaged"),
        }
    }
    /// The type of the list that a free block is on. For other blocks: the type of its pageblock
    /// when its zone allocated it, which selects the page-cache list into which it is freed.
    #[inline]
    pub const fn list(self) -> MigrateType {
        MigrateType::from_index((self.0 >> LIST_SHIFT & 0xf) as usize)
    }
    /// The type for which the zone allocated the block; changes only under the zone lock.
    #[inline]
    pub const fn taken_as(self) -> MigrateType {
        MigrateType::from_index((self.0 >> TAKEN_SHIFT & 0xf) as usize)
    }
    /// The zone of the block.
    #[inline]
    pub const fn zone(self) -> u8 {
        (self.0 >> ZONE_SHIFT) as u8
    }
}

impl core::fmt::Debug for FrameWord {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (state, order, zone) = (self.state(), self.order().get(), self.zone());
        write!(f, "{state:?} order {order} {:?} zone {zone}", self.list())
    }
}

/// No frame: the end of a list.
const NIL: u32 = u32::MAX;

/// The record of one frame. `prev` and `next` are valid only on a list.
struct Frame {
    prev: AtomicU32,
    next: AtomicU32,
    word: AtomicU32,
}

const _: () = assert!(size_of::<Frame>() == 12);

// SAFETY: integers.
unsafe impl Zero for Frame {}

/// The records of all frames, by number.
pub struct FrameTable {
    frames: Table<Frame>,
    /// In place of the records, if only the orders are kept: the first eight bits of their words.
    heads: Table<AtomicU8>,
}

impl FrameTable {
    /// Bytes of a record.
    pub const RECORD_BYTES: usize = size_of::<Frame>();

    /// Creates blank records for the frames `0..records`, or only their orders for `0..orders`; at
    /// most one of the two is not 0. Touches none of them in memory that is zero.
    pub(crate) fn new(place: &mut Place, records: usize, orders: usize) -> Self {
        Self { frames: place.zeroed(records), heads: place.zeroed(orders) }
    }
    /// The number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len().max(self.heads.len())
    }
    /// Whether there are no frames.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes of all records.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.len() * Self::RECORD_BYTES + self.heads.len()
    }
    /// The record of `pfn`; only its state and its order, if only the orders are kept. Panics if
    /// there is no such frame.
    #[inline]
    pub fn word(&self, pfn: Pfn) -> FrameWord {
        FrameWord(match self.frames.get(pfn.index()) {
            Some(frame) => frame.word.load(Relaxed),
            None => self.heads[pfn.index()].load(Relaxed).into(),
        })
    }
    /// Whether `pfn` is the head of a free block of exactly this order. Stable under the lock of
    /// the frame's zone.
    #[inline]
    pub(crate) fn is_free_head(&self, pfn: Pfn, order: Order) -> bool {
        self.word(pfn).is(FrameState::Free, order)
    }
    /// Sets the record of `pfn`. The caller must be allowed to write it: see [`FrameState`].
    #[inline]
    pub(crate) fn set_word(&self, pfn: Pfn, word: FrameWord) {
        match self.frames.get(pfn.index()) {
            Some(frame) => frame.word.store(word.0, Relaxed),
            None => self.heads[pfn.index()].store((word.0 & SIZE_MASK) as u8, Relaxed),
        }
    }
    /// Where only the orders are kept: records that `pfn` is the head of an allocated block.
    #[inline]
    pub(crate) fn set_held(&self, pfn: Pfn, order: Order) {
        let head = FrameWord::head(FrameState::Held, order);
        self.heads[pfn.index()].store(head, Relaxed);
    }
    /// Where only the orders are kept: makes the record of an allocated block of exactly this order
    /// blank. Returns `false`, and changes nothing, if there is no such block. The caller frees the
    /// block.
    #[inline]
    pub(crate) fn release_held(&self, pfn: Pfn, order: Order) -> bool {
        let Some(head) = self.heads.get(pfn.index()) else { return false };
        let held = head.load(Relaxed) == FrameWord::head(FrameState::Held, order);
        if held {
            head.store(0, Relaxed);
        }
        held
    }
    /// Makes the record of an allocated block of exactly this order that of no allocated block, in
    /// one step; returns the record before. The error is the record of another block. The caller
    /// frees the block.
    pub(crate) fn claim_held(&self, pfn: Pfn, order: Order) -> Result<FrameWord, FrameWord> {
        let word = self.word(pfn);
        let claimed = word.with_state(FrameState::Cached).0;
        if !word.is(FrameState::Held, order) {
            return Err(word);
        }
        let seen = match self.frames.get(pfn.index()) {
            Some(frame) => frame.word.compare_exchange(word.0, claimed, Relaxed, Relaxed),
            None => {
                let head = &self.heads[pfn.index()];
                let [from, to] = [word.0, claimed].map(|word| (word & SIZE_MASK) as u8);
                let seen = head.compare_exchange(from, to, Relaxed, Relaxed);
                seen.map(u32::from).map_err(u32::from)
            }
        };
        seen.map(FrameWord).map_err(FrameWord)
    }
    /// Makes the record of `pfn` blank: its block is part of a larger one now.
    #[inline]
    pub(crate) fn set_inside(&self, pfn: Pfn) {
        self.set_word(pfn, FrameWord(0));
    }
    /// Whether all bits of the frame's record are zero.
    pub(crate) fn is_blank(&self, pfn: Pfn) -> bool {
        self.word(pfn) == FrameWord(0)
    }
    /// The block after `pfn` on its list. For the owner of the list.
    #[inline]
    pub(crate) fn next(&self, pfn: Pfn) -> Option<Pfn> {
        let next = self.frames[pfn.index()].next.load(Relaxed);
        (next != NIL).then(|| Pfn::new(next as usize))
    }
    #[inline]
    fn at(&self, index: u32) -> &Frame {
        &self.frames[index as usize]
    }
    /// Charges an access to the line of a frame's record.
    #[inline]
    pub(crate) fn touch<A: Cpu>(pfn: Pfn, access: Access) {
        A::touch(Line::Frame(pfn), access);
    }
}

#[inline]
fn write_line<A: Cpu>(index: u32) {
    A::touch(Line::Frame(Pfn::new(index as usize)), Access::Write);
}

/// Charges a store of a link in a neighbour, which nothing waits for.
#[inline]
fn store_link<A: Cpu>(index: u32) {
    A::touch(Line::Frame(Pfn::new(index as usize)), Access::Store);
}

/// A doubly linked list of blocks, linked through the records of their heads.
///
/// The lock of the list (a zone lock, a page cache's lock) protects the links of all blocks on it.
pub struct FrameList {
    head: u32,
    tail: u32,
}

impl FrameList {
    /// A list without blocks.
    pub const EMPTY: Self = Self { head: NIL, tail: NIL };

    /// Whether there are no blocks.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }
    /// The first block.
    #[inline]
    pub fn first(&self) -> Option<Pfn> {
        (self.head != NIL).then(|| Pfn::new(self.head as usize))
    }
    /// The last block.
    #[inline]
    pub fn last(&self) -> Option<Pfn> {
        (self.tail != NIL).then(|| Pfn::new(self.tail as usize))
    }
    /// Adds `pfn` at the front.
    #[inline]
    pub fn push_front<A: Cpu>(&mut self, frames: &FrameTable, pfn: Pfn) {
        let (at, next) = (pfn.index() as u32, self.head);
        write_line::<A>(at);
        frames.at(at).prev.store(NIL, Relaxed);
        frames.at(at).next.store(next, Relaxed);
        if next == NIL {
            self.tail = at;
        } else {
            store_link::<A>(next);
            frames.at(next).prev.store(at, Relaxed);
        }
        self.head = at;
    }
    /// Adds `pfn` at the end.
    #[inline]
    pub fn push_back<A: Cpu>(&mut self, frames: &FrameTable, pfn: Pfn) {
        let (at, prev) = (pfn.index() as u32, self.tail);
        write_line::<A>(at);
        frames.at(at).next.store(NIL, Relaxed);
        frames.at(at).prev.store(prev, Relaxed);
        if prev == NIL {
            self.head = at;
        } else {
            store_link::<A>(prev);
            frames.at(prev).next.store(at, Relaxed);
        }
        self.tail = at;
    }
    /// Removes `pfn`, which is on this list.
    #[inline]
    pub fn unlink<A: Cpu>(&mut self, frames: &FrameTable, pfn: Pfn) {
        let at = pfn.index() as u32;
        write_line::<A>(at);
        let (prev, next) = (frames.at(at).prev.load(Relaxed), frames.at(at).next.load(Relaxed));
        if prev == NIL {
            debug_assert!(self.head == at, "frame {at} is not on this list");
            self.head = next;
        } else {
            store_link::<A>(prev);
            frames.at(prev).next.store(next, Relaxed);
        }
        if next == NIL {
            debug_assert!(self.tail == at, "frame {at} is not on this list");
            self.tail = prev;
        } else {
            // The CPU that takes the new head waits for its line: a walk along a list is a chain.
            let is_first = prev == NIL;
            if is_first {
                write_line::<A>(next)
            } else {
                store_link::<A>(next)
            }
            frames.at(next).prev.store(prev, Relaxed);
        }
    }
    /// Iterates over the blocks from first to last, without cost: for checks. Returns with each
    /// block whether its backward link is right.
    pub fn walk<'a>(&self, frames: &'a FrameTable) -> impl Iterator<Item = (Pfn, bool)> + 'a {
        let (mut at, mut before, tail) = (self.head, NIL, self.tail);
        core::iter::from_fn(move || {
            if at == NIL {
                return None;
            }
            let frame = frames.at(at);
            let next = frame.next.load(Relaxed);
            let linked = frame.prev.load(Relaxed) == before && (next != NIL || at == tail);
            let item = (Pfn::new(at as usize), linked);
            (before, at) = (at, next);
            Some(item)
        })
    }
}
