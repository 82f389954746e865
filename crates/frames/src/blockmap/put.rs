//! Frees to the map: bits are cleared first, then subtracted from `used`.
//!
//! In that order `used` is never less than the number of set bits, so a block with `used` 0 is
//! free. See [`head`](super::head) for the states, and [`drain`](super::drain) for the ordering.

use super::bits::{self, Run, WORD_ORDER};
use super::cpu::BlockCell;
use super::head::{BLOCK_PAGES, Head};
use super::order_hints::LARGEST_HINT;
use super::{BlockMap, WORDS, block_of, freed_twice};
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use mmscale_arch::{Atomic, Cpu, CpuId, Op, Order};

impl<A: Cpu> BlockMap<A> {
    /// Frees a block of at most a pageblock's order to the map; returns the increase of the zone's
    /// free pages, 0 if the pageblock is isolated.
    pub(super) fn put_block(&self, frame: u32, order: Order) -> i64 {
        A::work(Op::BuddyPut, 1);
        let (word, bit) = bits::split(frame);
        if order.get() < WORD_ORDER {
            let run = Run { word, frames: bits::run(order, bit) };
            return self.put_back(run, order.pages() as u32);
        }
        if order == Order::PAGEBLOCK {
            return self.put_whole(block_of(frame), order, None);
        }
        self.put_words(frame, order)
    }

    /// Frees a block of whole words, below a pageblock's order; returns the increase of the zone's
    /// free pages.
    #[inline(always)]
    pub(super) fn put_words(&self, frame: u32, order: Order) -> i64 {
        let (word, _) = bits::split(frame);
        let (block, at) = (word as usize / WORDS, word as usize % WORDS);
        self.clear_words(block, at..at + (order.pages() >> WORD_ORDER));
        Self::order_words();
        self.release_frames(block, order.pages() as u64, || order.get())
    }

    /// Frees `pages` frames of one word to the map; returns the increase of the zone's free pages.
    #[inline(always)]
    pub(super) fn put_back(&self, run: Run, pages: u32) -> i64 {
        let (block, at) = (run.word as usize / WORDS, run.word as usize % WORDS);
        let free = self.clear(block, at, run.frames);
        let largest = || bits::largest_with(free, run.frames, pages);
        self.release_frames(block, pages.into(), largest)
    }

    /// Clears the bits of frames in use; returns the free frames of their word. Panics if one of
    /// them is free.
    #[inline]
    pub(super) fn clear(&self, block: usize, at: usize, frames: u64) -> u64 {
        let splits = self.splits();
        // All bits are set, so subtracting clears them. On x86 that is one instruction, while an
        // and whose old value is used is a loop. If a bit is clear, the frames are part of a held
        // block ([`split`](super::split)), or the subtraction is undone before the panic. Pairs
        // with the taker's `Acquire` loads: the last user is done.
        let before = self.words[block].0[at].fetch_sub(frames, SeqCst);
        if frames & !before != 0 && !self.is_of_held(block, splits) {
            self.words[block].0[at].fetch_add(frames, SeqCst);
            self.check_used(block, at, frames & !before);
        }
        !before | frames
    }

    /// Clears the bits of all frames of a block.
    #[inline]
    pub(super) fn clear_all(&self, block: usize) {
        self.clear_words(block, 0..WORDS);
    }

    /// Clears the bits of all frames of some words. All of them are the caller's, and bits of used
    /// frames are changed by the CPU that frees them only, so plain stores are enough.
    #[inline(always)]
    pub(super) fn clear_words(&self, block: usize, at: Range<usize>) {
        let splits = self.splits();
        // A constant number of words needs no loop.
        let words = &self.words[block].0[at.clone()];
        let cleared = match words.len() {
            1 => Self::clear_used::<1>(words),
            2 => Self::clear_used::<2>(words),
            4 => Self::clear_used::<4>(words),
            _ => Self::clear_used::<WORDS>(words),
        };
        if !cleared {
            self.clear_words_of_held(block, at, splits);
        }
    }

    /// Clears the bits of whole words of a held block. Panics if they are not of one: a frame is
    /// free already.
    #[cold]
    fn clear_words_of_held(&self, block: usize, at: Range<usize>, splits: u32) {
        let of_held = self.is_of_held(block, splits);
        for (at, word) in at.clone().zip(&self.words[block].0[at]) {
            if of_held {
                // Pairs as in `clear`.
                word.fetch_sub(!0, SeqCst);
            } else {
                // Only finds the frame to name in the panic: no partner.
                self.check_used(block, at, !word.load(Acquire));
            }
        }
    }

