//! Allocations from the map.
//!
//! An allocation of an order below a pageblock's tries, in this order:
//!
//! 1. [`BlockMap::take_cached`]: the CPU's stack of that order and type; no other CPU sees it.
//! 2. `try_current`: the block that the CPU owns for this order and type.
//! 3. `claim_several`, where most of the zone is free: whole blocks for the stack; order 3 and up.
//! 4. `try_local`: a partial block of the type in the CPU's own stretch of the zone; where most of
//!    the zone is free also a whole one there, for orders 0 to 2. Not where memory is short.
//! 5. `try_indexed`: a partial block of the type anywhere; the CPU's blocks for other orders; where
//!    memory is short `try_steal`; the CPU's spare block.
//! 6. `claim_several`, where step 3 was not tried.
//! 7. [`BlockMap::find`]: a whole block, unless it is in the reserve; partial blocks of other
//!    types, emptiest first; `try_steal`, unless step 5 has tried it; all heads (`sweep`).
//!
//! Steps 2 to 7 *enter* a block: a compare-exchange sets the owner and `busy`. While `busy` is set
//! no other CPU takes frames of the block, so bits that this CPU finds clear stay clear. It takes
//! several words together, and [`BlockMap::leave`] then counts the frames and clears `busy` in one
//! addition. See [`head`](super::head) for the states, [`drain`](super::drain) for the ordering.

use super::bits::{self, Fit, WORD_ORDER};
use super::cpu::{CpuCache, List};
use super::head::{BUSY, Head};
use super::order_hints::LARGEST_HINT;
use super::stack_layout::LARGE;
use super::{AllocRequest, BlockMap, Refill, ReserveAccess, WORDS, Where};
use crate::frame::MigrateType;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use mmscale_arch::sync::NoPreempt;
use mmscale_arch::{Atomic, Cpu, CpuId, Op, Order, Pfn};

/// Blocks taken from a pageblock.
struct Taken {
    /// The first frame of the requested block.
    first: Pfn,
    /// By word of the pageblock: the starts of further blocks of the same order that were taken.
    rest: [u64; WORDS],
    /// The number of further blocks.
    more: u32,
    /// The type of the pageblock.
    kind: MigrateType,
}

impl<A: Cpu> BlockMap<A> {
    /// Takes a block of `order` from this CPU's stacks, without any operation that other CPUs can
    /// observe. Returns `None` if the stack is empty, or in an interrupt that came while the CPU
    /// uses its cache.
    #[inline(always)]
    pub(crate) fn take_cached(
        &self,
        pinned: &impl NoPreempt<A>,
        order: Order,
        kind: MigrateType,
    ) -> Option<Pfn> {
        if order > Order::PAGEBLOCK {
            return None;
        }
        let frame = self.caches.get(pinned.cpu())?.enter::<A>()?.stacks.pop(order, kind)?;
        A::work(Op::PcpTake, 1);
        Some(self.pfn(frame))
    }

    /// Takes a block from the map. The change of the zone's free pages goes into the CPU's delta,
    /// or is added to `change` in an interrupt that came while the CPU uses its cache.
    pub(crate) fn claim(
        &self,
        pinned: &impl NoPreempt<A>,
        req: AllocRequest,
        change: &mut i64,
    ) -> Option<Pfn> {
        let Some(cache) = self.caches.of(pinned.cpu()).enter::<A>() else {
            let taken = match req.order < Order::PAGEBLOCK {
                true => self.claim_in_interrupt(req)?,
                false => self.take_whole(None, req)?,
            };
            *change -= req.order.pages() as i64;
            return Some(taken);
        };
        if req.refill == Refill::Batch {
            // Before frames go into the cache: an isolator drains CPUs whose flag is set.
            self.mark_nonempty(req.cpu);
        }
        if req.order < Order::PAGEBLOCK {
            return self.claim_part(&cache, req);
        }
        let several = || self.claim_several(&cache, req);
        let one = || {
            let taken = self.take_whole(Some(&cache), req)?;
            cache.account(-(req.order.pages() as i64));
            Some(taken)
        };
        if req.order == Order::PAGEBLOCK { several().or_else(one) } else { one() }
    }

