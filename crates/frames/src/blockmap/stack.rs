//! A CPU's stacks of free blocks, one for each order and type.

use super::bits::{self, Run, WORD_ORDER};
use super::stack_layout::{BASE, ENTRIES, LARGE, STACKS, StackId};
use crate::frame::MigrateType;
use crate::place::Zero;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use mmscale_arch::{Order, PAGEBLOCK_ORDER};

/// The oldest blocks of a stack, which are about to be removed.
#[derive(Clone, Copy)]
pub(super) struct Oldest {
    id: StackId,
    count: usize,
}

impl Oldest {
    /// The order of the blocks.
    #[inline]
    pub(super) const fn order(self) -> Order {
        self.id.order
    }
}

/// If the first of `blocks` are all blocks of one pageblock: returns that pageblock, and the blocks
/// that follow. A block is given by its first frame; `order` is large and below a pageblock's.
#[inline]
pub(super) fn split_pageblock(blocks: &[AtomicU32], order: Order) -> Option<(usize, &[AtomicU32])> {
    let each = 1 << (PAGEBLOCK_ORDER - order.get());
    let (these, others) = blocks.split_at_checked(each)?;
    let pageblock = these[0].load(Relaxed) >> PAGEBLOCK_ORDER;
    let mut missing = !0 >> (u64::BITS as usize - each);
    for block in these {
        let at = block.load(Relaxed) ^ pageblock << PAGEBLOCK_ORDER;
        if at >> PAGEBLOCK_ORDER != 0 {
            return None;
        }
        missing &= !(1_u64 << (at >> order.get()));
    }
    (missing == 0).then_some((pageblock as usize, others))
}

/// The blocks that a CPU allocates without atomic operations, last in, first out. A block is given
/// by the number of its first frame in the zone; all of its bits are set.
///
/// Each order has its own stack. Otherwise small allocations would use up the blocks that were
/// taken for a larger order, and the next larger allocation would break up another pageblock.
pub(super) struct Stacks {
    /// By stack: the first free entry.
    tops: [AtomicU32; STACKS],
    entries: [AtomicU32; ENTRIES],
    /// Pages on all stacks.
    pages: AtomicU32,
    most_pages: u32,
}

// SAFETY: integers.
unsafe impl Zero for Stacks {}

