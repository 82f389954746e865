//! The word that says who may allocate from a pageblock, and how much of it is in use.

use crate::frame::MigrateType;
use mmscale_arch::{CpuId, Order, PAGEBLOCK_ORDER};

/// Frames of a pageblock.
pub(super) const BLOCK_PAGES: u64 = 1 << PAGEBLOCK_ORDER;

const USED: u64 = 0xfff;
pub(super) const BUSY: u64 = 1 << 12;
const TYPE_SHIFT: u32 = 13;
const TYPE: u64 = 3 << TYPE_SHIFT;
/// The type by what the head says, which is none but the first three.
const KINDS: [MigrateType; 4] = [
    MigrateType::from_index(0),
    MigrateType::from_index(1),
    MigrateType::from_index(2),
    MigrateType::Movable,
];
const ISOLATED: u64 = 1 << 15;
const HELD_SHIFT: u32 = 16;
const HELD: u64 = 0xf << HELD_SHIFT;
const OFFLINE: u64 = 1 << 20;
const OWNER_SHIFT: u32 = 32;
const OWNER: u64 = 0xffff << OWNER_SHIFT;

/// What the head of a pageblock says. All zero: all of it is free, movable, and nobody's.
///
/// `used` is never less than what is in use: who gives frames back clears their bits first, who
/// takes frames counts them before anybody else may take some. So a block of which nothing is
/// used has no bit set and none about to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head(pub(super) u64);

/// How full a block is, fullest first; blocks that nobody owns are found by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Fill(u8);

impl Fill {
    pub(super) const COUNT: usize = Self::MOST_FREE.len();
    /// By fill: the most frames that are free.
    const MOST_FREE: [u64; 4] = [7, 31, 127, BLOCK_PAGES - 1];
    /// By frames in use, as many as a head can count: the fill; for none and for all there is none.
    /// A table, as what comes back at random places is of blocks of any fill.
    const BY_USED: [u8; USED as usize + 1] = {
        let mut fills = [u8::MAX; USED as usize + 1];
        let (mut free, mut fill) = (1, 0);
        while free < BLOCK_PAGES as usize {
            if free > Self::MOST_FREE[fill] as usize {
                fill += 1;
            }
            fills[BLOCK_PAGES as usize - free] = fill as u8;
            free += 1;
        }
        // Whole ones are found elsewhere, those without free frames nowhere.
        fills[0] = u8::MAX - 1;
        fills
    };

    /// All of them, the fullest first.
    pub(super) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
    /// The most frames of such a block that are free.
    #[inline]
    pub(super) const fn most_free(self) -> u64 {
        Self::MOST_FREE[self.0 as usize]
    }
}

impl Head {
    /// A movable block that is nobody's and of which all is free.
    pub(super) const WHOLE: Self = Self(0);