    /// Takes whole blocks onto the stack of the requested order and type, and one block from there.
    /// For large orders only.
    fn claim_several(&self, cache: &CpuCache, req: AllocRequest) -> Option<Pfn> {
        if req.order.get() < LARGE {
            return None;
        }
        let most = cache.stacks.refill_count(req.order, req.kind);
        self.take_more(cache, req, self.search_start(req.cpu), most);
        cache.stacks.pop(req.order, req.kind).map(|frame| self.pfn(frame))
    }

    /// Takes a block below a pageblock's order from the map: steps 2 to 7.
    fn claim_part(&self, cache: &CpuCache, req: AllocRequest) -> Option<Pfn> {
        let plenty = self.is_plenty(req);
        let several = || self.claim_several(cache, req);
        let own = self.try_current(cache, req);
        // With plenty of free memory whole blocks are cheaper than a search.
        if plenty
            && own.is_none()
            && let Some(taken) = several()
        {
            return Some(taken);
        }
        let near = own.or_else(|| self.try_local(cache, req, plenty));
        let begun = near.or_else(|| self.try_indexed(cache, req));
        if !plenty
            && begun.is_none()
            && let Some(taken) = several()
        {
            return Some(taken);
        }
        let from = match begun {
            Some(from) => from,
            None => self.own(cache, req, self.find(req)?),
        };
        Some(self.claim_from(cache, req, from))
    }

    /// Takes the requested block, and further ones for the stack, from a block that was entered.
    fn claim_from(&self, cache: &CpuCache, req: AllocRequest, from: (usize, usize)) -> Pfn {
        let (order, kind) = (req.order, req.kind);
        let most = cache.stacks.refill_count(order, kind).min(req.spare_pages >> order.get());
        let taken = self.take_from(from, req, most);
        if taken.kind != kind {
            // The pageblock remains one of another type: file it for allocations of that type.
            cache.block[req.list().index()].take();
            self.disown(from.0, req.cpu);
        }
        cache.account(-((order.pages() * (1 + taken.more as usize)) as i64));
        if taken.more > 0 {
            A::work(Op::PcpPut, 1);
            let word = (from.0 * WORDS) as u32;
            while !cache.stacks.fill((word, &taken.rest), taken.more, order, kind) {
                self.evict(cache, req.cpu, order, kind);
            }
        }
        taken.first
    }

    /// Takes the requested block from word `word` of a block that was entered, and further blocks:
    /// those of the same word, and of later words up to `more`. Then leaves the block. Takes only
    /// one where memory is short, or from a pageblock of another type.
    fn take_from(&self, (block, word): (usize, usize), req: AllocRequest, more: u32) -> Taken {
        A::work(Op::BuddyTake, 1);
        let (order, head) = (req.order, self.head(block));
        // Blocks of a pageblock of another type are taken one at a time: the type does not change.
        let ample = req.refill == Refill::Batch && head.kind() == req.kind;
        let enough = if ample { 1 + more } else { 1 };
        let (step, part) = ((order.pages() >> WORD_ORDER).max(1), order.min(bits::WHOLE));
        let (mut rest, mut blocks, mut first) = ([0; WORDS], 0, 0);
        for at in (word..WORDS).step_by(step) {
            let mut starts = self.starts(block, at, order);
            if blocks > 0 && blocks + starts.count_ones() > enough {
                break;
            }
            rest[at] = starts;
            if at == word {
                let best = bits::best_of(starts, part);
                first = best.expect("only the CPU in a block takes frames of it");
                starts = if ample { starts } else { 1 << first };
                rest[at] = starts & !(1 << first);
            }
            blocks += starts.count_ones();
            self.mark_used(block, at..at + step, bits::runs(starts, part));
            if blocks >= enough {
                break;
            }
        }
        let pages = u64::from(blocks) << order.get();
        self.leave(block, pages);
        let first = self.frame((block * WORDS + word) as u32, first);
        Taken { first, rest, more: blocks - 1, kind: head.kind() }
    }

