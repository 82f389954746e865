//! What a CPU has to itself: some words of free frames, and blocks that it takes more from.

use super::bits::{self, WORD_PAGES};
use crate::arch::Order;
use crate::frame::MigrateType;
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Words that a CPU keeps at most; a power of two.
pub(super) const SLOTS: usize = 16;

/// What the frames of a slot, or a block that a CPU owns, are for: blocks of one type and order.
///
/// Orders keep apart: what is broken up for a larger block would soon be used up by smaller ones
/// otherwise, and the next one would break up more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List(u8);

impl List {
    /// Orders that keep apart; the last one is all above, too.
    const ORDERS: u8 = 4;
    pub(super) const COUNT: usize = Self::ORDERS as usize * MigrateType::COUNT + 1;
    /// Not for use: frames of a block that is to become empty, gathered on their way home.
    pub(super) const HOMEWARD: Self = Self(Self::COUNT as u8 - 1);

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

/// Free frames of one word, all of which are this CPU's.
struct Slot {
    /// The word's number in the zone; means something only with a frame free.
    word: AtomicU32,
    /// What the frames are for.
    list: AtomicU8,
    free: AtomicU64,
}

impl Slot {
    #[inline]
    fn list(&self) -> usize {
        self.list.load(Relaxed).into()
    }
}

/// Frames of one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) word: u32,
    pub(super) frames: u64,
}

/// A block that a CPU remembers, or none.
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

/// One CPU's cache of one zone. Frames in it are free for this CPU only: their bits say "used".
///
/// A word has one slot that it may be in, by its number: to look for it costs one comparison, and
/// a frame that comes back joins its neighbours if they are here.
pub(super) struct CpuCache {
    /// By list: which slots have a free frame.
    full: [AtomicU32; List::COUNT],
    /// By list: the slot used last.
    hot: [AtomicU8; List::COUNT],
    /// The word of a frame that came back last and could not stay.
    missed: AtomicU32,
    /// Slots in use, less one: fewer where memory is scarce for the number of CPUs.
    mask: u32,
    /// Pages in it.
    pages: AtomicU32,
    slots: [Slot; SLOTS],
    /// By list: the block that refills come from, if nobody has taken it over.
    pub(super) block: [BlockCell; List::COUNT],
    /// A whole block that came back, kept for the next one who wants one, like `block`.
    pub(super) spare: BlockCell,
    /// Pages that became free less those that were taken, not yet in the zone's counter.
    uncounted: AtomicI64,
}

