//! What goes home together: frames of one pageblock, with one change of its head.

use super::bits::{self, Run, WORD_ORDER};
use super::cpu::CpuCache;
use super::head::BLOCK_PAGES;
use super::rooms::LARGEST_ROOM;
use super::{BlockMap, WORDS, freed_twice};
use crate::arch::{Arch, Op, Order};
use crate::frame::MigrateType;

/// Frames of one pageblock.
struct Parcel {
    block: usize,
    /// By word.
    frames: [u64; WORDS],
    /// The words that have any, as bits.
    words: u8,
    pages: u32,
}

const _: () = assert!(WORDS == u8::BITS as usize);

impl Parcel {
    const fn empty() -> Self {
        Self { block: 0, frames: [0; WORDS], words: 0, pages: 0 }
    }
    /// Takes its words out: where in the pageblock, and which frames.
    fn unpack(&mut self) -> impl Iterator<Item = (usize, u64)> + '_ {
        core::iter::from_fn(|| {
            let at = self.words.trailing_zeros() as usize;
            let frames = self.frames.get_mut(at)?;
            self.words &= self.words - 1;
            Some((at, core::mem::take(frames)))
        })
    }
}

impl<A: Arch> BlockMap<A> {
    /// Makes room on the stacks.
    pub(super) fn shed(&self, cache: &CpuCache, order: Order, kind: MigrateType) {
        let mut parcel = Parcel::empty();
        cache.stacks.shed(order, kind, |frame, order| {
            A::work(Op::PcpPut, 1);
            self.pack_block(cache, &mut parcel, (frame, order));
        });
        self.deliver(cache, &mut parcel);
    }

    /// Sends all frames home that a cache holds.
    pub(super) fn send_all_home(&self, cache: &CpuCache) {
        let mut parcel = Parcel::empty();
        let parcel = &mut parcel;
        cache.stacks.clear(|frame, order| self.pack_block(cache, parcel, (frame, order)));
        while let Some(run) = cache.pop_home() {
            self.pack(cache, parcel, run);
        }
        self.deliver(cache, parcel);
    }

    /// Adds a block, with others of its word if it is smaller than that and there are any.
    #[inline]
    fn pack_block(&self, cache: &CpuCache, parcel: &mut Parcel, (frame, order): (u32, Order)) {
        if order.get() >= WORD_ORDER {
            self.pack_words(cache, parcel, (frame, order));
        } else if let Some(run) = self.go_home(cache, frame, order) {
            self.pack(cache, parcel, run);
        }
    }

    /// Adds a block of whole words.
    fn pack_words(&self, cache: &CpuCache, parcel: &mut Parcel, (frame, order): (u32, Order)) {
        A::work(Op::BuddyPut, 1);
        let (word, _) = bits::split(frame);
        self.open(cache, parcel, word);
        let (at, count) = (word as usize % WORDS, order.pages() >> WORD_ORDER);
        let words = ((1 << count) - 1) << at;
        if parcel.words & words != 0 {
            freed_twice(self.pfn(frame));
        }
        parcel.frames[at..at + count].fill(!0);
        parcel.words |= words;
        parcel.pages += order.pages() as u32;
    }

    /// Adds frames of a word.
    #[inline(never)]
    fn pack(&self, cache: &CpuCache, parcel: &mut Parcel, run: Run) {
        A::work(Op::BuddyPut, 1);
        self.open(cache, parcel, run.word);
        let at = run.word as usize % WORDS;
        let twice = parcel.frames[at] & run.frames;
        if twice != 0 {
            freed_twice(self.frame(run.word, twice.trailing_zeros()));
        }
        parcel.frames[at] |= run.frames;
        parcel.words |= 1 << at;
        parcel.pages += run.frames.count_ones();
    }

    /// Makes a parcel one for the pageblock of a word; what is of another is delivered before.
    #[inline]
    fn open(&self, cache: &CpuCache, parcel: &mut Parcel, word: u32) {
        let block = word as usize / WORDS;
        if parcel.block != block {
            self.deliver(cache, parcel);
            parcel.block = block;
        }
    }

    /// Gives what is in a parcel to the map.
    fn deliver(&self, cache: &CpuCache, parcel: &mut Parcel) {
        if parcel.words == 0 {
            return;
        }
        let (block, pages) = (parcel.block, core::mem::take(&mut parcel.pages));
        if u64::from(pages) == BLOCK_PAGES {
            (parcel.frames, parcel.words) = ([0; WORDS], 0);
            (0..WORDS).for_each(|at| self.clear_word(block, at));
            cache.account(self.uncount(block, BLOCK_PAGES, LARGEST_ROOM));
            return;
        }
        let (mut largest, several) = (0, !parcel.words.is_power_of_two());
        for (at, frames) in parcel.unpack() {
            largest = if several && frames == !0 {
                // The line is this CPU's by now, or it will be in a moment.
                self.clear_word(block, at);
                WORD_ORDER
            } else {
                bits::largest(self.clear(block, at, frames)).max(largest)
            };
        }
        cache.account(self.uncount(block, pages.into(), largest));
    }
}