    /// Sets all bits of a block of which this CPU has all frames, and whose head says full.
    #[inline]
    pub(super) fn mark_all_used(&self, block: usize) {
        // Pairs with the `Acquire` loads of the bits, as in `clear_used` (put.rs). The head was
        // written first.
        self.words[block].0.iter().for_each(|bits| bits.store(!0, Release));
    }

    /// Sets the bits of free frames in each of these words of a block that was entered.
    #[inline]
    pub(super) fn mark_used(&self, block: usize, words: core::ops::Range<usize>, frames: u64) {
        let words = &self.words[block].0[words];
        if frames == !0 {
            // Only the CPU that has entered the block sets bits. None of the bits is set, so no
            // frame of the word is in use, and no CPU can clear a bit.
            words.iter().for_each(|bits| bits.store(!0, Release));
        } else if frames != 0 {
            // Against `clear` (put.rs) of other CPUs, which free other frames of the word.
            words.iter().for_each(|bits| _ = bits.fetch_or(frames, AcqRel));
        }
    }

    /// The starts of free blocks of `order` in word `at` of a block; above a word's order bit 0, if
    /// the words from `at` are free.
    #[inline]
    fn starts(&self, block: usize, at: usize, order: Order) -> u64 {
        let words = &self.words[block].0;
        if order.get() <= WORD_ORDER {
            // Row 6 of `drain`: pairs with `clear` and `clear_used` (put.rs). The last user of the
            // frames is done with them.
            return bits::starts(!words[at].load(Acquire), order);
        }
        let step = order.pages() >> WORD_ORDER;
        u64::from(words[at..at + step].iter().all(|word| word.load(Acquire) == 0))
    }

    /// Step 2: enters the block that the CPU owns for this order and type. Returns it, and the word
    /// that has the requested block. If there is none, disowns the block and returns `None`.
    fn try_current(&self, cache: &CpuCache, req: AllocRequest) -> Option<(usize, usize)> {
        let own = &cache.block[req.list().index()];
        let block = own.get()?;
        if let Some(word) = self.enter_owned(block, req) {
            return Some((block, word));
        }
        own.take();
        self.disown(block, req.cpu);
        None
    }

    /// Step 4: enters a block of the CPU's own stretch, which becomes its block for this order and
    /// type.
    ///
    /// With plenty of free memory it prefers a whole block of this stretch to a partial one of
    /// another. Two CPUs would share the other block for as long as its frames are in use, and the
    /// other CPU may be about to make it whole.
    fn try_local(
        &self,
        cache: &CpuCache,
        req: AllocRequest,
        plenty: bool,
    ) -> Option<(usize, usize)> {
        if req.refill == Refill::Exact {
            return None;
        }
        let found = self.find_partial(req, req.kind, Where::Own);
        let single = plenty && req.order.get() < LARGE;
        let found = found.or_else(|| if single { self.find_whole(req, Where::Own) } else { None });
        Some(self.own(cache, req, found?))
    }

    /// Step 5: enters a partial block anywhere, which becomes the CPU's block for this order and
    /// type.
    ///
    /// Where memory is short the CPU owns a block too, so that frames that are allocated together
    /// are adjacent. But the blocks of all CPUs and types come before a whole one is broken up.
    fn try_indexed(&self, cache: &CpuCache, req: AllocRequest) -> Option<(usize, usize)> {
        let found = self.find_partial(req, req.kind, Where::All);
        if found.is_none()
            && let Some(found) = self.try_other_lists(cache, req)
        {
            return Some(found);
        }
        let found = found.or_else(|| match req.refill {
            Refill::Batch => None,
            Refill::Exact => self.try_steal(req),
        });
        let found = found.or_else(|| {
            let spare = cache.spare.take()?;
            Some((spare, self.enter_spare(spare, req)?))
        });
        Some(self.own(cache, req, found?))
    }

