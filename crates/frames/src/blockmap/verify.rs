//! Consistency checks of a map: for tests, and for the end of a run.

use super::bits::{self, WORD_PAGES};
use super::head::BLOCK_PAGES;
use super::{BlockMap, WORDS};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Acquire;
use mmscale_arch::{Atomic, Cpu, CpuId, Order, OwnedCounter, Pfn};

/// An inconsistency of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapError {
    /// The head of the block at this frame counts another number of used frames than its bits, or
    /// the block is held and has a bit.
    Count(Pfn),
    /// The block at this frame is busy, or its owner does not know that it owns it.
    Owner(Pfn),
    /// The block at this frame has free frames and is in no index.
    Unfiled(Pfn),
    /// The block at this frame has a free block of this order and is not in the set of its hints.
    Unhinted(Pfn, Order),
    /// The block at this frame is in the index of whole blocks without owner, and is not one.
    Misfiled(Pfn),
    /// A CPU's cache has another number of pages than its count, or it has pages or a delta while
    /// its flag says that it is empty.
    CacheCount(CpuId),
    /// A CPU's cache has this frame, which is also free in the map, or in the cache a second time.
    Cached(Pfn),
}

/// Pages of a map by their state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct MapAudit {
    /// Free in the map.
    pub(crate) free: u64,
    /// In CPUs' caches.
    pub(crate) cached: u64,
    /// Free, in isolated blocks.
    pub(crate) isolated: u64,
    /// In offline blocks.
    pub(crate) offline: u64,
    /// The sum of the CPUs' unfolded deltas.
    pub(crate) unfolded: i64,
}

impl<A: Cpu> BlockMap<A> {
    /// Checks the whole map. Only while no CPU allocates or frees.
    pub(crate) fn verify(&self) -> Result<MapAudit, MapError> {
        let mut audit = MapAudit::default();
        for block in 0..self.heads.len() {
            let free = self.verify_block(block)?;
            let head = self.head(block);
            let of = match (head.is_isolated(), head.is_offline()) {
                (false, _) => &mut audit.free,
                (true, false) => &mut audit.isolated,
                (true, true) => &mut audit.offline,
            };
            *of += free;
        }
        for (cpu, cache) in self.caches.iter() {
            let cache = cache.peek();
            let pages: u32 = cache.words().map(|run| run.frames.count_ones()).sum();
            let keeps = pages > 0 || cache.delta() != 0;
            if pages != cache.pages() || keeps && !self.shared.of(cpu).nonempty.is_nonzero() {
                return Err(MapError::CacheCount(cpu));
            }
            audit.cached += u64::from(pages);
            audit.unfolded += cache.delta();
        }
        self.verify_kept()?;
        Ok(audit)
    }

    /// Checks that frames in caches have their bits set, or are of a held pageblock, whose bits are
    /// 0; and that no frame is in caches twice.
    fn verify_kept(&self) -> Result<(), MapError> {
        let kept = self.kept_words();
        for words in kept.chunk_by(|one, next| block_of_word(one.0) == block_of_word(next.0)) {
            let block = block_of_word(words[0].0);
            let held = self.head(block).held().is_some();
            let mut before = None;
            for &(word, frames) in words {
                // No CPU allocates or frees: no partner.
                let bits = self.word(word).load(Acquire);
                let free = if held { bits } else { !bits };
                let twice = before.filter(|&(at, _)| at == word).map_or(0, |(_, frames)| frames);
                let wrong = frames & (free | twice);
                if wrong != 0 {
                    return Err(MapError::Cached(self.frame(word, wrong.trailing_zeros())));
                }
                before = Some((word, twice | frames));
            }
        }
        Ok(())
    }

    /// The frames in all caches, by word, sorted.
    fn kept_words(&self) -> Vec<(u32, u64)> {
        let kept = self.caches.iter().flat_map(|(_, cache)| cache.peek().words());
        let mut kept: Vec<(u32, u64)> = kept.map(|run| (run.word, run.frames)).collect();
        kept.sort_unstable();
        kept
    }

