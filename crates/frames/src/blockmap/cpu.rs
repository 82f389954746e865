//! A CPU's cache of a zone: stacks of free blocks, pending frees, and the pageblocks that it owns.
//!
//! Frames in the cache have their bits set: for other CPUs they are in use. A pending free is a
//! word of which this CPU has freed some frames and not cleared their bits yet, so that one atomic
//! operation clears the bits of several frees.

use super::bits::{Run, WORD_PAGES};
use super::stack::Stacks;
use super::stack_layout::MOST_PAGES;
use crate::frame::MigrateType;
use crate::place::Zero;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use mmscale_arch::Order;

/// The most words with pending frees of a CPU; a power of two.
const PENDING_WORDS: usize = 8;

/// Limits of a CPU's cache.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Words with pending frees, a power of two.
    pending_words: usize,
    /// Pages on its stacks.
    stacked_pages: u32,
}

impl Limits {
    /// Limits for about `pages` pages in all, at least one word on the stacks and one pending word.
    pub(super) const fn of(pages: usize) -> Self {
        let words = pages / 2 / WORD_PAGES;
        let pending_words = if words == 0 { 1 } else { 1 << words.ilog2() };
        let pending_words =
            if pending_words > PENDING_WORDS { PENDING_WORDS } else { pending_words };
        let pending = pending_words * WORD_PAGES;
        let most = MOST_PAGES as usize;
        let stacked = if pages < 2 * pending { pending } else { pages - pending };
        let stacked_pages = if stacked > most { most } else { stacked } as u32;
        Self { pending_words, stacked_pages }
    }
    /// Pages in all.
    pub(super) const fn pages(self) -> usize {
        self.pending_words * WORD_PAGES + self.stacked_pages as usize
    }
}

/// Key of a pageblock that a CPU owns: the type and order that it serves. All orders from 3 up have
/// one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List(u8);

impl List {
    /// The number of classes of orders; the last class is all larger orders.
    const ORDERS: u8 = 4;
    pub(super) const COUNT: usize = Self::ORDERS as usize * MigrateType::COUNT;

    /// The key for blocks of `order`.
    #[inline]
    pub(super) const fn of(order: Order, kind: MigrateType) -> Self {
        let last = Self::ORDERS - 1;
        let order = if order.get() < last { order.get() } else { last };
        Self(Self::ORDERS * kind as u8 + order)
    }
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
    /// The keys of a type, that of the largest orders first.
    pub(super) fn of_type(kind: MigrateType) -> impl Iterator<Item = Self> {
        (0..Self::ORDERS).rev().map(move |order| Self(Self::ORDERS * kind as u8 + order))
    }
}

/// Pending frees of one word.
struct PendingFree {
    frames: AtomicU64,
    word: AtomicU32,
    /// The number of frames.
    pages: AtomicU32,
}

impl PendingFree {
    const NO_WORD: u32 = u32::MAX;

    fn empty(&self) {
        self.frames.store(0, Relaxed);
        self.word.store(Self::NO_WORD, Relaxed);
        self.pages.store(0, Relaxed);
    }
    #[inline]
    fn run(&self) -> Run {
        Run { word: self.word.load(Relaxed), frames: self.frames.load(Relaxed) }
    }
}

/// The number of a pageblock, or none.
pub(super) struct BlockCell(AtomicU32);

impl BlockCell {
    const NONE: u32 = u32::MAX;

    const fn none() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }
    #[inline]
    pub(super) fn get(&self) -> Option<usize> {
        let block = self.0.load(Relaxed);
        (block != Self::NONE).then_some(block as usize)
    }
    #[inline]
    pub(super) fn set(&self, block: usize) {
        self.0.store(block as u32, Relaxed);
    }
    #[inline]
    pub(super) fn take(&self) -> Option<usize> {
        let block = self.get();
        self.0.store(Self::NONE, Relaxed);
        block
    }
}

/// Destination of blocks that are freed to a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FreeTo {
    /// The CPU's stack of this type, to be allocated again.
    Stack(MigrateType),
    /// The pageblock's bitmap, so that the pageblock may become whole.
    Bitmap,
}

