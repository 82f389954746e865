//! A page cache that owns pageblocks: lists of every order up to a pageblock, refilled in phases.

use super::{Drained, Pcp};
use crate::frame::{FrameList, FrameState, FrameTable, FrameWord, MigrateType};
use crate::place::Place;
use crate::zone::{Buddy, RmqueueMode};
use mmscale_arch::{Cpu, CpuId, Op, Order, PAGEBLOCK_ORDER, Pfn};

/// Orders 0 to that of a pageblock, each with a list for every type.
pub(super) const ORDERS: usize = PAGEBLOCK_ORDER as usize + 1;
const LISTS: usize = ORDERS * MigrateType::COUNT;

/// The most pageblocks with fragments in the zone that a page cache remembers. If there are more,
/// it forgets the oldest; the CPU still owns that.
pub const REMEMBERED_BLOCKS: usize = 64;

/// The phases of a refill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RefillPhase {
    /// Fragments of pageblocks that the CPU owns already, which its drains put into the zone.
    Recover = 0,
    /// Whole pageblocks, which the CPU then owns.
    Claim = 1,
    /// Blocks smaller than a pageblock, of the requested type, as large as possible. The CPU does
    /// not own their pageblocks.
    Chunks = 2,
    /// Blocks of the requested order one by one, also of other types. The CPU does not own their
    /// pageblocks.
    Classic = 3,
}

impl RefillPhase {
    /// The number of phases.
    pub const COUNT: usize = 4;
    /// All phases, in their order.
    pub const ALL: [Self; Self::COUNT] = [Self::Recover, Self::Claim, Self::Chunks, Self::Classic];
}

/// The lists of a page cache that owns pageblocks.
pub(super) struct OwnedLists {
    cpu: CpuId,
    /// By order, then by type.
    lists: [FrameList; LISTS],
    /// The first frames of owned pageblocks with fragments in the zone; a ring, oldest first.
    remembered: [u32; REMEMBERED_BLOCKS],
    first: usize,
    len: usize,
    /// A block that may merge was added since the last merge.
    pub(super) unmerged: bool,
}

impl OwnedLists {
    pub(super) fn new(cpu: CpuId) -> Self {
        Self {
            cpu,
            lists: [const { FrameList::EMPTY }; LISTS],
            remembered: [0; REMEMBERED_BLOCKS],
            first: 0,
            len: 0,
            unmerged: false,
        }
    }
    #[inline]
    pub(super) fn list(&mut self, order: Order, list_type: MigrateType) -> &mut FrameList {
        &mut self.lists[order.index() * MigrateType::COUNT + list_type.index()]
    }
    pub(super) fn lists(&self) -> impl Iterator<Item = (Order, MigrateType, &FrameList)> {
        let keys = orders().flat_map(|order| MigrateType::ALL.map(|list_type| (order, list_type)));
        keys.zip(&self.lists).map(|((order, list_type), list)| (order, list_type, list))
    }
    fn remember<A: Cpu>(&mut self, buddy: &mut Buddy<A>, pfn: Pfn) {
        let block = pfn.align_down(Order::PAGEBLOCK);
        if !buddy.remember(block, self.cpu) {
            return;
        }
        if self.len == REMEMBERED_BLOCKS {
            let oldest = self.pop();
            buddy.forget(oldest, self.cpu);
        }
        self.push(block);
    }
    fn push(&mut self, block: Pfn) {
        self.remembered[(self.first + self.len) % REMEMBERED_BLOCKS] = block.index() as u32;
        self.len += 1;
    }
    fn pop(&mut self) -> Pfn {
        let block = self.remembered[self.first];
        self.first = (self.first + 1) % REMEMBERED_BLOCKS;
        self.len -= 1;
        Pfn::new(block as usize)
    }
    pub(super) fn remembered(&self) -> impl Iterator<Item = Pfn> + '_ {
        let at = |n| self.remembered[(self.first + n) % REMEMBERED_BLOCKS];
        (0..self.len).map(move |n| Pfn::new(at(n) as usize))
    }
}

/// The orders that have lists.
pub(super) fn orders() -> impl DoubleEndedIterator<Item = Order> {
    Order::all().filter(|&order| order <= Order::PAGEBLOCK)
}

