//! A CPU's page cache of one zone: lists of blocks, and the rules for their number.
//!
//! All functions are called under the cache's own lock. Those that move blocks between the cache
//! and its zone get the zone's buddy allocator, locked. The cache tunes itself: allocations that
//! find it empty raise its limit and its refills; frees without allocations make its drains larger;
//! the upkeep tick lowers the limit again.

mod decay;
mod limits;
mod merge;
mod owned;
mod premerge;
mod tune;

pub use decay::{decayed, decayed_by_run};
pub use limits::{BATCH_SCALE_MAX, DrainSize, PcpLimits, batch_size};
pub(crate) use owned::Home;
pub use owned::{REMEMBERED_BLOCKS, RefillPhase};
pub use tune::Pressure;

use crate::frame::{FrameList, FrameState, FrameTable, FrameWord, MigrateType};
use crate::place::Table;
use crate::zone::{Buddy, RmqueueMode};
use mmscale_arch::{Cpu, Op, Order, Pfn};

/// Orders up to this one have a list for each migratetype (`PAGE_ALLOC_COSTLY_ORDER`).
pub const COSTLY_ORDER: u8 = 3;

const LOW_LISTS: usize = (COSTLY_ORDER as usize + 1) * MigrateType::COUNT;
/// The lists: three for each low order; for huge pages one for movable ones, one for the rest.
const LISTS: usize = LOW_LISTS + 2;

/// A list of a page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PcpList(u8);

impl PcpList {
    /// The list with which a drain begins by default.
    pub(crate) const FIRST: Self = Self(0);

    /// The list for blocks of `order`; `None` if page caches have no such blocks.
    #[inline]
    pub(crate) const fn of(order: Order, list_type: MigrateType) -> Option<Self> {
        if order.get() <= COSTLY_ORDER {
            Some(Self(order.get() * MigrateType::COUNT as u8 + list_type as u8))
        } else if order.get() == Order::PAGEBLOCK.get() {
            let rest = !matches!(list_type, MigrateType::Movable);
            Some(Self(LOW_LISTS as u8 + rest as u8))
        } else {
            None
        }
    }
    const fn order(self) -> Order {
        if self.0 >= LOW_LISTS as u8 {
            return Order::PAGEBLOCK;
        }
        match Order::new(self.0 / MigrateType::COUNT as u8) {
            Some(order) => order,
            None => Order::ZERO,
        }
    }
    const fn next(self) -> Self {
        Self((self.0 + 1) % LISTS as u8)
    }
    fn all() -> impl Iterator<Item = Self> {
        (0..LISTS as u8).map(Self)
    }
}

/// A page cache.
pub struct Pcp {
    /// Pages in the cache.
    pub(crate) count: u32,
    /// Limit of `count`; a free that reaches it drains.
    pub(crate) high: u32,
    pub(crate) limits: PcpLimits,
    /// Refills are `batch << alloc_factor`; grows with refills, halves with each free.
    alloc_factor: u8,
    /// Pages freed recently; halves with each allocation.
    free_count: u32,
    /// Doubled drains are `batch << free_factor`; grows with drains, halves with each allocation.
    free_factor: u8,
    /// Runs of the upkeep tick until a cache of a remote zone is drained; 0: not counting.
    pub(crate) expire: u8,
    /// The last free was of order 1 to 3.
    prev_free_high: bool,
    /// The CPU's share of the data cache has room for several batches: frees of orders 1 to 3 in a
    /// row may gather one batch before the cache is drained.
    free_high_batch: bool,
    /// The amount by which `high` is above the value that is due by decay, because the zone lock
    /// was taken.
    pub(crate) pending: u32,
    lists: [FrameList; LISTS],
    /// The lists of a cache that owns pageblocks, in place of `lists`: one value, or none.
    owned: Table<owned::OwnedLists>,
}

/// Result of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Drained {
    /// Pages that left the cache.
    pub(crate) pages: u32,
    /// Pages that can be allocated now: those of isolated pageblocks cannot.
    pub(crate) free: u32,
}

