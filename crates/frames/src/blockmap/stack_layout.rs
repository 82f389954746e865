//! Layout of a CPU's stacks: the entries of all stacks are in one array.

use super::bits::WORD_PAGES;
use crate::frame::MigrateType;
use mmscale_arch::{Order, PAGEBLOCK_ORDER};

/// Orders that have stacks: all up to a pageblock.
pub(super) const ORDERS: usize = PAGEBLOCK_ORDER as usize + 1;
/// The smallest order whose stacks have room for whole pageblocks.
pub(super) const LARGE: u8 = 3;
const _: () = assert!(1 << (PAGEBLOCK_ORDER - LARGE) <= u64::BITS);
/// By order: the most blocks of a stack. For small orders these are the blocks of half a pageblock
/// or of one: a CPU that allocates them one after the other then enters a pageblock twice, not
/// eight times, while other CPUs may be freeing to it. For large orders these are the blocks of up
/// to 16 whole pageblocks: the cost of accessing the map is shared by all blocks that are moved
/// together.
const DEPTHS: [usize; ORDERS] = [256, 128, 128, 64, 32, 32, 32, 32, 32, 16];
/// The most pages on the stacks of all orders together.
pub(super) const MOST_PAGES: u32 = 16 << PAGEBLOCK_ORDER;
/// By order: its first entry among those of a type; last, their number.
const FIRST: [u16; ORDERS + 1] = {
    let mut first = [0; ORDERS + 1];
    let mut order = 0;
    while order < ORDERS {
        assert!(DEPTHS[order] << order >= WORD_PAGES);
        let pages = DEPTHS[order] << order;
        assert!(order < LARGE as usize || pages.is_multiple_of(1 << PAGEBLOCK_ORDER));
        assert!(pages <= MOST_PAGES as usize);
        first[order + 1] = first[order] + DEPTHS[order] as u16;
        order += 1;
    }
    first
};
/// The number of stacks of a CPU.
pub(super) const STACKS: usize = ORDERS * MigrateType::COUNT;
/// Entries of the stacks of one type.
const TYPE_ENTRIES: usize = FIRST[ORDERS] as usize;
/// Entries of all stacks.
pub(super) const ENTRIES: usize = TYPE_ENTRIES * MigrateType::COUNT;
/// By stack: its first entry; last, the number of entries. A stack ends where the next one begins.
pub(super) const BASE: [u16; STACKS + 1] = {
    let mut base = [ENTRIES as u16; STACKS + 1];
    let mut stack = 0;
    while stack < STACKS {
        base[stack] = (stack / ORDERS * TYPE_ENTRIES) as u16 + FIRST[stack % ORDERS];
        stack += 1;
    }
    base
};

/// The stack of one order and type.
#[derive(Clone, Copy)]
pub(super) struct StackId {
    pub(super) order: Order,
    /// The index of the stack.
    pub(super) stack: usize,
}

impl StackId {
    /// The stack for blocks of `order`, which is at most a pageblock's.
    #[inline]
    pub(super) const fn of(order: Order, kind: MigrateType) -> Self {
        Self { order, stack: kind.index() * ORDERS + order.index() }
    }
    /// The first entry.
    #[inline]
    pub(super) const fn base(self) -> usize {
        BASE[self.stack] as usize
    }
    #[inline]
    pub(super) const fn depth(self) -> usize {
        DEPTHS[self.order.index()]
    }
    /// All stacks.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let orders = |kind| Order::all().take(ORDERS).map(move |order| Self::of(order, kind));
        MigrateType::ALL.into_iter().flat_map(orders)
    }
}