/// Pages that one refill moved, by phase.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Refilled {
    pub(crate) pages: [u32; RefillPhase::COUNT],
}

impl Refilled {
    pub(crate) fn total(&self) -> u32 {
        self.pages.iter().sum()
    }
}

impl Pcp {
    /// The additional size of a cache that owns pageblocks, in bytes.
    pub(crate) const OWNED_BYTES: usize = size_of::<OwnedLists>();

    /// Makes the cache that of `cpu`, with lists for owned pageblocks.
    pub(crate) fn owning(mut self, place: &mut Place, cpu: CpuId) -> Self {
        self.owned = place.table(1, |_| OwnedLists::new(cpu));
        self
    }
    /// The remembered pageblocks with fragments in the zone, oldest first; the CPU may not own some
    /// of them any more.
    pub fn remembered(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.owned.iter().flat_map(|owned| owned.remembered())
    }
    /// Allocates a block of `order`, split from the smallest block that is large enough.
    #[inline]
    pub(crate) fn take_owned<A: Cpu>(
        &mut self,
        frames: &FrameTable,
        order: Order,
        wanted: MigrateType,
    ) -> Option<Pfn> {
        let owned = self.owned.first_mut()?;
        let mut enough = orders().skip(order.index());
        let (from, pfn) = enough.find_map(|at| Some((at, owned.list(at, wanted).first()?)))?;
        A::work(Op::PcpTake, 1);
        owned.list(from, wanted).unlink::<A>(frames, pfn);
        let (word, mut at) = (frames.word(pfn), from);
        while at > order
            && let Some(half) = at.down()
        {
            A::work(Op::BuddyStep, 1);
            A::work(Op::BuddyPut, 1);
            let upper = pfn.offset(half.pages());
            owned.list(half, wanted).push_front::<A>(frames, upper);
            frames.set_word(upper, word.with_order(half));
            at = half;
        }
        frames.set_word(pfn, word.with_order(order).with_state(FrameState::Held).not_merging());
        self.count -= order.pages() as u32;
        Some(pfn)
    }
    /// Frees the caller's block to the front of its list; `word` is a copy of its record. It may
    /// merge here if this CPU owns its pageblock (`home`), and if the zone allocated it for the
    /// type of its pageblock: so all blocks that merge were allocated for the same type.
    #[inline]
    pub(crate) fn put_owned<A: Cpu>(
        &mut self,
        frames: &FrameTable,
        pfn: Pfn,
        word: FrameWord,
        home: Home,
    ) {
        let Some(owned) = self.owned.first_mut() else { return };
        A::work(Op::PcpPut, 1);
        owned.list(word.order(), word.list()).push_front::<A>(frames, pfn);
        self.count += word.order().pages() as u32;
        let cached = word.with_state(FrameState::Cached);
        let merges = home == Home::Owner && word.list() == word.taken_as();
        owned.unmerged |= merges;
        frames.set_word(pfn, if merges { cached.merging() } else { cached });
    }
    /// Moves pages from the zone to the ends of the lists, in the four phases, until they can be
    /// split into `blocks` blocks of `order`.
    pub(crate) fn refill_owned<A: Cpu>(
        &mut self,
        frames: &FrameTable,
        buddy: &mut Buddy<A>,
        order: Order,
        wanted: MigrateType,
        blocks: u32,
    ) -> Refilled {
        let room = self.high.saturating_sub(self.count);
        let Some(owned) = self.owned.first_mut() else { return Refilled::default() };
        let left = blocks << order.get();
        let done = Refilled::default();
        let mut filling = Filling { frames, owned, order, wanted, left, room, done };
        filling.recover(buddy);
        filling.claim(buddy);
        filling.chunks(buddy);
        filling.classic(buddy);
        let done = filling.done;
        self.count += done.total();
        done
    }
    /// Moves at least `pages` pages to the zone, or all if there are fewer: the largest blocks
    /// first, of each list the oldest. Remembers pageblocks of this CPU of which it moved a
    /// fragment.
    pub(super) fn drain_owned<A: Cpu>(
        &mut self,
        frames: &FrameTable,
        buddy: &mut Buddy<A>,
        pages: u32,
    ) -> Drained {
        let mut drained = Drained::default();
        let Some(owned) = self.owned.first_mut() else { return drained };
        for order in orders().rev() {
            for list_type in MigrateType::ALL {
                while drained.pages < pages
                    && let Some(pfn) = owned.list(order, list_type).last()
                {
                    A::work(Op::DrainPage, 1);
                    owned.list(order, list_type).unlink::<A>(frames, pfn);
                    drained.pages += order.pages() as u32;
                    drained.free += buddy.free_fragment(frames, pfn, order);
                    owned.remember(buddy, pfn);
                }
            }
        }
        self.count -= drained.pages;
        drained
    }
}

