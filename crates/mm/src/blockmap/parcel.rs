//! What goes home together: frames of one pageblock, with one change of its head.

use super::bits::{self, Run, WORD_ORDER, WORD_PAGES};
use super::cpu::CpuCache;
use super::head::{BLOCK_PAGES, Head};
use super::index::BITS;
use super::rooms::LARGEST_ROOM;
use super::stack::LARGE;
use super::{BlockMap, WORDS, block_of, freed_twice};
use crate::arch::{Arch, Atomic, Op, Order};
use crate::frame::MigrateType;
use core::sync::atomic::Ordering::SeqCst;

/// Frames of one pageblock.
struct Parcel {
    block: usize,
    /// The words that have all of theirs in it, as bits.
    whole: u8,
    /// The words that have some, as bits.
    some: u8,
    /// Those, by word.
    frames: [u64; WORDS],
    pages: u32,
    /// Pageblocks that have become whole and are to be put where they are found: the first that
    /// may be, and a bit for each from there on.
    wholes: (usize, u64),
}

const _: () = assert!(WORDS == u8::BITS as usize);

impl Parcel {
    const fn empty() -> Self {
        Self { block: 0, whole: 0, some: 0, frames: [0; WORDS], pages: 0, wholes: (0, 0) }
    }
    /// Whether it has frames of word `at`.
    #[inline]
    fn has(&self, at: usize) -> bool {
        (self.whole | self.some) >> at & 1 != 0
    }
    /// Adds frames of word `at`; which of them are in it already.
    #[inline]
    fn add(&mut self, at: usize, frames: u64) -> u64 {
        let there = if self.whole >> at & 1 != 0 { !0 } else { self.frames[at] };
        let all = there | frames;
        if all == !0 {
            (self.whole, self.some) = (self.whole | 1 << at, self.some & !(1 << at));
            self.frames[at] = 0;
        } else {
            self.some |= 1 << at;
            self.frames[at] = all;
        }
        self.pages += frames.count_ones();
        there & frames
    }
    /// Adds all frames of `count` words from `at` on; whether none of them was in it.
    #[inline]
    fn add_words(&mut self, at: usize, count: usize) -> bool {
        let words = (((1 << count) - 1) << at) as u8;
        let alone = (self.whole | self.some) & words == 0;
        self.whole |= words;
        self.pages += (count * WORD_PAGES) as u32;
        alone
    }
}

/// The numbers of the bits that are set.
fn bits_of(mut bits: u8) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = bits.trailing_zeros();
        bits &= bits.checked_sub(1)?;
        Some(at as usize)
    })
}

impl<A: Arch> BlockMap<A> {
    /// Makes room on the stacks.
    pub(super) fn shed(&self, cache: &CpuCache, order: Order, kind: MigrateType) {
        let mut parcel = Parcel::empty();
        cache.stacks.shed(order, kind, |frame, order| {
            A::work(Op::PcpPut, 1);
            self.pack_block(cache, &mut parcel, (frame, order));
        });
        self.deliver_all(cache, parcel);
    }

    /// Sends all frames home that a cache holds.
    pub(super) fn send_all_home(&self, cache: &CpuCache) {
        let mut parcel = Parcel::empty();
        cache.stacks.clear(|frame, order| self.pack_block(cache, &mut parcel, (frame, order)));
        while let Some(run) = cache.pop_home() {
            self.pack(cache, &mut parcel, run);
        }
        self.deliver_all(cache, parcel);
    }

    /// Adds a block; a small one, of which few come together, once others of its word are there.
    #[inline(always)]
    fn pack_block(&self, cache: &CpuCache, parcel: &mut Parcel, (frame, order): (u32, Order)) {
        if order == Order::PAGEBLOCK {
            self.pack_whole(cache, parcel, block_of(frame));
        } else if order.get() >= WORD_ORDER {
            self.pack_words(cache, parcel, (frame, order));
        } else if order.get() >= LARGE {
            let (word, bit) = bits::split(frame);
            self.pack(cache, parcel, Run { word, frames: bits::run(order, bit) });
        } else if let Some(run) = self.go_home(cache, frame, order) {
            self.pack(cache, parcel, run);
        }
    }