impl Stacks {
    /// Makes stacks whose bits are all zero empty ones, for at most `most_pages` pages together.
    pub(super) fn init(&mut self, most_pages: u32) {
        for (top, base) in self.tops.iter_mut().zip(BASE) {
            *top.get_mut() = base.into();
        }
        self.most_pages = most_pages;
    }
    /// Empty stacks for tests.
    #[cfg(test)]
    pub(super) fn new(most_pages: u32) -> alloc::boxed::Box<Self> {
        let mut stacks = crate::heap::boxed::<Self>();
        stacks.init(most_pages);
        stacks
    }
    /// Whether there is room for a block of `order` after others are evicted.
    #[inline]
    pub(super) fn take_in(&self, order: Order) -> bool {
        order.get() <= PAGEBLOCK_ORDER && order.pages() as u32 <= self.most_pages
    }
    /// Whether there is room for a block now.
    #[inline]
    pub(super) fn has_room(&self, order: Order, kind: MigrateType) -> bool {
        let id = StackId::of(order, kind);
        let (top, end) = (self.tops[id.stack].load(Relaxed), BASE[id.stack + 1].into());
        top < end && self.pages() + order.pages() as u32 <= self.most_pages
    }
    /// Whether the oldest blocks of a stack of a large order seem to be one whole pageblock: checks
    /// only the first and the last of as many blocks as a pageblock has.
    #[inline]
    pub(super) fn begins_with_pageblock(&self, order: Order, kind: MigrateType) -> bool {
        let id = StackId::of(order, kind);
        let (at, top) = (id.base(), self.tops[id.stack].load(Relaxed) as usize);
        let end = at + (1 << (PAGEBLOCK_ORDER - order.get()));
        let (Some(first), Some(last)) = (self.entries.get(at), self.entries.get(end - 1)) else {
            return false;
        };
        end <= top && (first.load(Relaxed) ^ last.load(Relaxed)) >> PAGEBLOCK_ORDER == 0
    }
    /// The number of pages on all stacks.
    #[inline]
    pub(super) fn pages(&self) -> u32 {
        self.pages.load(Relaxed)
    }
    /// Pops a block. `order` is at most a pageblock's.
    #[inline(always)]
    pub(super) fn pop(&self, order: Order, kind: MigrateType) -> Option<u32> {
        let id = StackId::of(order, kind);
        let top = self.tops.get(id.stack)?;
        let above = top.load(Relaxed);
        if above <= id.base() as u32 {
            return None;
        }
        let block = self.entries.get(above as usize - 1)?.load(Relaxed);
        top.store(above - 1, Relaxed);
        self.pages.store(self.pages() - order.pages() as u32, Relaxed);
        Some(block)
    }
    /// Pushes a block; returns `false` if there is no room.
    #[inline(always)]
    pub(super) fn push(&self, frame: u32, order: Order, kind: MigrateType) -> bool {
        let id = StackId::of(order, kind);
        let Some(top) = self.tops.get(id.stack) else { return false };
        let (at, pages) = (top.load(Relaxed), self.pages() + order.pages() as u32);
        let end = u32::from(BASE[id.stack + 1]);
        let Some(entry) = self.entries.get(at as usize) else { return false };
        if at >= end || pages > self.most_pages {
            return false;
        }
        entry.store(frame, Relaxed);
        top.store(at + 1, Relaxed);
        self.pages.store(pages, Relaxed);
        true
    }
    /// The number of blocks on a stack.
    #[inline]
    fn count(&self, id: StackId) -> usize {
        self.tops[id.stack].load(Relaxed) as usize - id.base()
    }
    /// The blocks of a stack, the oldest first.
    #[inline]
    fn blocks(&self, id: StackId) -> &[AtomicU32] {
        &self.entries[id.base()..][..self.count(id)]
    }
    /// The number of blocks of `order` that a refill takes. For small orders: as many as there is
    /// room for, in addition to the requested one. For large orders: as many as there is room for,
    /// but at least a quarter of what the stack can have, for which others are evicted.
    #[inline]
    pub(super) fn refill_count(&self, order: Order, kind: MigrateType) -> u32 {
        let id = StackId::of(order, kind);
        if order.get() < LARGE {
            let entries = id.depth().saturating_sub(self.count(id) + 1);
            return (entries as u32).min((self.most_pages - self.pages()) >> order.get());
        }
        let depth = id.depth() as u32;
        let entries = depth - self.count(id) as u32;
        let room = entries.min((self.most_pages - self.pages()) >> order.get());
        room.max(depth.min(self.most_pages >> order.get()) / 4)
    }
    /// Pushes `count` blocks of `order`, so that the first of them is popped first. They start at
    /// the bits `starts` of consecutive words, the first of which is `word`. Returns `false` if
    /// there is no room.
    pub(super) fn fill(
        &self,
        (word, starts): (u32, &[u64]),
        count: u32,
        order: Order,
        kind: MigrateType,
    ) -> bool {
        let id = StackId::of(order, kind);
        let (before, count) = (self.count(id), count as usize);
        let pages = self.pages() + (count << order.get()) as u32;
        if pages > self.most_pages || before + count > id.depth() {
            return false;
        }
        let from = id.base() + before;
        let entries = &self.entries[from..from + count];
        let mut entries = entries.iter().rev();
        for (word, &starts) in (word..).zip(starts) {
            let mut left = starts;
            while left != 0 {
                let Some(entry) = entries.next() else { break };
                entry.store(bits::join(word, left.trailing_zeros()), Relaxed);
                left &= left - 1;
            }
            if entries.len() == 0 {
                break;
            }
        }
        self.tops[id.stack].store((from + count) as u32, Relaxed);
        self.pages.store(pages, Relaxed);
        true
    }
    /// Pushes all blocks of `order` of several pageblocks: those whose bits are set in `some`,
    /// counted from `first`. Blocks of the last pageblock are popped first. Returns `false` if
    /// there is no room.
    pub(super) fn fill_whole(
        &self,
        (first, some): (usize, u64),
        order: Order,
        kind: MigrateType,
    ) -> bool {
        let id = StackId::of(order, kind);
        let (top, each) = (id.base() + self.count(id), 1 << (PAGEBLOCK_ORDER - order.get()));
        let end = top + each * some.count_ones() as usize;
        let pages = self.pages() + (some.count_ones() << PAGEBLOCK_ORDER);
        if pages > self.most_pages || end > usize::from(BASE[id.stack + 1]) {
            return false;
        }
        let (mut left, mut block) = (some, 0);
        for entry in &self.entries[top..end] {
            if block % (1 << PAGEBLOCK_ORDER) == 0 {
                block = (first as u32 + left.trailing_zeros() + 1) << PAGEBLOCK_ORDER;
                left &= left - 1;
            }
            block -= 1 << order.get();
            entry.store(block, Relaxed);
        }
        self.tops[id.stack].store(end as u32, Relaxed);
        self.pages.store(pages, Relaxed);
        true
    }
    /// Chooses the blocks to evict for a block of `order` and `kind`: the older half of its stack
    /// if that is more than half full, or else of the stack with the most pages. Of a large order
    /// it chooses seven eighths, since a stack has few pageblocks of them and the cost of accessing
    /// the map is shared, and the following blocks of the same pageblock.
    pub(super) fn oldest(&self, order: Order, kind: MigrateType) -> Oldest {
        let own = StackId::of(order, kind);
        let most = || StackId::all().max_by_key(|&id| self.count(id) * id.order.pages());
        let room = own.depth().min((self.most_pages >> order.get()) as usize);
        let full = if self.count(own) > room / 2 { own } else { most().unwrap_or(own) };
        let (blocks, count) = (self.blocks(full), self.count(full));
        if full.order.get() < LARGE {
            return Oldest { id: full, count: count.div_ceil(2) };
        }
        let block = |at: usize| blocks[at].load(Relaxed) >> PAGEBLOCK_ORDER;
        let oldest = count - count / 8;
        let beside = (oldest..count).take_while(|&at| block(at) == block(oldest - 1)).count();
        Oldest { id: full, count: oldest + beside }
    }
    /// Iterates over all stacks, each with all of its blocks.
    pub(super) fn all(&self) -> impl Iterator<Item = Oldest> + '_ {
        StackId::all().map(|id| Oldest { id, count: self.count(id) })
    }
    /// The first frames of the blocks, the oldest first.
    #[inline]
    pub(super) fn frames(&self, oldest: Oldest) -> &[AtomicU32] {
        &self.blocks(oldest.id)[..oldest.count]
    }
    /// Removes the blocks from their stack.
    pub(super) fn remove(&self, oldest: Oldest) {
        let (id, count) = (oldest.id, oldest.count);
        let blocks = self.blocks(id);
        for (to, from) in blocks.iter().zip(&blocks[count..]) {
            to.store(from.load(Relaxed), Relaxed);
        }
        let top = id.base() + blocks.len() - count;
        self.tops[id.stack].store(top as u32, Relaxed);
        self.pages.store(self.pages() - (count * id.order.pages()) as u32, Relaxed);
    }
    /// Whether a block is on its stack already: a linear search.
    pub(super) fn has(&self, frame: u32, order: Order, kind: MigrateType) -> bool {
        self.blocks(StackId::of(order, kind)).iter().any(|block| block.load(Relaxed) == frame)
    }
    /// Iterates over the frames on all stacks, by word.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let blocks = StackId::all().flat_map(|id| {
            let blocks = self.blocks(id);
            blocks.iter().map(move |block| (block.load(Relaxed), id.order))
        });
        blocks.flat_map(|(frame, order)| runs_of(frame, order))
    }
}

