//! Questions about a frame, a pageblock, and the pages in caches.

use super::bits::{self, Run, WORD_ORDER};
use super::contig::runs_of;
use super::{BlockMap, WORDS, block_of};
use crate::zone::{FrameUse, FreeError, Pageblock};
use core::sync::atomic::Ordering::Acquire;
use mmscale_arch::sync::{NoPreempt, PreemptGuard};
use mmscale_arch::{Atomic, Cpu, Order, Pfn};

impl<A: Cpu> BlockMap<A> {
    /// The use of a frame of the zone; the order of a block in use is known from a pageblock's up.
    pub(crate) fn frame_use(&self, pfn: Pfn) -> FrameUse {
        let frame = self.index(pfn);
        let head = self.head(block_of(frame));
        let (word, bit) = bits::split(frame);
        let used = head.held().is_some() || self.used_bits(word) >> bit & 1 != 0;
        match used {
            _ if head.is_offline() => FrameUse::Offline,
            true if self.is_cached(word, bit) => FrameUse::Cached,
            true => FrameUse::Held(head.held()),
            false if head.is_isolated() => FrameUse::Isolated,
            false => FrameUse::Free(self.free_order(frame)),
        }
    }

    /// The set bits of a word.
    fn used_bits(&self, word: u32) -> u64 {
        // A question, whose answer is that of a moment: no partner.
        self.word(word).load(Acquire)
    }

    fn is_cached(&self, word: u32, bit: u32) -> bool {
        let mut caches = self.caches.iter().map(|(_, cache)| cache.peek());
        caches.any(|cache| cache.words().any(|run| run.word == word && run.frames >> bit & 1 != 0))
    }

    /// The largest aligned block of free frames that has a free frame, within its pageblock.
    fn free_order(&self, frame: u32) -> Order {
        let is_free = |order: &Order| {
            let first = frame & !(order.pages() as u32 - 1);
            let (word, bit) = bits::split(first);
            if order.get() < WORD_ORDER {
                return self.used_bits(word) & bits::run(*order, bit) == 0;
            }
            let words = (order.pages() >> WORD_ORDER) as u32;
            (word..word + words).all(|word| self.used_bits(word) == 0)
        };
        let orders = Order::all().take_while(|&order| order <= Order::PAGEBLOCK);
        orders.take_while(is_free).last().unwrap_or(Order::ZERO)
    }

    /// Checks that a block can be freed, as far as its pageblock and the cache of this CPU show it.
    pub(crate) fn check_free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let (first, blocks) = (self.index(pfn), order.pages().div_ceil(Order::PAGEBLOCK.pages()));
        let heads = (0..blocks).map(|nth| self.head(block_of(first) + nth));
        for head in heads {
            match head.held() {
                Some(held) if held >= order => {}
                Some(held) => return Err(FreeError::Order(held)),
                None if head.used() == 0 => return Err(FreeError::Free),
                None if order >= Order::PAGEBLOCK => return Err(FreeError::NoBlock),
                None => {}
            }
        }
        let held = self.head(block_of(first)).held().is_some();
        let pinned = PreemptGuard::<A>::new();
        let cache = self.caches.of(pinned.cpu()).peek();
        let free = |run: Run| {
            let cached = |kept: Run| kept.word == run.word && kept.frames & run.frames != 0;
            !held && !self.used_bits(run.word) & run.frames != 0 || cache.words().any(cached)
        };
        let any = runs_of(first..first + order.pages() as u32).any(free);
        if any { Err(FreeError::Free) } else { Ok(()) }
    }

    /// The pageblock of a frame of the zone, which has `pages` frames of it.
    pub(crate) fn pageblock(&self, pfn: Pfn, pages: u32) -> Pageblock {
        let block = self.block_of(pfn);
        let head = self.head(block);
        let free = if head.is_offline() { 0 } else { (head.free() as u32).min(pages) };
        let orders = Order::all().rev().skip_while(|&order| order >= Order::PAGEBLOCK);
        let has = |order: &Order| self.word_with(block, *order).is_some();
        let largest = match (free, head.used()) {
            (0, _) => None,
            (_, 0) => Some(Order::PAGEBLOCK),
            _ => { orders }.find(has),
        };
        let (migrate_type, isolated) = (head.kind(), head.is_isolated() && !head.is_offline());
        Pageblock { pages, free, largest, migrate_type, isolated, offline: head.is_offline() }
    }

    /// The number of CPUs that may use the map.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus
    }

    /// The sum of all CPUs' deltas, and the pages in all caches.
    pub(crate) fn unfolded_and_cached(&self) -> (i64, u64) {
        let caches = self.caches.iter().map(|(_, cache)| cache.peek());
        caches.fold((0, 0), |(unfolded, cached), cache| {
            (unfolded + cache.delta(), cached + u64::from(cache.pages()))
        })
    }
}

const _: () = assert!(1 << (Order::PAGEBLOCK.get() - WORD_ORDER) == WORDS);