    /// Gives a pageblock that was held back; where it is found it is put with others.
    #[inline(never)]
    fn pack_whole(&self, cache: &CpuCache, parcel: &mut Parcel, block: usize) {
        A::work(Op::BuddyPut, 1);
        if !self.release(block, Order::PAGEBLOCK, None).is_isolated() {
            cache.account(BLOCK_PAGES as i64);
            self.file_with_others(parcel, block);
        }
    }

    /// Gives all frames of a pageblock to the map.
    fn deliver_whole(&self, cache: &CpuCache, parcel: &mut Parcel, block: usize) {
        (0..WORDS).for_each(|at| self.clear_word(block, at));
        let before = Head(self.heads[block].fetch_sub(BLOCK_PAGES, SeqCst));
        let after = Head(before.0 - BLOCK_PAGES);
        self.rooms.note(block, LARGEST_ROOM);
        if before.is_isolated() {
            return;
        }
        cache.account(BLOCK_PAGES as i64);
        if after.used() == 0 && !before.is_owned() {
            self.file_with_others(parcel, block);
        } else if !before.is_owned() {
            self.file(block, after);
        }
    }

    #[inline]
    fn file_with_others(&self, parcel: &mut Parcel, block: usize) {
        let (first, bit) = (block / BITS * BITS, 1 << (block % BITS));
        if parcel.wholes.0 != first {
            self.file_wholes(parcel);
            parcel.wholes.0 = first;
        }
        parcel.wholes.1 |= bit;
    }

    /// Puts the pageblocks of a parcel that have become whole where they are found.
    fn file_wholes(&self, parcel: &mut Parcel) {
        if parcel.wholes.1 != 0 {
            self.whole.set_some(parcel.wholes.0, core::mem::take(&mut parcel.wholes.1));
        }
    }

    /// Adds a block of whole words.
    fn pack_words(&self, cache: &CpuCache, parcel: &mut Parcel, (frame, order): (u32, Order)) {
        A::work(Op::BuddyPut, 1);
        let (word, _) = bits::split(frame);
        self.open(cache, parcel, word);
        if !parcel.add_words(word as usize % WORDS, order.pages() >> WORD_ORDER) {
            freed_twice(self.pfn(frame));
        }
    }

    /// Adds frames of a word.
    #[inline]
    fn pack(&self, cache: &CpuCache, parcel: &mut Parcel, run: Run) {
        self.open(cache, parcel, run.word);
        if !parcel.has(run.word as usize % WORDS) {
            A::work(Op::BuddyPut, 1);
        }
        let twice = parcel.add(run.word as usize % WORDS, run.frames);
        if twice != 0 {
            freed_twice(self.frame(run.word, twice.trailing_zeros()));
        }
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

    /// Gives all that is in a parcel to the map.
    fn deliver_all(&self, cache: &CpuCache, mut parcel: Parcel) {
        self.deliver(cache, &mut parcel);
        self.file_wholes(&mut parcel);
    }

    /// Gives the frames of a parcel to the map.
    fn deliver(&self, cache: &CpuCache, parcel: &mut Parcel) {
        if parcel.pages == 0 {
            return;
        }
        let (block, pages) = (parcel.block, core::mem::take(&mut parcel.pages));
        let (whole, some) = (core::mem::take(&mut parcel.whole), core::mem::take(&mut parcel.some));
        if whole == !0 {
            return self.deliver_whole(cache, parcel, block);
        }
        let mut largest = 0;
        if (whole | some).is_power_of_two() {
            // In one step: the line may be another CPU's.
            let at = (whole | some).trailing_zeros() as usize;
            let frames = if whole != 0 { !0 } else { core::mem::take(&mut parcel.frames[at]) };
            largest = bits::largest(self.clear(block, at, frames));
        } else {
            for at in bits_of(whole) {
                self.clear_word(block, at);
                largest = WORD_ORDER;
            }
            for at in bits_of(some) {
                let frames = core::mem::take(&mut parcel.frames[at]);
                largest = bits::largest(self.clear(block, at, frames)).max(largest);
            }
        }
        cache.account(self.uncount(block, pages.into(), largest));
    }
}