/// Iterates over the frames of a block, at most a pageblock, by word.
fn runs_of(frame: u32, order: Order) -> impl Iterator<Item = Run> {
    let (word, bit) = bits::split(frame);
    let words = (order.pages() >> WORD_ORDER).max(1) as u32;
    let frames = if order.get() <= WORD_ORDER { bits::run(order, bit) } else { !0 };
    (word..word + words).map(move |word| Run { word, frames })
}

#[cfg(test)]
mod tests {
    use super::super::stack_layout::{MOST_PAGES, ORDERS};
    use super::*;
    use alloc::vec::Vec;

    const MOVABLE: MigrateType = MigrateType::Movable;

    fn order(order: u8) -> Order {
        Order::new(order).unwrap()
    }

    /// Removes the blocks; returns the first frame and the order of each.
    fn remove(stacks: &Stacks, oldest: Oldest) -> Vec<(u32, u8)> {
        let order = oldest.order().get();
        let gone = stacks.frames(oldest).iter().map(|frame| (frame.load(Relaxed), order)).collect();
        stacks.remove(oldest);
        gone
    }
    fn clear(stacks: &Stacks) -> Vec<(u32, u8)> {
        let all: Vec<Oldest> = stacks.all().collect();
        all.into_iter().flat_map(|all| remove(stacks, all)).collect()
    }