    /// Orders the stores of `clear_words` before the load of the hints in `release_frames`.
    #[inline(always)]
    pub(super) fn order_words() {
        // Row 7 of the table in `drain`: pairs with the fence in `find_among` (find.rs).
        A::fence(SeqCst);
    }

    /// Clears `COUNT` words of which all frames are in use. Returns `false`, and changes nothing,
    /// if one is not.
    #[inline(always)]
    fn clear_used<const COUNT: usize>(words: &[A::AtomicU64]) -> bool {
        let words = words.first_chunk::<COUNT>().expect("the number of words of a block");
        // Pairs with the `Release` in `mark_used` and `mark_all_used` (take.rs).
        let used = words.iter().fold(!0, |used, word| used & word.load(Acquire)) == !0;
        if used {
            // Pairs with the `Acquire` in `starts`.
            words.iter().for_each(|word| word.store(0, Release));
        }
        used
    }

    #[inline]
    fn check_used(&self, block: usize, at: usize, twice: u64) {
        if twice != 0 {
            freed_twice(self.frame((block * WORDS + at) as u32, twice.trailing_zeros()));
        }
    }

    /// Subtracts `pages` frames, whose bits are clear, from a block's `used`, moves the block to
    /// the index of its new fill, and hints that it may have a free block of order `largest`.
    /// Returns the increase of the zone's free pages, 0 if the block is isolated.
    #[inline(always)]
    pub(super) fn release_frames(
        &self,
        block: usize,
        pages: u64,
        largest: impl FnOnce() -> u8,
    ) -> i64 {
        // Pairs with the loads of heads: a CPU that finds frames free finds their bits clear.
        // SeqCst keeps it before the loads of hints (row 7 of `drain`) and of the index
        // (`Index::set`).
        let before = Head(self.heads[block].fetch_sub(pages, SeqCst));
        let after = Head(before.0 - pages);
        if !self.order_hints.is_in_all(block) {
            let hint = match (largest(), after.free()) {
                // A guess: words may be free, but no two adjacent ones. Or none is free: a CPU in
                // the block may have taken these frames before they were subtracted.
                (largest, free) if largest >= WORD_ORDER => {
                    LARGEST_HINT.min((free | 1).ilog2() as u8).max(largest)
                }
                (largest, _) => largest,
            };
            self.order_hints.note(block, hint);
        }
        if before.is_isolated() {
            return 0;
        }
        if !before.is_owned() && after.is_moved_from(before) {
            self.file_moved(block, after);
        }
        pages as i64
    }

    /// Files a block whose fill has changed. Not inlined: the fill rarely changes.
    #[inline(never)]
    fn file_moved(&self, block: usize, head: Head) {
        self.file(block, head);
    }

    /// Frees one or two held blocks; returns the increase of the zone's free pages. If `spare` is
    /// given and empty, a single block becomes that CPU's spare.
    pub(super) fn put_whole(
        &self,
        block: usize,
        order: Order,
        spare: Option<(&BlockCell, CpuId)>,
    ) -> i64 {
        let mut gained = 0;
        let single = order == Order::PAGEBLOCK;
        let mut spare = spare.filter(|(spare, _)| spare.get().is_none() && single);
        for block in block..block + (order.pages() >> Order::PAGEBLOCK.get()) {
            let head = self.release_held(block, order, spare.map(|(_, cpu)| cpu));
            match spare.take_if(|_| head.is_owned()) {
                Some((spare, _)) => spare.set(block),
                None => self.file(block, head),
            }
            gained += if head.is_isolated() { 0 } else { BLOCK_PAGES as i64 };
        }
        gained
    }

    /// Frees a pageblock that is held as part of a block of `order` or more; returns its new head.
    /// It is then owned by `keeper`, if one is given and the block is not isolated.
    #[inline]
    pub(super) fn release_held(&self, block: usize, order: Order, keeper: Option<CpuId>) -> Head {
        loop {
            let head = self.head(block);
            if head.held().is_none_or(|held| held < order) {
                freed_twice(self.frame((block * WORDS) as u32, 0));
            }
            let keeper = keeper.filter(|_| !head.is_isolated());
            let after = keeper.map_or(head.as_whole(), |cpu| head.as_whole().owned(cpu));
            if self.change(block, head, after) {
                return after;
            }
        }
    }
}
