//! Frees of several frames of one pageblock together, with one change of its head.

use super::batch::{Batch, HeadWrite};
use super::bits::{self, Run, WORD_ORDER, WORD_PAGES};
use super::cpu::CpuCache;
use super::head::BLOCK_PAGES;
use super::index::BITS;
use super::order_hints::LARGEST_HINT;
use super::stack::{Oldest, split_pageblock};
use super::stack_layout::LARGE;
use super::{BlockMap, WORDS, block_of, freed_twice};
use crate::frame::MigrateType;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use mmscale_arch::{Cpu, CpuId, Op, Order};

/// Frames of one pageblock that are about to be freed.
struct Parcel<'a, A: Cpu> {
    /// The section in which heads are changed.
    batch: &'a Batch<'a, A>,
    block: usize,
    /// A bit for each word of which the parcel has all frames.
    whole: u8,
    /// A bit for each word of which it has some frames.
    some: u8,
    /// By word: those frames.
    frames: [u64; WORDS],
    pages: u32,
    /// Pageblocks that have become whole and are not in the index yet: the first block of a word of
    /// the index, and a bit for each.
    wholes: (usize, u64),
}

const _: () = assert!(WORDS == u8::BITS as usize);

impl<'a, A: Cpu> Parcel<'a, A> {
    const fn empty(batch: &'a Batch<'a, A>) -> Self {
        let frames = [0; WORDS];
        Self { batch, block: 0, whole: 0, some: 0, frames, pages: 0, wholes: (0, 0) }
    }
    /// Whether the parcel has frames of word `at`.
    #[inline]
    fn has(&self, at: usize) -> bool {
        (self.whole | self.some) >> at & 1 != 0
    }
    /// Adds frames of word `at`; returns those that it has already.
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
    /// Adds all frames of the `count` words that begin with `at`; returns whether it had none of
    /// them.
    #[inline]
    fn add_words(&mut self, at: usize, count: usize) -> bool {
        let words = (((1 << count) - 1) << at) as u8;
        let alone = (self.whole | self.some) & words == 0;
        self.whole |= words;
        self.pages += (count * WORD_PAGES) as u32;
        alone
    }
}

/// Iterates over the numbers of the set bits.
fn bits_of(mut bits: u8) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = bits.trailing_zeros();
        bits &= bits.checked_sub(1)?;
        Some(at as usize)
    })
}

impl<A: Cpu> BlockMap<A> {
    /// Makes room on the stacks for a block of `order` and `kind`: frees the oldest blocks of a
    /// stack to the map.
    pub(super) fn evict(&self, cache: &CpuCache, cpu: CpuId, order: Order, kind: MigrateType) {
        let batch = self.batch(cpu);
        let mut parcel = Parcel::empty(&batch);
        let oldest = cache.stacks.oldest(order, kind);
        A::work(Op::PcpPut, cache.stacks.frames(oldest).len() as u32);
        self.pack_oldest(cache, &mut parcel, oldest);
        self.deliver_all(cache, &mut parcel);
    }

    /// Frees all frames of a cache to the map.
    pub(super) fn flush_all(&self, cache: &CpuCache, cpu: CpuId) {
        let batch = self.batch(cpu);
        let mut parcel = Parcel::empty(&batch);
        for all in cache.stacks.all() {
            self.pack_oldest(cache, &mut parcel, all);
        }
        while let Some(run) = cache.pop_pending() {
            self.pack(cache, &mut parcel, run);
        }
        self.deliver_all(cache, &mut parcel);
    }

    /// Removes blocks from their stack and adds them to the parcel. All blocks of a whole pageblock
    /// are freed directly, and the pageblock is filed together with others.
    fn pack_oldest(&self, cache: &CpuCache, parcel: &mut Parcel<'_, A>, oldest: Oldest) {
        let (mut frames, order) = (cache.stacks.frames(oldest), oldest.order());
        if frames.is_empty() {
            return;
        }
        if order.get() < LARGE {
            for frame in frames {
                // Few blocks are of the same pageblock: they become pending frees.
                if let Some((run, _)) = self.defer_free(cache, frame.load(Relaxed), order) {
                    self.pack(cache, parcel, run);
                }
            }
        } else if order == Order::PAGEBLOCK {
            self.deliver_held(cache, parcel, frames);
        } else {
            while let Some((frame, others)) = frames.split_first() {
                if let Some((block, others)) = split_pageblock(frames, order) {
                    A::work(Op::BuddyPut, (frames.len() - others.len()).min(WORDS) as u32);
                    self.deliver_whole(cache, parcel, block);
                    frames = others;
                } else {
                    self.pack_large(cache, parcel, (frame.load(Relaxed), order));
                    frames = others;
                }
            }
        }
        cache.stacks.remove(oldest);
    }

    /// Adds a large block; more of its pageblock are expected.
    #[inline(never)]
    fn pack_large(
        &self,
        cache: &CpuCache,
        parcel: &mut Parcel<'_, A>,
        (frame, order): (u32, Order),
    ) {
        if order.get() >= WORD_ORDER {
            return self.pack_words(cache, parcel, (frame, order));
        }
        let (word, bit) = bits::split(frame);
        self.pack(cache, parcel, Run { word, frames: bits::run(order, bit) });
    }