    #[test]
    fn stacks_are_last_in_first_out_and_separate_by_order_and_type() {
        let stacks = Stacks::new(8192);
        for (at, id) in StackId::all().enumerate() {
            let kind = MigrateType::ALL[at / ORDERS];
            for frame in 0..2 {
                assert!(stacks.push((at as u32 * 2 + frame) << 8, id.order, kind));
            }
        }
        for (at, id) in StackId::all().enumerate() {
            let kind = MigrateType::ALL[at / ORDERS];
            let popped = core::iter::from_fn(|| stacks.pop(id.order, kind));
            let expected = [at as u32 * 2 + 1, at as u32 * 2].map(|frame| frame << 8);
            assert_eq!(popped.collect::<Vec<_>>(), expected, "order {}", id.order.get());
        }
        assert_eq!((stacks.pages(), stacks.runs().count()), (0, 0));
    }

    #[test]
    fn the_oldest_blocks_are_evicted_or_larger_ones_where_pages_are_too_many() {
        let stacks = Stacks::new(64);
        let evict = |order, kind| remove(&stacks, stacks.oldest(order, kind));
        assert!(stacks.take_in(order(6)) && !stacks.take_in(order(7)));
        for frame in 0..32 {
            assert!(stacks.push(2 * frame, order(1), MOVABLE));
        }
        assert!(!stacks.push(64, order(1), MOVABLE), "the stack is full");
        assert!(!stacks.push(64, Order::ZERO, MOVABLE), "too many pages");
        let older: Vec<(u32, u8)> = (0..16).map(|frame| (2 * frame, 1)).collect();
        assert_eq!(evict(order(1), MOVABLE), older);
        assert!(stacks.push(64, Order::ZERO, MOVABLE));
        assert_eq!((stacks.pages(), stacks.pop(order(1), MOVABLE)), (33, Some(62)));
        clear(&stacks);
        for at in 0..10 {
            assert!(stacks.push(64 + 4 * at, order(2), MOVABLE));
        }
        for at in 0..24 {
            assert!(stacks.push(at, Order::ZERO, MOVABLE));
        }
        assert!(!stacks.push(0, order(1), MOVABLE), "too many pages");
        let most = [64, 68, 72, 76, 80].map(|frame| (frame, 2));
        assert_eq!(evict(order(1), MOVABLE), most, "that stack has most pages");
        assert!(stacks.push(0, order(1), MOVABLE));
    }

    #[test]
    fn the_own_stack_is_evicted_only_if_more_than_half_of_it_is_full() {
        let stacks = Stacks::new(64);
        let oldest = || stacks.oldest(order(1), MOVABLE).order();
        (0..5).for_each(|at| assert!(stacks.push(256 + 8 * at, order(3), MOVABLE)));
        // 40 pages. There is room for 32 blocks of order 1.
        for at in 0..12 {
            assert!(stacks.has_room(order(1), MOVABLE) && stacks.push(2 * at, order(1), MOVABLE));
            assert_eq!(oldest(), order(3), "{at} of 32");
        }
        assert!(!stacks.has_room(order(1), MOVABLE) && stacks.pages() == 64);
        clear(&stacks);
        (0..16).for_each(|at| assert!(stacks.push(2 * at, order(1), MOVABLE)));
        (0..4).for_each(|at| assert!(stacks.push(256 + 8 * at, order(3), MOVABLE)));
        assert_eq!(oldest(), order(3), "half of it, and as many pages as order 3");
        assert!(stacks.pop(order(3), MOVABLE).is_some());
        assert!(stacks.push(32, order(1), MOVABLE));
        assert_eq!((oldest(), stacks.oldest(order(1), MOVABLE).count), (order(1), 9));
    }

