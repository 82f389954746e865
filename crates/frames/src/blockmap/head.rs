//! The head of a pageblock: one atomic word with its owner, its state and its frames in use.
//!
//! ```text
//! 63  48 47     32 31  22 21           20       19    16 15         14  13 12     11        0
//! +-----+---------+------+------------+---------+--------+----------+------+------+----------+
//! |  0  | owner   |  0   | incomplete | offline | held   | isolated | type | busy |   used   |
//! +-----+---------+------+------------+---------+--------+----------+------+------+----------+
//!         CPU + 1;         1 bit        1 bit     order:   1 bit      2      1      0 to 1024
//!         0: none                                 9, 10,                            frames
//!                                                 0: none                           (see below)
//! ```
//!
//! A head of zero is a movable block of which all frames are free and which has no owner.
//!
//! # States
//!
//! | state | owner | busy | used | held | isolated | found in |
//! |---|---|---|---|---|---|---|
//! | free | - | 0 | 0 | - | 0 | the index of whole blocks |
//! | partial | - | 0 | 1-511 | - | 0 | the index of its type and fill |
//! | full | - | 0 | 512 | - | 0 | no index: used by blocks below a pageblock's order |
//! | held | - | 0 | 512 | 9, 10 | 0 | no index: used by one block; its bits are 0 |
//! | splitting | - | 1 | any | 9, 10 | any | no index: parts of the block are being freed |
//! | owned | CPU | 0 | any | - | 0 | the owner's `block` or `spare` |
//! | busy | CPU | 1 | any | - | 0 | the CPU that has entered it |
//! | isolated | - | 0 | any | any | 1 | no index |
//! | offline | - | 0 | 0 | - | 1 | no index; `offline` is 1 |
//!
//! # Transitions
//!
//! The operation on the head is a compare-exchange unless the table says something else.
//!
//! | from | to | by | in |
//! |---|---|---|---|
//! | free | busy | the CPU that has cleared its index bit; plain store | `enter_whole` |
//! | free | busy, full or held | as above | `claim_whole` |
//! | free | full, held | the CPU that has cleared its index bit; plain store | `make_fully_used` |
//! | partial | busy | any CPU | `enter` |
//! | owned | busy | its owner | `enter_owned`, `enter_spare` |
//! | owned | busy, new owner | any CPU | `enter`, for `try_steal` and `sweep` |
//! | owned, none used | held | any CPU | `claim_whole` |
//! | owned, none used | busy, new owner | any CPU | `claim_whole`, for `hold_pair` |
//! | free, partial, full, owned | busy | a CPU that takes named frames | `enter_for` |
//! | busy, none used | held | the same CPU; plain store | `take_part` |
//! | busy | owned | the CPU inside; one addition counts and clears `busy` | `leave` |
//! | busy, none used | held | the CPU inside; plain store | `hold_pair` |
//! | owned | free, partial, full | its owner; then sets the index bit | `disown` |
//! | any | fewer used | any CPU that frees frames; one subtraction | `release_frames` |
//! | full, held | free | the CPU that frees all of it; plain store in a batch | `make_whole` |
//! | held | free, or owned as `spare` | the CPU that frees it | `release_held` |
//! | held | splitting | a CPU that frees a part of it | `is_of_held` |
//! | splitting | full, partial or free | the same CPU; one `and` of the bits | `split_held` |
//! | any but busy | isolated | an isolator; a free block as above | `mark_isolated` |
//! | isolated | as before, without owner | an isolator; then sets the index bit | `unisolate` |
//! | isolated, none used | offline, and back | an isolator | `take_offline`, `bring_online` |
//!
//! # The field `used`
//!
//! Bits and `used` are in different words, so they cannot change in one step. A CPU that frees
//! frames clears their bits first and then subtracts them. A CPU that takes frames sets their bits
//! and adds them while the block is busy, with the addition that clears `busy`. So while a block is
//! not busy, `used` is never less than the number of set bits, and if `used` is 0, no bit is set
//! and no CPU is between clearing bits and subtracting.
//!
//! Conversely, `used` may be too large. Between the two steps of a free another CPU may take the
//! frames again. `used` counts them twice until the first CPU subtracts: at most 2 * 512 for a
//! moment, which is why the field has 12 bits.