    /// Records a block as the CPU's block for this order and type.
    #[inline]
    fn own(&self, cache: &CpuCache, req: AllocRequest, from: (usize, usize)) -> (usize, usize) {
        cache.block[req.list().index()].set(from.0);
        from
    }

    /// Takes over a block with used frames: one of the requested type that another CPU owns, then
    /// blocks of the fallback types, without owner or of other CPUs. Partial blocks of the
    /// requested type without owner were searched before.
    pub(super) fn try_steal(&self, req: AllocRequest) -> Option<(usize, usize)> {
        let partial = |kind| self.find_partial(req, kind, Where::All);
        let other = |kind| partial(kind).or_else(|| self.steal_of_type(req, kind));
        let fallbacks = || req.kind.fallbacks().into_iter().find_map(other);
        self.steal_of_type(req, req.kind).or_else(fallbacks)
    }

    /// Takes a block in an interrupt that came while the CPU uses its cache, which it must not use.
    fn claim_in_interrupt(&self, req: AllocRequest) -> Option<Pfn> {
        let req = AllocRequest { refill: Refill::Exact, reserve: ReserveAccess::Full, ..req };
        let found = self.find_partial(req, req.kind, Where::All);
        let found = found.or_else(|| self.try_steal(req));
        let from = found.or_else(|| self.find(req))?;
        let taken = self.take_from(from, req, 0);
        self.disown(from.0, req.cpu);
        Some(taken.first)
    }

    /// Enters a block of `kind` with used frames that another CPU owns.
    fn steal_of_type(&self, req: AllocRequest, kind: MigrateType) -> Option<(usize, usize)> {
        let (me, cpus) = (req.cpu.index(), self.cpus);
        (1..cpus).map(|step| CpuId::new((me + step) % cpus)).find_map(|cpu| {
            let cells = &self.caches.of(cpu).peek().block;
            let blocks = List::of_type(kind).filter_map(|list| cells[list.index()].get());
            blocks.filter(|&block| self.head(block).used() > 0).find_map(|block| {
                A::work(Op::BuddyStep, 1);
                Some((block, self.take_over(block, req, kind)?))
            })
        })
    }

    /// Enters a block that the CPU owns for other orders, before a whole one is broken up.
    fn try_other_lists(&self, cache: &CpuCache, req: AllocRequest) -> Option<(usize, usize)> {
        List::of_type(req.kind).find_map(|list| {
            let block = cache.block[list.index()].get()?;
            Some((block, self.enter_owned(block, req)?))
        })
    }

    /// Enters a block that the CPU owned when it last used it, if it still owns the block and the
    /// block has the requested type and order.
    fn enter_owned(&self, block: usize, req: AllocRequest) -> Option<usize> {
        loop {
            let head = self.head(block);
            let mine = head.owned_by(req.cpu) && !head.is_busy() && head.kind() == req.kind;
            if !mine || head.free() < req.order.pages() as u64 {
                return None;
            }
            if self.change(block, head, Head(head.0 | BUSY)) {
                return self.word_or_leave(block, req.order);
            }
        }
    }

    /// Enters the CPU's spare block, if it still owns it and all of it is free.
    fn enter_spare(&self, block: usize, req: AllocRequest) -> Option<usize> {
        let head = self.head(block);
        let mine = head.owned_by(req.cpu) && !head.is_busy() && head.used() == 0;
        let entered = head.entered_by(req.cpu).with_kind(req.kind);
        if !mine || !self.change(block, head, entered) {
            return None;
        }
        self.order_hints.note(block, LARGEST_HINT);
        Some(0)
    }

    /// Finds a word with a free block of `order` in a block that was entered; leaves the block if
    /// there is none.
    pub(super) fn word_or_leave(&self, block: usize, order: Order) -> Option<usize> {
        let word = self.word_with(block, order);
        if word.is_none() {
            self.leave(block, 0);
        }
        word
    }