    /// Frames in use, or about to be counted as free.
    #[inline]
    pub(super) const fn used(self) -> u64 {
        self.0 & USED
    }
    /// Frames that are free for sure.
    #[inline]
    pub(super) const fn free(self) -> u64 {
        BLOCK_PAGES.saturating_sub(self.used())
    }
    /// Somebody takes frames from it at this moment.
    #[inline]
    pub(super) const fn is_busy(self) -> bool {
        self.0 & BUSY != 0
    }
    #[inline]
    pub(super) const fn kind(self) -> MigrateType {
        KINDS[(self.0 >> TYPE_SHIFT & 3) as usize]
    }
    #[inline]
    pub(super) const fn is_isolated(self) -> bool {
        self.0 & ISOLATED != 0
    }
    #[inline]
    pub(super) const fn is_offline(self) -> bool {
        self.0 & OFFLINE != 0
    }
    /// The order of the one block that holds all of it; its bits say nothing then.
    #[inline]
    pub(super) const fn held(self) -> Option<Order> {
        match self.0 >> HELD_SHIFT & 0xf {
            0 => None,
            order => Order::new(order as u8),
        }
    }
    #[inline]
    pub(super) const fn is_owned(self) -> bool {
        self.0 & OWNER != 0
    }
    /// All of it is free, for who takes it out of where whole ones are found.
    #[inline]
    pub(super) const fn is_unowned_free(self) -> bool {
        self.0 & (USED | OWNER | ISOLATED) == 0
    }
    #[inline]
    pub(super) const fn owned_by(self, cpu: CpuId) -> bool {
        self.0 >> OWNER_SHIFT & 0xffff == cpu.index() as u64 + 1
    }
    /// How it is found; `None`: nothing to be found, or all of it.
    #[inline]
    pub(super) const fn fill(self) -> Option<Fill> {
        let fill = Fill::BY_USED[self.used() as usize];
        if fill < Fill::COUNT as u8 { Some(Fill(fill)) } else { None }
    }
    /// Whether it is found elsewhere than the same block as it was `before`.
    #[inline]
    pub(super) const fn is_moved_from(self, before: Self) -> bool {
        Fill::BY_USED[self.used() as usize] != Fill::BY_USED[before.used() as usize]
    }
    /// Whether frames that come back to it are best handed out again: next to nothing else of it
    /// is free. Blocks with more free are to become empty, and nothing is taken from them while
    /// there are fuller ones.
    #[inline]
    pub(super) const fn is_full(self) -> bool {
        self.used() >= BLOCK_PAGES - Fill::MOST_FREE[1]
    }
    /// The same block, `cpu`'s and in use by it.
    #[inline]
    pub(super) const fn entered_by(self, cpu: CpuId) -> Self {
        Self(self.0 & !OWNER | (cpu.index() as u64 + 1) << OWNER_SHIFT | BUSY)
    }
    /// The same block, `cpu`'s, which is not inside.
    #[inline]
    pub(super) const fn owned(self, cpu: CpuId) -> Self {
        Self(self.entered_by(cpu).0 & !BUSY)
    }
    /// The same block, nobody's.
    #[inline]
    pub(super) const fn disowned(self) -> Self {
        Self(self.0 & !(OWNER | BUSY))
    }
    #[inline]
    pub(super) const fn with_kind(self, kind: MigrateType) -> Self {
        Self(self.0 & !TYPE | (kind as u64) << TYPE_SHIFT)
    }
    #[inline]
    pub(super) const fn with_isolated(self, isolated: bool) -> Self {
        Self(if isolated { self.0 | ISOLATED } else { self.0 & !ISOLATED })
    }
    #[inline]
    pub(super) const fn with_offline(self, offline: bool) -> Self {
        Self(if offline { self.0 | OFFLINE } else { self.0 & !OFFLINE })
    }
    /// All of it held as part of one block of `order`, 9 or 10.
    #[inline]
    pub(super) const fn as_held(self, order: Order) -> Self {
        let rest = self.0 & !(USED | HELD | OWNER | BUSY);
        Self(rest | BLOCK_PAGES | (order.get() as u64) << HELD_SHIFT)
    }
    /// All of it free again, nobody's.
    #[inline]
    pub(super) const fn as_whole(self) -> Self {
        Self(self.0 & !(USED | HELD | OWNER | BUSY))
    }
    /// It is nobody's, not isolated, and used up by blocks of `order`, as [`Head::fully_used`] says;
    /// below a pageblock's all orders are one.
    #[inline]
    pub(super) const fn is_fully_used_by(self, order: Order) -> bool {
        self.0 & !TYPE == Self::fully_used(order, MigrateType::Movable).0
    }
    /// A block of `kind`, nobody's, that was whole and is used up by blocks of `order`: from a
    /// pageblock's on it is held.
    #[inline]
    pub(super) const fn fully_used(order: Order, kind: MigrateType) -> Self {
        let whole = Self::WHOLE.with_kind(kind);
        if order.get() < PAGEBLOCK_ORDER {
            Self(whole.0 | BLOCK_PAGES)
        } else {
            whole.as_held(order)
        }
    }
    /// Of these frames of the block, which `used` counts from the start, none exists.
    pub(super) const fn missing(pages: u64) -> Self {
        Self(pages)
    }
}

const _: () = assert!(2 * BLOCK_PAGES <= USED, "frames may be counted as used twice for a moment");
const _: () = assert!(mmscale_arch::MAX_CPUS < 0xffff);
const _: () = assert!(MigrateType::COUNT <= 4 && MigrateType::Movable as u8 == 0);