/// One CPU's cache of one zone. Frames in it are free for this CPU only: their bits are set.
pub(super) struct CpuCache {
    /// Blocks to allocate.
    pub(super) stacks: Stacks,
    /// The pageblock of the last free.
    recent: BlockCell,
    /// The destination of frees to it: the index of a type, or the number of types for the bitmap.
    recent_to: AtomicU32,
    /// Pending frees, a direct-mapped table by word.
    pending: [PendingFree; PENDING_WORDS],
    /// The number of entries of `pending` in use, less one: fewer in a zone that is small for the
    /// number of CPUs.
    mask: u32,
    /// By list: the pageblock that the CPU owns for refills, unless another CPU has taken it over.
    pub(super) block: [BlockCell; List::COUNT],
    /// A free pageblock that did not fit onto the stacks, owned by the CPU for its next allocation
    /// of one, unless another CPU has taken it over.
    pub(super) spare: BlockCell,
    /// Pages freed to the map less pages taken, not yet folded into the zone's counter.
    delta: AtomicI64,
}

// SAFETY: integers.
unsafe impl Zero for CpuCache {}

impl CpuCache {
    /// Makes a cache whose bits are all zero an empty one.
    pub(super) fn init(&mut self, limits: Limits) {
        self.stacks.init(limits.stacked_pages);
        self.pending.iter().for_each(PendingFree::empty);
        self.mask = limits.pending_words as u32 - 1;
        let blocks = self.block.iter_mut().chain([&mut self.recent, &mut self.spare]);
        blocks.for_each(|block| *block = BlockCell::none());
    }
    /// An empty cache for tests.
    #[cfg(test)]
    fn new(limits: Limits) -> alloc::boxed::Box<Self> {
        let mut cache = crate::heap::boxed::<Self>();
        cache.init(limits);
        cache
    }
    /// The destination of frees to `block`, if it is the pageblock of the last free. Its head may
    /// have changed since; a drain forgets it.
    #[inline]
    pub(super) fn recent_free_to(&self, block: usize) -> Option<FreeTo> {
        if self.recent.0.load(Relaxed) != block as u32 {
            return None;
        }
        let kind = self.recent_to.load(Relaxed) as usize;
        let again = kind < MigrateType::COUNT;
        Some(if again { FreeTo::Stack(MigrateType::from_index(kind)) } else { FreeTo::Bitmap })
    }
    /// Records `block` as the pageblock of the last free, until the next drain.
    #[inline]
    pub(super) fn set_recent(&self, block: usize, to: FreeTo) {
        let kind = match to {
            FreeTo::Stack(kind) => kind.index(),
            FreeTo::Bitmap => MigrateType::COUNT,
        };
        self.recent_to.store(kind as u32, Relaxed);
        self.recent.set(block);
    }
    /// Whether no pageblock of a last free is recorded.
    #[inline]
    pub(super) fn has_no_recent(&self) -> bool {
        self.recent.get().is_none()
    }
    /// Forgets the pageblock of the last free.
    pub(super) fn forget_recent(&self) {
        self.recent.take();
    }
    /// Adds `pages` frames to pending frees of the same word. Returns `false`, and changes nothing,
    /// if there are none, if the word would be complete, or if a frame is pending already.
    #[inline(always)]
    pub(super) fn join_pending(&self, run: Run, pages: u32) -> bool {
        let pending = &self.pending[(run.word & self.mask) as usize % PENDING_WORDS];
        let old = pending.frames.load(Relaxed);
        let frames = old | run.frames;
        let alone = pending.word.load(Relaxed) != run.word;
        if alone || frames == !0 || old & run.frames != 0 {
            return false;
        }
        pending.frames.store(frames, Relaxed);
        pending.pages.store(pending.pages.load(Relaxed) + pages, Relaxed);
        true
    }
    /// Adds `pages` frames to the pending frees. Returns the frames that the caller must free to
    /// the map now, and their number: those that had the entry before, or a complete word. The
    /// error: a frame is pending already.
    #[inline(always)]
    pub(super) fn add_pending(
        &self,
        run: Run,
        pages: u32,
    ) -> Result<Option<(Run, u32)>, FreedTwice> {
        let pending = &self.pending[(run.word & self.mask) as usize % PENDING_WORDS];
        let (old, there) = (pending.run(), pending.pages.load(Relaxed));
        if old.word != run.word {
            pending.word.store(run.word, Relaxed);
            pending.frames.store(run.frames, Relaxed);
            pending.pages.store(pages, Relaxed);
            return Ok((there > 0).then_some((old, there)));
        }
        self.join_same_word(pending, run, pages)
    }
    #[inline(never)]
    fn join_same_word(
        &self,
        pending: &PendingFree,
        run: Run,
        pages: u32,
    ) -> Result<Option<(Run, u32)>, FreedTwice> {
        let (old, there) = (pending.run(), pending.pages.load(Relaxed));
        if old.frames & run.frames != 0 {
            return Err(FreedTwice);
        }
        let frames = old.frames | run.frames;
        if frames == !0 {
            pending.empty();
            return Ok(Some((Run { word: run.word, frames }, WORD_PAGES as u32)));
        }
        pending.frames.store(frames, Relaxed);
        pending.pages.store(there + pages, Relaxed);
        Ok(None)
    }
    /// Removes the pending frees of one word.
    pub(super) fn pop_pending(&self) -> Option<Run> {
        let pending = self.pending.iter().find(|pending| pending.frames.load(Relaxed) != 0)?;
        let run = pending.run();
        pending.empty();
        Some(run)
    }
    /// Iterates over the frames in the cache, by word; a word may come several times.
    pub(super) fn words(&self) -> impl Iterator<Item = Run> + '_ {
        let pending = self.pending.iter().map(PendingFree::run).filter(|run| run.frames != 0);
        pending.chain(self.stacks.runs())
    }
    /// The number of pages in the cache.
    #[inline]
    pub(super) fn pages(&self) -> u32 {
        let pending: u32 = self.pending.iter().map(|pending| pending.pages.load(Relaxed)).sum();
        pending + self.stacks.pages()
    }
    /// Corrupts the count of pages by `more`.
    #[cfg(test)]
    pub(super) fn corrupt_pages(&self, more: u32) {
        let pending = &self.pending[0];
        pending.pages.store(pending.pages.load(Relaxed) + more, Relaxed);
    }
    /// Adds a change of the zone's free pages to the delta; returns the new delta.
    #[inline]
    pub(super) fn account(&self, change: i64) -> i64 {
        let sum = self.delta.load(Relaxed) + change;
        self.delta.store(sum, Relaxed);
        sum
    }
    /// Takes the delta; the caller folds it into the zone's counter.
    #[inline]
    pub(super) fn take_delta(&self) -> i64 {
        let sum = self.delta();
        self.delta.store(0, Relaxed);
        sum
    }
    /// The delta.
    #[inline]
    pub(super) fn delta(&self) -> i64 {
        self.delta.load(Relaxed)
    }
}