/// The page cache into which a block is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// The cache of the CPU that owns its pageblock.
    Owner,
    /// Another CPU's cache.
    Other,
}

/// State of a refill.
struct Filling<'a> {
    frames: &'a FrameTable,
    owned: &'a mut OwnedLists,
    order: Order,
    wanted: MigrateType,
    /// Pages still to move, in blocks of at least `order`.
    left: u32,
    /// Pages that fit below the cache's limit.
    room: u32,
    done: Refilled,
}

impl Filling<'_> {
    fn put<A: Cpu>(&mut self, pfn: Pfn, at: Order, phase: RefillPhase) {
        A::work(Op::RefillPage, 1);
        self.owned.list(at, self.wanted).push_back::<A>(self.frames, pfn);
        let pages = at.pages() as u32;
        self.done.pages[phase as usize] += pages;
        self.room = self.room.saturating_sub(pages);
        if at >= self.order {
            self.left = self.left.saturating_sub(pages);
        }
        if matches!(phase, RefillPhase::Recover | RefillPhase::Claim) {
            self.owned.unmerged = true;
            self.frames.set_word(pfn, self.frames.word(pfn).merging());
        }
    }
    /// Phase 0: recovers fragments. They never are a whole pageblock.
    fn recover<A: Cpu>(&mut self, buddy: &mut Buddy<A>) {
        if self.order >= Order::PAGEBLOCK {
            return;
        }
        for _ in 0..self.owned.len {
            let block = self.owned.pop();
            if self.left == 0 || self.room == 0 || buddy.block_type(block) != self.wanted {
                self.owned.push(block);
            } else if buddy.forget(block, self.owned.cpu) {
                let phase = RefillPhase::Recover;
                buddy.recover(self.frames, block, |pfn, at| self.put::<A>(pfn, at, phase));
            }
        }
    }
    /// Phase 1: claims whole pageblocks that fit below the limit.
    fn claim<A: Cpu>(&mut self, buddy: &mut Buddy<A>) {
        while self.left > 0
            && self.room >= Order::PAGEBLOCK.pages() as u32
            && let Some(pfn) = buddy.take_pageblock(self.frames, self.wanted, self.owned.cpu)
        {
            self.put::<A>(pfn, Order::PAGEBLOCK, RefillPhase::Claim);
        }
    }
    /// Phase 2: takes blocks, largest first, that are not larger than the remaining pages. A block
    /// may be split from a larger one; that breaks up a pageblock only if phase 1 found none, or
    /// had no room.
    fn chunks<A: Cpu>(&mut self, buddy: &mut Buddy<A>) {
        let order = self.order;
        for at in orders().rev().filter(|&at| at >= order && at < Order::PAGEBLOCK) {
            while self.left >= at.pages() as u32
                && let Some(pfn) = buddy.take_chunk(self.frames, at, self.wanted)
            {
                self.put::<A>(pfn, at, RefillPhase::Chunks);
            }
        }
    }
    /// Phase 3: takes blocks of the requested order one by one, also of other types.
    fn classic<A: Cpu>(&mut self, buddy: &mut Buddy<A>) {
        let (order, mut mode) = (self.order, RmqueueMode::Own);
        while self.left >= order.pages() as u32
            && let Some(pfn) =
                buddy.take(self.frames, order, self.wanted, &mut mode, FrameState::Cached)
        {
            self.put::<A>(pfn, order, RefillPhase::Classic);
        }
    }
}