use crate::frame::MigrateType;
use mmscale_arch::{CpuId, Order, PAGEBLOCK_ORDER};

/// Frames of a pageblock.
pub(super) const BLOCK_PAGES: u64 = 1 << PAGEBLOCK_ORDER;

const USED: u64 = 0xfff;
pub(super) const BUSY: u64 = 1 << 12;
const TYPE_SHIFT: u32 = 13;
const TYPE: u64 = 3 << TYPE_SHIFT;
/// The type by the type field, whose value is below 3.
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
const INCOMPLETE: u64 = 1 << 21;
const OWNER_SHIFT: u32 = 32;
const OWNER: u64 = 0xffff << OWNER_SHIFT;

/// A value of the head of a pageblock: see the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head(pub(super) u64);

/// Class of blocks by the number of their free frames, fullest first; the key of an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Fill(u8);

impl Fill {
    pub(super) const COUNT: usize = Self::MOST_FREE.len();
    /// By fill: the most free frames of a block.
    const MOST_FREE: [u64; 4] = [7, 31, 127, BLOCK_PAGES - 1];
    /// By `used`, for each value of the field: the fill; a value that is no fill for blocks that
    /// are all free or full. A table needs no branches: frames that are freed in random order are
    /// of blocks of any fill.
    const BY_USED: &'static [u8; USED as usize + 1] = &{
        let mut fills = [u8::MAX; USED as usize + 1];
        let (mut free, mut fill) = (1, 0);
        while free < BLOCK_PAGES as usize {
            if free > Self::MOST_FREE[fill] as usize {
                fill += 1;
            }
            fills[BLOCK_PAGES as usize - free] = fill as u8;
            free += 1;
        }
        // Differs from the value of full blocks, so that `is_moved_from` distinguishes the two.
        fills[0] = u8::MAX - 1;
        fills
    };

    /// All fills, the fullest first.
    pub(super) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
    /// The most free frames of a block of this fill.
    #[inline]
    pub(super) const fn most_free(self) -> u64 {
        Self::MOST_FREE[self.0 as usize]
    }
}

impl Head {
    /// A movable free block without owner.
    pub(super) const WHOLE: Self = Self(0);