/// A frame was freed that is pending already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FreedTwice;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_frees_leave_with_their_word_or_for_another_one() {
        let cache = CpuCache::new(Limits::of(4 * 2 * WORD_PAGES));
        let go = |word, frames: u64| {
            cache
                .add_pending(Run { word, frames }, frames.count_ones())
                .map(|gone| gone.map(|(run, pages)| (run.word, run.frames, pages)))
        };
        assert_eq!(go(1, 0xf0), Ok(None));
        assert_eq!(go(2, 1), Ok(None));
        let join = |word, frames| cache.join_pending(Run { word, frames }, 2);
        assert!(join(1, 0x3) && !join(1, 0x81) && !join(5, 3) && !join(3, 3));
        assert_eq!(go(1, 0x81), Err(FreedTwice));
        assert_eq!(cache.pages(), 7);
        assert_eq!(go(5, 1), Ok(Some((1, 0xf3, 6))), "it has the same entry");
        assert_eq!(go(5, !1), Ok(Some((5, !0, 64))), "the word is complete");
        assert_eq!(cache.pages(), 1);
        assert_eq!(cache.pop_pending(), Some(Run { word: 2, frames: 1 }));
        assert_eq!((cache.pop_pending(), cache.pages()), (None, 0));
    }

    #[test]
    fn the_destination_of_one_pageblock_is_recorded_until_it_is_forgotten() {
        let cache = CpuCache::new(Limits::of(0));
        assert_eq!(cache.recent_free_to(0), None);
        for to in [FreeTo::Bitmap, FreeTo::Stack(MigrateType::Reclaimable)] {
            cache.set_recent(7, to);
            assert_eq!((cache.recent_free_to(7), cache.recent_free_to(0)), (Some(to), None));
        }
        cache.forget_recent();
        assert_eq!(cache.recent_free_to(7), None);
    }
}