impl Pcp {
    /// Creates an empty cache. `cache_slice_pages` is the CPU's share of its last-level data cache,
    /// in pages.
    pub(crate) fn new(limits: PcpLimits, cache_slice_pages: u32) -> Self {
        Self {
            count: 0,
            high: limits.high_min,
            limits,
            alloc_factor: 0,
            free_count: 0,
            free_factor: 0,
            expire: 0,
            prev_free_high: false,
            free_high_batch: cache_slice_pages > 3 * limits.batch,
            pending: 0,
            lists: [const { FrameList::EMPTY }; LISTS],
            owned: Table::EMPTY,
        }
    }
    /// Sets new limits; `high` is adapted when it is next used.
    pub(crate) fn set_limits(&mut self, limits: PcpLimits) {
        self.limits = limits;
    }
    /// Sets the present limit of the pages in the cache.
    pub(crate) fn set_high(&mut self, high: u32) {
        self.high = high;
    }
    /// Pages in the cache.
    pub fn count(&self) -> u32 {
        self.count
    }
    /// The present limit of the pages in the cache.
    pub fn high(&self) -> u32 {
        self.high
    }
    /// The limits.
    pub fn limits(&self) -> PcpLimits {
        self.limits
    }
    /// The exponent of the next refill.
    pub fn alloc_factor(&self) -> u8 {
        self.alloc_factor
    }
    /// Pages freed recently.
    pub fn free_count(&self) -> u32 {
        self.free_count
    }
    #[inline]
    pub(crate) fn has_block(&self, list: PcpList) -> bool {
        !self.lists[list.0 as usize].is_empty()
    }
    /// Allocates the first block of a list.
    #[inline]
    pub(crate) fn take<A: Cpu>(&mut self, frames: &FrameTable, list: PcpList) -> Option<Pfn> {
        let blocks = &mut self.lists[list.0 as usize];
        let pfn = blocks.first()?;
        A::work(Op::PcpTake, 1);
        blocks.unlink::<A>(frames, pfn);
        self.count -= list.order().pages() as u32;
        frames.set_word(pfn, frames.word(pfn).with_state(FrameState::Held));
        Some(pfn)
    }
    /// Frees the caller's block to the front of a list; `word` is a copy of its record.
    #[inline]
    pub(crate) fn put<A: Cpu>(
        &mut self,
        frames: &FrameTable,
        list: PcpList,
        pfn: Pfn,
        word: FrameWord,
    ) {
        A::work(Op::PcpPut, 1);
        self.lists[list.0 as usize].push_front::<A>(frames, pfn);
        self.count += list.order().pages() as u32;
        frames.set_word(pfn, word.with_state(FrameState::Cached));
    }
    /// Moves up to `blocks` blocks from the zone to the end of `list` (`rmqueue_bulk`); returns
    /// the pages moved.
    pub(crate) fn refill<A: Cpu>(
        &mut self,
        frames: &FrameTable,
        buddy: &mut Buddy<A>,
        list: PcpList,
        wanted: MigrateType,
        blocks: u32,
    ) -> u32 {
        let (order, mut mode) = (list.order(), RmqueueMode::Own);
        let mut moved = 0;
        for _ in 0..blocks {
            let block = buddy.take(frames, order, wanted, &mut mode, FrameState::Cached);
            let Some(pfn) = block else { break };
            A::work(Op::RefillPage, 1);
            self.lists[list.0 as usize].push_back::<A>(frames, pfn);
            moved += order.pages() as u32;
        }
        self.count += moved;
        moved
    }
    /// Moves at least `pages` pages to the zone, or all if there are fewer (`free_pcppages_bulk`):
    /// from the ends of the lists, one list after the other, beginning with `first`. The last block
    /// may exceed `pages`.
    pub(crate) fn drain<A: Cpu>(
        &mut self,
        frames: &FrameTable,
        buddy: &mut Buddy<A>,
        pages: u32,
        first: PcpList,
    ) -> Drained {
        if !self.owned.is_empty() {
            return self.drain_owned(frames, buddy, pages);
        }
        let (before, goal) = (self.count, self.count.saturating_sub(pages));
        let mut free = 0;
        let mut list = first;
        while self.count > goal {
            let order = list.order();
            while self.count > goal
                && let Some(pfn) = self.lists[list.0 as usize].last()
            {
                A::work(Op::DrainPage, 1);
                self.lists[list.0 as usize].unlink::<A>(frames, pfn);
                self.count -= order.pages() as u32;
                free += buddy.free_block(frames, pfn, order);
            }
            list = list.next();
        }
        Drained { pages: before - self.count, free }
    }
    /// Compares the lists with the records and the count. The error is the first wrong block, or
    /// `None` if the count is wrong. Calls `seen` for each block.
    pub(crate) fn check(
        &self,
        frames: &FrameTable,
        mut seen: impl FnMut(Pfn, FrameWord),
    ) -> Result<(), Option<Pfn>> {
        let mut pages = 0;
        let plain = PcpList::all().map(|at| (at.order(), None, &self.lists[at.0 as usize]));
        let owned = self.owned.iter().flat_map(|owned| owned.lists());
        let owned = owned.map(|(order, list_type, list)| (order, Some(list_type), list));
        for (order, list_type, list) in plain.chain(owned) {
            for (pfn, linked) in list.walk(frames) {
                let word = frames.word(pfn);
                let cached = word.state() == FrameState::Cached && word.order() == order;
                // A stolen block is on the list of the type for which it was stolen.
                let stolen = |of| !word.may_merge() && of == word.taken_as();
                let here = |of: MigrateType| of == word.list() || stolen(of);
                if !linked || !cached || !list_type.is_none_or(here) {
                    return Err(Some(pfn));
                }
                pages += word.order().pages();
                seen(pfn, word);
            }
        }
        if pages == self.count as usize { Ok(()) } else { Err(None) }
    }
}