    /// Frees held pageblocks.
    fn deliver_held(&self, cache: &CpuCache, parcel: &mut Parcel<'_, A>, frames: &[AtomicU32]) {
        A::work(Op::BuddyPut, frames.len() as u32);
        let (write, mut free) = (parcel.batch.enter(self), 0);
        for frame in frames {
            let block = block_of(frame.load(Relaxed));
            if self.make_whole(write, block, Order::PAGEBLOCK)
                || !self.release_held(block, Order::PAGEBLOCK, None).is_isolated()
            {
                free += BLOCK_PAGES as i64;
                self.file_with_others(parcel, block);
            }
        }
        cache.account(free);
    }

    /// Frees all frames of a pageblock to the map.
    #[inline]
    fn deliver_whole(&self, cache: &CpuCache, parcel: &mut Parcel<'_, A>, block: usize) {
        self.clear_all(block);
        if self.make_whole(parcel.batch.enter(self), block, Order::ZERO) {
            cache.account(BLOCK_PAGES as i64);
            self.file_with_others(parcel, block);
        } else {
            Self::order_words();
            cache.account(self.release_frames(block, BLOCK_PAGES, || LARGEST_HINT));
        }
    }

    /// Makes a full or held pageblock free, all frames of which the CPU frees. Returns `false` if
    /// it has an owner or is isolated.
    #[inline]
    fn make_whole(&self, write: HeadWrite, block: usize, order: Order) -> bool {
        self.replace(write, block, |head| head.is_fully_used_by(order).then_some(head.as_whole()))
    }

    #[inline]
    fn file_with_others(&self, parcel: &mut Parcel<'_, A>, block: usize) {
        let (first, bit) = (block / BITS * BITS, 1 << (block % BITS));
        if parcel.wholes.0 != first {
            self.file_wholes(parcel);
            parcel.wholes.0 = first;
        }
        parcel.wholes.1 |= bit;
    }

    /// Adds the pageblocks of a parcel that have become whole to their index.
    fn file_wholes(&self, parcel: &mut Parcel<'_, A>) {
        if parcel.wholes.1 != 0 {
            self.whole.set_some(parcel.wholes.0, core::mem::take(&mut parcel.wholes.1));
        }
    }

    /// Adds a block of whole words.
    fn pack_words(
        &self,
        cache: &CpuCache,
        parcel: &mut Parcel<'_, A>,
        (frame, order): (u32, Order),
    ) {
        A::work(Op::BuddyPut, 1);
        let (word, _) = bits::split(frame);
        self.open(cache, parcel, word);
        if !parcel.add_words(word as usize % WORDS, order.pages() >> WORD_ORDER) {
            freed_twice(self.pfn(frame));
        }
    }

    /// Adds frames of a word.
    #[inline]
    fn pack(&self, cache: &CpuCache, parcel: &mut Parcel<'_, A>, run: Run) {
        self.open(cache, parcel, run.word);
        if !parcel.has(run.word as usize % WORDS) {
            A::work(Op::BuddyPut, 1);
        }
        let twice = parcel.add(run.word as usize % WORDS, run.frames);
        if twice != 0 {
            freed_twice(self.frame(run.word, twice.trailing_zeros()));
        }
    }

    /// Makes a parcel one for the pageblock of `word`; frees the frames of another one before.
    #[inline]
    fn open(&self, cache: &CpuCache, parcel: &mut Parcel<'_, A>, word: u32) {
        let block = word as usize / WORDS;
        if parcel.block != block {
            self.deliver(cache, parcel);
            parcel.block = block;
        }
    }

    /// Frees all frames of a parcel, and files the pageblocks that have become whole.
    fn deliver_all(&self, cache: &CpuCache, parcel: &mut Parcel<'_, A>) {
        self.deliver(cache, parcel);
        self.file_wholes(parcel);
    }

    /// Frees the frames of a parcel to the map.
    #[inline]
    fn deliver(&self, cache: &CpuCache, parcel: &mut Parcel<'_, A>) {
        if parcel.pages > 0 {
            self.deliver_frames(cache, parcel);
        }
    }

    #[inline(never)]
    fn deliver_frames(&self, cache: &CpuCache, parcel: &mut Parcel<'_, A>) {
        let (block, pages) = (parcel.block, core::mem::take(&mut parcel.pages));
        let (whole, some) = (core::mem::take(&mut parcel.whole), core::mem::take(&mut parcel.some));
        if whole == !0 {
            return self.deliver_whole(cache, parcel, block);
        }
        let mut largest = 0;
        if (whole | some).is_power_of_two() {
            // One access to the bitmap: another CPU may own its line.
            let at = (whole | some).trailing_zeros() as usize;
            let frames = if whole != 0 { !0 } else { core::mem::take(&mut parcel.frames[at]) };
            largest = bits::largest(self.clear(block, at, frames));
        } else {
            for at in bits_of(whole) {
                self.clear_words(block, at..at + 1);
                largest = WORD_ORDER;
            }
            for at in bits_of(some) {
                let frames = core::mem::take(&mut parcel.frames[at]);
                largest = bits::largest(self.clear(block, at, frames)).max(largest);
            }
            if whole != 0 {
                Self::order_words();
            }
        }
        cache.account(self.release_frames(block, pages.into(), || largest));
    }
}
