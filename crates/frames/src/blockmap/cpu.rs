//! What a CPU has to itself: free blocks, frames on their way home, and pageblocks that it takes
//! more from.

use super::bits::{Run, WORD_PAGES};
use super::stack::Stacks;
use super::stack_layout::MOST_PAGES;
use crate::frame::MigrateType;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use mmscale_arch::Order;

/// Words of frames on their way home that a CPU keeps at most; a power of two.
const PENDING_WORDS: usize = 8;

/// How much a CPU keeps at most.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Words of frames on their way home, a power of two.
    pending_words: usize,
    /// Pages on its stacks.
    stacked_pages: u32,
}

impl Limits {
    /// About `pages` in all, but for the least that it takes: a word's worth on stacks and a word
    /// on its way home.
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

/// What a pageblock that a CPU owns is for: blocks of one type and order, as on its stacks, but
/// for the larger orders together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List(u8);

impl List {
    /// Orders that keep apart; the last one is all above, too.
    const ORDERS: u8 = 4;
    pub(super) const COUNT: usize = Self::ORDERS as usize * MigrateType::COUNT;

    /// What blocks of `order` are taken from.
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
    /// The lists of a type, that of the largest blocks first.
    pub(super) fn of_type(kind: MigrateType) -> impl Iterator<Item = Self> {
        (0..Self::ORDERS).rev().map(move |order| Self(Self::ORDERS * kind as u8 + order))
    }
}

/// Frames of one word that go home together; none, if it is no word's.
struct PendingFree {
    frames: AtomicU64,
    word: AtomicU32,
    /// How many they are.
    pages: AtomicU32,
}

impl PendingFree {
    const NO_WORD: u32 = u32::MAX;

    const fn none() -> Self {
        let word = AtomicU32::new(Self::NO_WORD);
        Self { frames: AtomicU64::new(0), word, pages: AtomicU32::new(0) }
    }
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

/// A pageblock that a CPU remembers, or none.
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

/// What becomes of blocks that come back to a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FreeTo {
    /// They are handed out again, as blocks of this type.
    Stack(MigrateType),
    /// They go home, for the pageblock is to become whole.
    Bitmap,
}

/// One CPU's cache of one zone. Frames in it are free for this CPU only: their bits say "used".
pub(super) struct CpuCache {
    /// Blocks to hand out.
    pub(super) stacks: Stacks,
    /// The pageblock to which something came back last.
    recent: BlockCell,
    /// And what became of it: a type, or the number of types for "it goes home".
    recent_to: AtomicU32,
    /// By word: frames on their way home. A word has one place that it may be in.
    pending: [PendingFree; PENDING_WORDS],
    /// Homes in use, less one: fewer where memory is scarce for the number of CPUs.
    mask: u32,
    /// By list: the pageblock that refills come from, if nobody has taken it over.
    pub(super) block: [BlockCell; List::COUNT],
    /// A whole pageblock that came back and is too large for the stacks, kept for the next one who
    /// wants one, like `block`.
    pub(super) spare: BlockCell,
    /// Pages that became free less those that were taken, not yet in the zone's counter.
    delta: AtomicI64,
}

impl CpuCache {
    /// An empty cache.
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            stacks: Stacks::new(limits.stacked_pages),
            recent: BlockCell::none(),
            recent_to: AtomicU32::new(0),
            pending: [const { PendingFree::none() }; PENDING_WORDS],
            mask: limits.pending_words as u32 - 1,
            block: [const { BlockCell::none() }; List::COUNT],
            spare: BlockCell::none(),
            delta: AtomicI64::new(0),
        }
    }
    /// What becomes of what comes back to `block`, if something just did. What the pageblock's head
    /// says may have changed since; a drain forgets it.
    #[inline]
    pub(super) fn recent_free_to(&self, block: usize) -> Option<FreeTo> {
        if self.recent.0.load(Relaxed) != block as u32 {
            return None;
        }
        let kind = self.recent_to.load(Relaxed) as usize;
        let again = kind < MigrateType::COUNT;
        Some(if again { FreeTo::Stack(MigrateType::from_index(kind)) } else { FreeTo::Bitmap })
    }
    /// Remembers it, for as long as the cache keeps something.
    #[inline]
    pub(super) fn set_recent(&self, block: usize, to: FreeTo) {
        let kind = match to {
            FreeTo::Stack(kind) => kind.index(),
            FreeTo::Bitmap => MigrateType::COUNT,
        };
        self.recent_to.store(kind as u32, Relaxed);
        self.recent.set(block);
    }
    /// Whether it remembers none.
    #[inline]
    pub(super) fn has_no_recent(&self) -> bool {
        self.recent.get().is_none()
    }
    /// Forgets it.
    pub(super) fn forget_recent(&self) {
        self.recent.take();
    }
    /// Adds frames, `pages` in number, to others of their word that wait to go home. `false`: there
    /// are none, or the word would be together, or one of them is there already.
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
    /// Adds frames, `pages` in number, to what goes home: `Ok` with what has to make room, or what
    /// has its word together, and how many those are. The error: one of them is there already.
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
    /// Takes what is on its way home out, a word at a time.
    pub(super) fn pop_pending(&self) -> Option<Run> {
        let pending = self.pending.iter().find(|pending| pending.frames.load(Relaxed) != 0)?;
        let run = pending.run();
        pending.empty();
        Some(run)
    }
    /// What is in it, at most a word at a time.
    pub(super) fn words(&self) -> impl Iterator<Item = Run> + '_ {
        let pending = self.pending.iter().map(PendingFree::run).filter(|run| run.frames != 0);
        pending.chain(self.stacks.runs())
    }
    /// Pages in it.
    #[inline]
    pub(super) fn pages(&self) -> u32 {
        let pending: u32 = self.pending.iter().map(|pending| pending.pages.load(Relaxed)).sum();
        pending + self.stacks.pages()
    }
    /// Says that it has `more` pages than there are.
    #[cfg(test)]
    pub(super) fn corrupt_pages(&self, more: u32) {
        let pending = &self.pending[0];
        pending.pages.store(pending.pages.load(Relaxed) + more, Relaxed);
    }
    /// Notes a change of the zone's free pages; what is noted now.
    #[inline]
    pub(super) fn account(&self, change: i64) -> i64 {
        let sum = self.delta.load(Relaxed) + change;
        self.delta.store(sum, Relaxed);
        sum
    }
    /// What is noted, which is the caller's to count now.
    #[inline]
    pub(super) fn take_delta(&self) -> i64 {
        let sum = self.delta();
        self.delta.store(0, Relaxed);
        sum
    }
    /// What is noted.
    #[inline]
    pub(super) fn delta(&self) -> i64 {
        self.delta.load(Relaxed)
    }
}

/// A frame came back to where it is already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FreedTwice;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_home_with_their_word_and_make_room_for_another() {
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
        assert_eq!(go(5, 1), Ok(Some((1, 0xf3, 6))), "its place is the same");
        assert_eq!(go(5, !1), Ok(Some((5, !0, 64))), "the word is together");
        assert_eq!(cache.pages(), 1);
        assert_eq!(cache.pop_pending(), Some(Run { word: 2, frames: 1 }));
        assert_eq!((cache.pop_pending(), cache.pages()), (None, 0));
    }

    #[test]
    fn the_fate_of_one_pageblock_is_remembered_until_it_is_forgotten() {
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