    #[test]
    fn blocks_of_a_word_are_popped_in_order() {
        let stacks = Stacks::new(64);
        let starts = 0x0101_0000_0001_0001;
        assert!(stacks.fill((3, &[starts]), 4, order(3), MOVABLE));
        assert_eq!(stacks.pages(), 32);
        assert!(!stacks.fill((4, &[!0]), 64, Order::ZERO, MOVABLE), "too many pages");
        let popped = core::iter::from_fn(|| stacks.pop(order(3), MOVABLE)).collect::<Vec<_>>();
        assert_eq!(popped, [0, 16, 48, 56].map(|bit| 3 * 64 + bit));
        assert!(stacks.fill((4, &[!0]), 64, Order::ZERO, MOVABLE));
        let all: Vec<u32> = core::iter::from_fn(|| stacks.pop(Order::ZERO, MOVABLE)).collect();
        assert_eq!(all, (256..320).collect::<Vec<_>>());
    }

    #[test]
    fn pageblocks_are_popped_in_order_and_pushed_while_there_is_room() {
        for order in Order::all().skip(usize::from(LARGE)).take(ORDERS - usize::from(LARGE)) {
            let stacks = Stacks::new(MOST_PAGES);
            let pageblocks = stacks.refill_count(order, MOVABLE) >> (PAGEBLOCK_ORDER - order.get());
            assert!((1..=16).contains(&pageblocks), "order {}", order.get());
            for block in 0..pageblocks {
                assert!(stacks.fill_whole((block as usize, 1), order, MOVABLE));
            }
            assert!(!stacks.fill_whole((pageblocks as usize, 1), order, MOVABLE));
            let words = stacks.runs().map(|run| run.frames.count_ones()).sum::<u32>();
            assert_eq!((stacks.pages(), words), (512 * pageblocks, 512 * pageblocks));
            let popped = core::iter::from_fn(|| stacks.pop(order, MOVABLE)).collect::<Vec<_>>();
            let starts = |block: u32| (512 * block..512 * (block + 1)).step_by(order.pages());
            assert_eq!(popped, (0..pageblocks).rev().flat_map(starts).collect::<Vec<_>>());
        }
        let (stacks, whole) = (Stacks::new(600), order(PAGEBLOCK_ORDER));
        assert_eq!(stacks.refill_count(whole, MOVABLE), 1);
        assert!(stacks.push(0, whole, MOVABLE) && !stacks.push(512, whole, MOVABLE));
        let gone = remove(&stacks, stacks.oldest(whole, MOVABLE));
        assert_eq!((gone, stacks.pages()), (alloc::vec![(0, PAGEBLOCK_ORDER)], 0));
    }

    #[test]
    fn all_of_a_pageblock_is_distinguished_from_less() {
        for order in Order::all().skip(usize::from(LARGE)).take(ORDERS - 1 - usize::from(LARGE)) {
            let split = |frames: &[u32]| {
                let blocks: Vec<AtomicU32> = frames.iter().copied().map(AtomicU32::new).collect();
                split_pageblock(&blocks, order).map(|(block, others)| (block, others.len()))
            };
            let pageblock: Vec<u32> = (512..1024).step_by(order.pages()).rev().collect();
            assert_eq!(split(&pageblock), Some((1, 0)));
            assert_eq!(split(&[&pageblock[..], &[4096]].concat()), Some((1, 1)));
            let less = &pageblock[1..];
            assert_eq!(split(less), None);
            assert_eq!(split(&[less, &[2048]].concat()), None, "one is of another pageblock");
            assert_eq!(split(&[less, &[512]].concat()), None, "one block is there twice");
        }
    }

    #[test]
    fn stacked_frames_are_listed_by_word_and_removed() {
        let stacks = Stacks::new(512);
        assert!(stacks.push(64 * 4, order(8), MOVABLE));
        assert!(stacks.push(64 * 9 + 4, order(2), MOVABLE));
        let small = Run { word: 9, frames: 0xf0 };
        let runs: Vec<Run> = stacks.runs().collect();
        assert_eq!(runs[0], small);
        assert_eq!(runs[1..], [4, 5, 6, 7].map(|word| Run { word, frames: !0 }));
        assert!(stacks.has(64 * 9 + 4, order(2), MOVABLE));
        assert!(!stacks.has(64 * 9, order(2), MOVABLE));
        let pages: u32 = clear(&stacks).into_iter().map(|(_, order)| 1 << order).sum();
        assert_eq!((pages, stacks.pages(), stacks.runs().count()), (260, 0, 0));
    }
}
