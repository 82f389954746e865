//! Where the blocks of each order and type are among those that a CPU has to itself.

use super::bits::WORD_PAGES;
use crate::frame::MigrateType;
use mmscale_arch::{Order, PAGEBLOCK_ORDER};

/// Orders that have stacks: all up to a pageblock.
pub(super) const ORDERS: usize = PAGEBLOCK_ORDER as usize + 1;
/// The smallest order of which whole pageblocks may be kept.
pub(super) const LARGE: u8 = 3;
const _: () = assert!(1 << (PAGEBLOCK_ORDER - LARGE) <= u64::BITS);
/// By order: how many blocks of one type are kept at most. Of the orders that programs ask for all
/// the time half a pageblock's worth or one, so that who takes them one after the other enters a
/// pageblock twice and not eight times; another CPU may be giving to it. Of large ones whole
/// pageblocks' worth: the larger they are, the more of them, up to sixteen, for the way to the map
/// is paid once for all that come or go together.
const DEPTHS: [usize; ORDERS] = [256, 128, 128, 64, 32, 32, 32, 32, 32, 16];
/// Most pages that are kept, of all orders together.
pub(super) const MOST_PAGES: u32 = 16 << PAGEBLOCK_ORDER;
/// By order: where its blocks begin among those of a type; last, their number.
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
/// Stacks of a CPU.
pub(super) const STACKS: usize = ORDERS * MigrateType::COUNT;
/// Places for all blocks of one type.
const TYPE_ENTRIES: usize = FIRST[ORDERS] as usize;
/// Places for all blocks.
pub(super) const ENTRIES: usize = TYPE_ENTRIES * MigrateType::COUNT;
/// By stack: its first place; last, their number. So a stack ends where the next one begins.
pub(super) const BASE: [u16; STACKS + 1] = {
    let mut base = [ENTRIES as u16; STACKS + 1];
    let mut stack = 0;
    while stack < STACKS {
        base[stack] = (stack / ORDERS * TYPE_ENTRIES) as u16 + FIRST[stack % ORDERS];
        stack += 1;
    }
    base
};

/// Blocks of one order and type.
#[derive(Clone, Copy)]
pub(super) struct StackId {
    pub(super) order: Order,
    /// Which of the stacks is theirs.
    pub(super) stack: usize,
}

impl StackId {
    /// `order` is at most a pageblock's.
    #[inline]
    pub(super) const fn of(order: Order, kind: MigrateType) -> Self {
        Self { order, stack: kind.index() * ORDERS + order.index() }
    }
    /// Their first place.
    #[inline]
    pub(super) const fn base(self) -> usize {
        BASE[self.stack] as usize
    }
    #[inline]
    pub(super) const fn depth(self) -> usize {
        DEPTHS[self.order.index()]
    }
    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let orders = |kind| Order::all().take(ORDERS).map(move |order| Self::of(order, kind));
        MigrateType::ALL.into_iter().flat_map(orders)
    }
}