impl CpuCache {
    /// An empty cache of `slots` slots, a power of two.
    pub(super) const fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two() && slots <= SLOTS);
        Self {
            full: [const { AtomicU32::new(0) }; List::COUNT],
            hot: [const { AtomicU8::new(0) }; List::COUNT],
            missed: AtomicU32::new(u32::MAX),
            mask: slots as u32 - 1,
            pages: AtomicU32::new(0),
            slots: [const {
                Slot { word: AtomicU32::new(0), list: AtomicU8::new(0), free: AtomicU64::new(0) }
            }; SLOTS],
            block: [const { BlockCell::none() }; List::COUNT],
            spare: BlockCell::none(),
            uncounted: AtomicI64::new(0),
        }
    }
    /// Takes a block of `order`, at most a word, from what is here: the word, and where in it.
    #[inline(always)]
    pub(super) fn take(&self, order: Order, kind: MigrateType) -> Option<(u32, u32)> {
        let list = List::of(order, kind);
        let hot = usize::from(self.hot[list.index()].load(Relaxed));
        // `hot` is below the number of slots; the compiler cannot know.
        let slot = &self.slots[hot % SLOTS];
        if self.full[list.index()].load(Relaxed) & 1 << hot != 0
            && let Some(bit) = bits::best(slot.free.load(Relaxed), order)
        {
            return Some(self.take_at(hot, bit, order, list));
        }
        self.take_elsewhere(order, list)
    }
    #[inline(never)]
    fn take_elsewhere(&self, order: Order, list: List) -> Option<(u32, u32)> {
        let mut left = self.full[list.index()].load(Relaxed);
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            if let Some(bit) = bits::best(self.slots[at].free.load(Relaxed), order) {
                self.hot[list.index()].store(at as u8, Relaxed);
                return Some(self.take_at(at, bit, order, list));
            }
            left &= left - 1;
        }
        None
    }
    #[inline]
    fn take_at(&self, at: usize, bit: u32, order: Order, list: List) -> (u32, u32) {
        let slot = &self.slots[at % SLOTS];
        let left = slot.free.load(Relaxed) & !bits::run(order, bit);
        slot.free.store(left, Relaxed);
        self.pages.store(self.pages() - order.pages() as u32, Relaxed);
        if left == 0 {
            self.mark(list.index(), at, false);
        }
        (slot.word.load(Relaxed), bit)
    }
    #[inline]
    fn mark(&self, list: usize, at: usize, full: bool) {
        let (marks, bit) = (&self.full[list], 1 << at);
        let before = marks.load(Relaxed);
        marks.store(if full { before | bit } else { before & !bit }, Relaxed);
    }
    /// Adds frames, `pages` in number, to their word if that is here.
    #[inline]
    pub(super) fn join(&self, run: Run, pages: u32) -> Joined {
        let at = (run.word & self.mask) as usize;
        let slot = &self.slots[at % SLOTS];
        let free = slot.free.load(Relaxed);
        if free == 0 || slot.word.load(Relaxed) != run.word {
            return Joined::Absent;
        }
        if free & run.frames != 0 {
            return Joined::Twice;
        }
        slot.free.store(free | run.frames, Relaxed);
        self.pages.store(self.pages() + pages, Relaxed);
        self.hot[slot.list()].store(at as u8, Relaxed);
        Joined::Yes
    }
    /// Whether frames of a word that is not here may wait in its slot for others of that word:
    /// nothing useful is in the way, or it is the second time in a row that some came.
    pub(super) fn may_gather(&self, word: u32) -> bool {
        let slot = &self.slots[(word & self.mask) as usize];
        let useful = slot.free.load(Relaxed) != 0 && slot.list() != List::HOMEWARD.index();
        !useful || {
            let again = self.missed.load(Relaxed) == word;
            self.missed.store(word, Relaxed);
            again
        }
    }
    /// Puts frames of a word that is not here into its slot; what was there is the caller's now.
    pub(super) fn install(&self, run: Run, list: List) -> Option<Run> {
        let at = (run.word & self.mask) as usize;
        let slot = &self.slots[at];
        let old = Run { word: slot.word.load(Relaxed), frames: slot.free.load(Relaxed) };
        if old.frames != 0 {
            self.mark(slot.list(), at, false);
        }
        slot.word.store(run.word, Relaxed);
        slot.list.store(list.0, Relaxed);
        slot.free.store(run.frames, Relaxed);
        let pages = self.pages() - old.frames.count_ones() + run.frames.count_ones();
        self.pages.store(pages, Relaxed);
        self.mark(list.index(), at, true);
        self.hot[list.index()].store(at as u8, Relaxed);
        (old.frames != 0).then_some(old)
    }
    /// Takes the frames of one word out.
    pub(super) fn pop(&self) -> Option<Run> {
        let slot = self.slots.iter().position(|slot| slot.free.load(Relaxed) != 0)?;
        let (at, slot) = (slot, &self.slots[slot]);
        self.mark(slot.list(), at, false);
        let frames = slot.free.swap(0, Relaxed);
        self.pages.store(self.pages() - frames.count_ones(), Relaxed);
        Some(Run { word: slot.word.load(Relaxed), frames })
    }
    /// What is in it, a word at a time.
    pub(super) fn words(&self) -> impl Iterator<Item = Run> + '_ {
        let run =
            |slot: &Slot| Run { word: slot.word.load(Relaxed), frames: slot.free.load(Relaxed) };
        self.slots.iter().map(run).filter(|run| run.frames != 0)
    }
    /// Pages in it.
    #[inline]
    pub(super) fn pages(&self) -> u32 {
        self.pages.load(Relaxed)
    }
    /// Says that it has `more` pages than there are.
    #[cfg(test)]
    pub(super) fn plant_pages(&self, more: u32) {
        self.pages.store(self.pages() + more, Relaxed);
    }
    /// Notes a change of the zone's free pages; what is noted now.
    #[inline]
    pub(super) fn account(&self, change: i64) -> i64 {
        let sum = self.uncounted.load(Relaxed) + change;
        self.uncounted.store(sum, Relaxed);
        sum
    }
    /// What is noted, which is the caller's to count now.
    pub(super) fn settle(&self) -> i64 {
        self.uncounted.swap(0, Relaxed)
    }
    /// What is noted.
    #[inline]
    pub(super) fn uncounted(&self) -> i64 {
        self.uncounted.load(Relaxed)
    }
    /// Pages that a cache of `slots` slots holds at most.
    pub(super) const fn most_pages(slots: usize) -> usize {
        slots * WORD_PAGES
    }
}