    /// Finds a word of a block with a free block of `order`, at most 8: the first word with one of
    /// exactly that order, or else the first with a larger one.
    pub(super) fn word_with(&self, block: usize, order: Order) -> Option<usize> {
        let words = &self.words[block].0;
        if order.get() <= WORD_ORDER {
            let mut any = None;
            for (at, word) in words.iter().enumerate() {
                // Rows 6 and 7 of `drain`: pairs with `clear` and `clear_used` (put.rs), as in
                // `starts`.
                match bits::fit(!word.load(Acquire), order) {
                    Fit::Exact => return Some(at),
                    Fit::Larger => any = any.or(Some(at)),
                    Fit::None => {}
                }
            }
            return any;
        }
        let step = order.pages() >> WORD_ORDER;
        // Rows 6 and 7, as above.
        let free = |at: &usize| words[*at..*at + step].iter().all(|word| word.load(Acquire) == 0);
        (0..WORDS).step_by(step).find(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blockmap::ReservePages;
    use mmscale_arch::sync::PreemptGuard;
    use mmscale_stepped::{self as stepped, Stepped};

    type Map = BlockMap<Stepped>;

    fn request(cpu: usize, order: Order, refill: Refill) -> AllocRequest {
        let (cpu, kind) = (CpuId::new(cpu), MigrateType::Movable);
        let (reserve, spare_pages) = (ReserveAccess::None, 0);
        AllocRequest { cpu, order, kind, refill, reserve, spare_pages }
    }

    /// Takes a page, not from what the CPU has to itself: the pageblock that it is from.
    fn take(map: &Map, cpu: usize, refill: Refill) -> usize {
        stepped::set_cpu(cpu);
        let want = request(cpu, Order::ZERO, refill);
        map.block_of(map.claim(&PreemptGuard::new(), want, &mut 0).expect("there is memory"))
    }

    /// Ends the ownership of the CPU's block for single pages.
    fn leave(map: &Map, cpu: usize) {
        stepped::set_cpu(cpu);
        let cpu = CpuId::new(cpu);
        let cache = map.caches.of(cpu).enter::<Stepped>().expect("it is not in use");
        let list = List::of(Order::ZERO, MigrateType::Movable);
        map.disown(cache.block[list.index()].take().expect("it has one"), cpu);
    }

    #[test]
    fn a_cpu_looks_in_its_own_stretch_first_unless_memory_is_short() {
        stepped::boot(2, 1000);
        let map =
            Map::alone(Pfn::new(0), 1 << 16, ReservePages { from_singles: 0, from_larger: 0 });
        let (near, far) = (take(&map, 1, Refill::Batch), take(&map, 0, Refill::Batch));
        assert_eq!((far / 64, near / 64), (0, 1), "128 pageblocks, 64 for each of two CPUs");
        // Each takes what a word has, for later too; the other CPU's block is the fuller one.
        (0..6).for_each(|_| assert_eq!(take(&map, 0, Refill::Batch), far));
        leave(&map, 0);
        leave(&map, 1);
        assert_eq!(take(&map, 1, Refill::Batch), near);
        leave(&map, 1);
        assert_eq!(take(&map, 1, Refill::Exact), far);
        map.verify().expect("the map is sound");
    }

    #[test]
    fn what_is_taken_in_an_interrupt_that_meets_the_cpu_in_its_cache_is_counted_by_the_caller() {
        stepped::boot(1, 1000);
        let map =
            Map::alone(Pfn::new(0), 1 << 12, ReservePages { from_singles: 0, from_larger: 0 });
        let cache = map.caches.of(CpuId::new(0)).enter::<Stepped>().expect("it is not in use");
        let mut change = 3;
        stepped::interrupt(|| {
            for (order, left) in [(Order::ZERO, 2), (Order::PAGEBLOCK, 2 - 512)] {
                let want = request(0, order, Refill::Batch);
                map.claim(&PreemptGuard::new(), want, &mut change).expect("there is memory");
                assert_eq!(change, left);
            }
        });
        drop(cache);
        map.verify().expect("the map is sound");
    }
}