    fn verify_block(&self, block: usize) -> Result<u64, MapError> {
        let (head, at) = (self.head(block), self.frame((block * WORDS) as u32, 0));
        // No CPU allocates or frees: no partner.
        let bits = self.words[block].0.iter().map(|word| word.load(Acquire).count_ones());
        let (bits, held) = (u64::from(bits.sum::<u32>()), head.held().is_some());
        let used = if held { BLOCK_PAGES } else { bits };
        if used != head.used() || held && bits != 0 {
            return Err(MapError::Count(at));
        }
        if head.is_busy() || head.is_owned() && !self.is_known(block) {
            return Err(MapError::Owner(at));
        }
        if self.whole.contains(block) && !head.is_unowned_free() {
            return Err(MapError::Misfiled(at));
        }
        let filed = head.is_owned()
            || head.is_isolated()
            || match head.fill() {
                Some(fill) => self.partial[head.kind().index()][fill.index()].contains(block),
                None => head.used() > 0 || self.whole.contains(block),
            };
        if !filed {
            return Err(MapError::Unfiled(at));
        }
        // Hints of other blocks are not used: a whole block gets all hints when it is entered.
        let entered = head.held().is_none() && head.used() > 0;
        let lacks = |order: &Order| {
            let noted = self.order_hints.of(*order).is_none_or(|blocks| blocks.contains(block));
            !noted && self.word_with(block, *order).is_some()
        };
        let below = Order::all().take_while(|&order| order < Order::PAGEBLOCK);
        match below.filter(|_| entered).find(lacks) {
            Some(order) => Err(MapError::Unhinted(at, order)),
            None => Ok(head.free()),
        }
    }

    /// Whether the cache of the CPU that owns a block has it as a block or as its spare.
    fn is_known(&self, block: usize) -> bool {
        let head = self.head(block);
        let owner = (0..self.cpus).map(CpuId::new).find(|&cpu| head.owned_by(cpu));
        owner.is_some_and(|cpu| {
            let cache = self.caches.of(cpu).peek();
            cache.block.iter().chain([&cache.spare]).any(|known| known.get() == Some(block))
        })
    }

    /// Iterates over the words of blocks with used frames, in order: the first frame of each word,
    /// and the frames that are allocated.
    pub(crate) fn held_words(&self) -> impl Iterator<Item = (Pfn, u64)> + '_ {
        let mut kept = self.kept_words().into_iter().peekable();
        let used = (0..self.heads.len()).filter(|&block| self.head(block).used() > 0);
        used.flat_map(|block| (0..WORDS).map(move |word| (block, word))).map(
            move |(block, word)| {
                let at = (block * WORDS + word) as u32;
                let all = self.head(block).held().is_some();
                // No CPU allocates or frees: no partner.
                let mut held = if all { !0 } else { self.word(at).load(Acquire) };
                while let Some((word, frames)) = kept.next_if(|&(word, _)| word <= at) {
                    held &= if word == at { !frames } else { !0 };
                }
                let first = self.frame(at, 0);
                let missing = |bit: &u32| !self.extent.has(first.index() + *bit as usize);
                let missing = (0..u64::BITS).filter(missing).fold(0, |bits, bit| bits | 1 << bit);
                (first, held & !missing)
            },
        )
    }

    /// Calls `piece` for every free block, each once and as large as it is within its pageblock;
    /// with `true` for every frame in a CPU's cache.
    pub(crate) fn pieces(&self, mut piece: impl FnMut(Pfn, Order, bool)) {
        for block in (0..self.heads.len()).filter(|&block| self.head(block).free() > 0) {
            if self.head(block).used() == 0 {
                piece(self.frame((block * WORDS) as u32, 0), Order::PAGEBLOCK, false);
                continue;
            }
            // Pairs with `clear` and `clear_used` (put.rs). For checks and statistics.
            let mut free: [u64; WORDS] =
                core::array::from_fn(|word| !self.words[block].0[word].load(Acquire));
            for order in Order::all().rev().skip_while(|&order| order >= Order::PAGEBLOCK) {
                let words = (order.pages() / WORD_PAGES).max(1);
                for at in (0..WORDS).step_by(words) {
                    let first = (block * WORDS + at) as u32;
                    let group = &mut free[at..at + words];
                    if order.get() > bits::WORD_ORDER {
                        if group.iter().all(|&word| word == !0) {
                            group.fill(0);
                            piece(self.frame(first, 0), order, false);
                        }
                        continue;
                    }
                    while let Some(bit) = bits::best(group[0], order) {
                        group[0] &= !bits::run(order, bit);
                        piece(self.frame(first, bit), order, false);
                    }
                }
            }
        }
        for run in self.caches.iter().flat_map(|(_, cache)| cache.peek().words()) {
            let kept = (0..u64::BITS).filter(|&bit| run.frames >> bit & 1 != 0);
            kept.for_each(|bit| piece(self.frame(run.word, bit), Order::ZERO, true));
        }
    }
}

/// The pageblock of a word of the zone.
const fn block_of_word(word: u32) -> usize {
    word as usize / WORDS
}