/// What became of frames that came back to a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Joined {
    /// Their word is here, and they are in it.
    Yes,
    /// Their word is not here.
    Absent,
    /// One of them is in it already.
    Twice,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(order: u8) -> Order {
        Order::new(order).unwrap()
    }

    #[test]
    fn frames_that_come_back_join_their_word_and_go_out_as_larger_blocks() {
        let cache = CpuCache::new(SLOTS);
        let kind = MigrateType::Unmovable;
        let list = List::of(order(3), kind);
        assert_eq!(cache.join(Run { word: 5, frames: 1 }, 1), Joined::Absent);
        assert_eq!(cache.install(Run { word: 5, frames: 1 }, list), None);
        for bit in 1..8 {
            assert_eq!(cache.join(Run { word: 5, frames: 1 << bit }, 1), Joined::Yes);
        }
        assert_eq!(cache.join(Run { word: 5, frames: 1 << 3 }, 1), Joined::Twice);
        assert_eq!(cache.take(order(3), MigrateType::Movable), None, "another type's");
        assert_eq!(cache.take(order(2), kind), None, "another order's");
        assert_eq!(cache.take(order(4), kind), None);
        assert_eq!(cache.take(order(3), kind), Some((5, 0)));
        assert_eq!((cache.pages(), cache.pop()), (0, None));
    }

    #[test]
    fn a_word_that_needs_its_slot_pushes_the_other_one_out() {
        let cache = CpuCache::new(4);
        let kind = MigrateType::Movable;
        let list = List::of(order(0), kind);
        cache.install(Run { word: 1, frames: 0xf0 }, list);
        cache.install(Run { word: 2, frames: 1 }, list);
        let other = List::of(order(0), MigrateType::Reclaimable);
        let out = cache.install(Run { word: 5, frames: 3 }, other);
        assert_eq!(out, Some(Run { word: 1, frames: 0xf0 }));
        assert_eq!(cache.take(order(0), kind), Some((2, 0)));
        assert_eq!(cache.take(order(0), kind), None, "the slot is of another type now");
        assert_eq!(cache.pages(), 2);
        assert_eq!(cache.pop(), Some(Run { word: 5, frames: 3 }));
        assert_eq!(cache.pop(), None);
    }

    #[test]
    fn frames_on_their_way_home_are_not_handed_out_and_push_out_none_that_are_unless_more_come() {
        let cache = CpuCache::new(4);
        let kind = MigrateType::Movable;
        assert!(cache.may_gather(9), "the slot is empty");
        cache.install(Run { word: 9, frames: 1 }, List::HOMEWARD);
        assert_eq!(cache.join(Run { word: 9, frames: 2 }, 1), Joined::Yes);
        assert_eq!(cache.take(order(0), kind), None);
        assert!(cache.may_gather(13), "nothing of use is in the way");
        cache.install(Run { word: 2, frames: 1 }, List::of(order(0), kind));
        assert!(!cache.may_gather(6));
        assert!(!cache.may_gather(10), "another word's came between");
        assert!(cache.may_gather(10), "the second of its word in a row");
        assert_eq!(cache.pop(), Some(Run { word: 9, frames: 3 }));
    }
}