    /// The frames in use, and those that a CPU has freed and is about to subtract.
    #[inline]
    pub(super) const fn used(self) -> u64 {
        self.0 & USED
    }
    /// A lower bound of the free frames.
    #[inline]
    pub(super) const fn free(self) -> u64 {
        BLOCK_PAGES.saturating_sub(self.used())
    }
    /// Whether a CPU is taking frames from the block.
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
    /// The order of the one block that uses all of it; all of its bits are 0 then.
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
    /// Whether the block is in the state free: the CPU that clears its bit in the index of whole
    /// blocks may take it.
    #[inline]
    pub(super) const fn is_unowned_free(self) -> bool {
        self.0 & (USED | OWNER | ISOLATED) == 0
    }
    #[inline]
    pub(super) const fn owned_by(self, cpu: CpuId) -> bool {
        self.0 >> OWNER_SHIFT & 0xffff == cpu.index() as u64 + 1
    }
    /// The fill of a partial block; `None` if all frames are free or in use.
    #[inline]
    pub(super) const fn fill(self) -> Option<Fill> {
        let fill = Fill::BY_USED[self.used() as usize];
        if fill < Fill::COUNT as u8 { Some(Fill(fill)) } else { None }
    }
    /// Whether the block belongs into another index than with the head `before`.
    #[inline]
    pub(super) const fn is_moved_from(self, before: Self) -> bool {
        Fill::BY_USED[self.used() as usize] != Fill::BY_USED[before.used() as usize]
    }
    /// Whether almost all frames are in use: frames that are freed to it are best allocated again.
    /// Emptier blocks are left to become whole; nothing is taken from them while there are fuller
    /// ones.
    #[inline]
    pub(super) const fn is_full(self) -> bool {
        self.used() >= BLOCK_PAGES - Fill::MOST_FREE[1]
    }
    /// The head after `cpu` has entered the block.
    #[inline]
    pub(super) const fn entered_by(self, cpu: CpuId) -> Self {
        Self(self.0 & !OWNER | (cpu.index() as u64 + 1) << OWNER_SHIFT | BUSY)
    }
    /// The head of the block as owned by `cpu`, not busy.
    #[inline]
    pub(super) const fn owned(self, cpu: CpuId) -> Self {
        Self(self.entered_by(cpu).0 & !BUSY)
    }
    /// The head without owner.
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
    /// The head of the block as part of one used block of `order`, 9 or 10.
    #[inline]
    pub(super) const fn as_held(self, order: Order) -> Self {
        let rest = self.0 & !(USED | HELD | OWNER | BUSY);
        Self(rest | BLOCK_PAGES | (order.get() as u64) << HELD_SHIFT)
    }
    /// The head with all frames free, without owner.
    #[inline]
    pub(super) const fn as_whole(self) -> Self {
        Self(self.0 & !(USED | HELD | OWNER | BUSY))
    }
    /// The head of a held block that a CPU is splitting.
    #[inline]
    pub(super) const fn splitting(self) -> Self {
        Self(self.0 | BUSY)
    }
    /// The bits that stay when a block has been split.
    pub(super) const UNSPLIT: u64 = !(HELD | BUSY);
    /// The head of a block that has been split.
    #[inline]
    pub(super) const fn split(self) -> Self {
        Self(self.0 & Self::UNSPLIT)
    }
    /// Whether the head is [`Head::fully_used`] for `order` and any type: full or held, without
    /// owner, not isolated. Orders below a pageblock's are not distinguished.
    #[inline]
    pub(super) const fn is_fully_used_by(self, order: Order) -> bool {
        self.0 & !TYPE == Self::fully_used(order, MigrateType::Movable).0
    }
    /// The head of a block of `kind` without owner, all of which is used by blocks of `order`: full
    /// below a pageblock's order, held for the others.
    #[inline]
    pub(super) const fn fully_used(order: Order, kind: MigrateType) -> Self {
        let whole = Self::WHOLE.with_kind(kind);
        if order.get() < PAGEBLOCK_ORDER {
            Self(whole.0 | BLOCK_PAGES)
        } else {
            whole.as_held(order)
        }
    }
    /// The head of a free block that lacks `pages` frames, at an end of the zone or in holes of it:
    /// `used` counts them permanently.
    pub(super) const fn missing(pages: u64) -> Self {
        Self(if pages == 0 { 0 } else { INCOMPLETE | pages })
    }
    /// Whether the block is isolated, or lacks frames: then a free checks that its frames exist.
    #[inline]
    pub(super) const fn is_isolated_or_incomplete(self) -> bool {
        self.0 & (ISOLATED | INCOMPLETE) != 0
    }
}

const _: () = assert!(2 * BLOCK_PAGES <= USED, "`used` may count frames twice");
const _: () = assert!(mmscale_arch::MAX_CPUS < 0xffff);
const _: () = assert!(MigrateType::COUNT <= 4 && MigrateType::Movable as u8 == 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_fullest_fill_that_allows_its_free_frames() {
        for used in 1..BLOCK_PAGES {
            let (free, fill) = (BLOCK_PAGES - used, Head(used).fill());
            let wanted = Fill::all().find(|fill| fill.most_free() >= free);
            assert!(fill.is_some() && fill == wanted, "{free} free: {fill:?}, not {wanted:?}");
        }
        assert_eq!((Head(0).fill(), Head(BLOCK_PAGES).fill()), (None, None));
    }
}
