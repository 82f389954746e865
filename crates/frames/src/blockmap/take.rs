//! The way to a frame: the CPU's words, then the block it owns, then another block.

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

/// What was taken from the map.
struct Taken {
    /// The first frame of what was wanted.
    first: Pfn,
    /// By word of the pageblock: where more blocks of the same order begin, which are the taker's
    /// too.
    rest: [u64; WORDS],
    /// How many those are.
    more: u32,
    /// What type the pageblock is of.
    kind: MigrateType,
}

impl<A: Cpu> BlockMap<A> {
    /// Takes a block of `order` from what this CPU has to itself: no other CPU sees it happen.
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
        let frame = self.caches.get(pinned.cpu())?.enter()?.stacks.pop(order, kind)?;
        A::work(Op::PcpTake, 1);
        Some(self.pfn(frame))
    }

    /// Takes a block from the map, for the CPU that asks. `change` is what that changes in the
    /// zone's free pages, if the CPU's own account could not be used.
    pub(crate) fn claim(
        &self,
        pinned: &impl NoPreempt<A>,
        req: AllocRequest,
        change: &mut i64,
    ) -> Option<Pfn> {
        let Some(cache) = self.caches.of(pinned.cpu()).enter() else {
            let taken = match req.order < Order::PAGEBLOCK {
                true => self.claim_in_interrupt(req)?,
                false => self.take_whole(None, req)?,
            };
            *change -= req.order.pages() as i64;
            return Some(taken);
        };
        if req.refill == Refill::Batch {
            // Before anything is taken for later: who isolates a block drains those who said so.
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

    /// Takes whole blocks for what is wanted and for what comes later, if there may be any of that:
    /// of large orders only.
    fn claim_several(&self, cache: &CpuCache, req: AllocRequest) -> Option<Pfn> {
        if req.order.get() < LARGE {
            return None;
        }
        let most = cache.stacks.refill_count(req.order, req.kind);
        self.take_more(cache, req, self.search_start(req.cpu), most);
        cache.stacks.pop(req.order, req.kind).map(|frame| self.pfn(frame))
    }

    /// Takes a block below a pageblock from the map.
    fn claim_part(&self, cache: &CpuCache, req: AllocRequest) -> Option<Pfn> {
        let plenty = self.is_plenty(req);
        let several = || self.claim_several(cache, req);
        let own = self.try_current(cache, req);
        // Where there is plenty it is not worth while to look for others.
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

    /// The same from a block that was entered for it, with what is for later.
    fn claim_from(&self, cache: &CpuCache, req: AllocRequest, from: (usize, usize)) -> Pfn {
        let (order, kind) = (req.order, req.kind);
        let most = cache.stacks.refill_count(order, kind).min(req.spare_pages >> order.get());
        let taken = self.take_from(from, req, most);
        if taken.kind != kind {
            // It stays another type's, and those who look for that would not find it.
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

    /// Takes what is wanted from a block that was entered for it, and what else its word has or
    /// `more` blocks if that is for later; leaves the block.
    fn take_from(&self, (block, word): (usize, usize), req: AllocRequest, more: u32) -> Taken {
        A::work(Op::BuddyTake, 1);
        let (order, head) = (req.order, self.head(block));
        // Frames of another type's block are taken one by one: it stays what it is.
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
                first = best.expect("nobody else takes frames of a block that was entered");
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

    /// Sets all bits of a block that is this CPU's, and that nobody else looks into.
    #[inline]
    pub(super) fn mark_all_used(&self, block: usize) {
        self.words[block].0.iter().for_each(|bits| bits.store(!0, Release));
    }

    /// Sets the bits of free frames in each of these words of a block that was entered.
    #[inline]
    pub(super) fn mark_used(&self, block: usize, words: core::ops::Range<usize>, frames: u64) {
        let words = &self.words[block].0[words];
        if frames == !0 {
            // Only the CPU that has entered the block sets bits, and nobody can be giving one back.
            words.iter().for_each(|bits| bits.store(!0, Release));
        } else if frames != 0 {
            words.iter().for_each(|bits| _ = bits.fetch_or(frames, AcqRel));
        }
    }

    /// Where blocks of `order` begin that can be taken from word `at` of a block, or from it and
    /// those after it.
    #[inline]
    fn starts(&self, block: usize, at: usize, order: Order) -> u64 {
        let words = &self.words[block].0;
        if order.get() <= WORD_ORDER {
            return bits::starts(!words[at].load(Acquire), order);
        }
        let step = order.pages() >> WORD_ORDER;
        u64::from(words[at..at + step].iter().all(|word| word.load(Acquire) == 0))
    }

    /// Enters the CPU's block for what is wanted: the block, and the word in it where that can be
    /// taken. It is the CPU's no longer if there is none.
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

    /// Enters a block of the CPU's own stretch that becomes its block for what is wanted.
    ///
    /// Where there is plenty that is a whole one rather than one of another stretch, whose frames
    /// would be two CPUs' then for as long as they live: that CPU may be about to make it whole.
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

    /// Enters a block in use already that becomes the CPU's for what is wanted, wherever it is.
    ///
    /// Where memory is short a CPU keeps its block too, so that what is taken together lies
    /// together; but before a whole one is broken up those of all CPUs and types come first.
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

    /// Notes that a block is the CPU's for what is wanted.
    #[inline]
    fn own(&self, cache: &CpuCache, req: AllocRequest, from: (usize, usize)) -> (usize, usize) {
        cache.block[req.list().index()].set(from.0);
        from
    }

    /// Enters a block in use already, be it another CPU's or of another type, but none of the
    /// wanted type that is nobody's.
    pub(super) fn try_steal(&self, req: AllocRequest) -> Option<(usize, usize)> {
        let partial = |kind| self.find_partial(req, kind, Where::All);
        let other = |kind| partial(kind).or_else(|| self.steal_of_type(req, kind));
        let fallbacks = || req.kind.fallbacks().into_iter().find_map(other);
        self.steal_of_type(req, req.kind).or_else(fallbacks)
    }

    /// Takes a block for an interrupt in the middle of an allocation or a free: nothing of its
    /// CPU's is for it.
    fn claim_in_interrupt(&self, req: AllocRequest) -> Option<Pfn> {
        let req = AllocRequest { refill: Refill::Exact, reserve: ReserveAccess::Full, ..req };
        let found = self.find_partial(req, req.kind, Where::All);
        let found = found.or_else(|| self.try_steal(req));
        let from = found.or_else(|| self.find(req))?;
        let taken = self.take_from(from, req, 0);
        self.disown(from.0, req.cpu);
        Some(taken.first)
    }

    /// Enters a block of `kind`, in use already, that another CPU owns.
    fn steal_of_type(&self, req: AllocRequest, kind: MigrateType) -> Option<(usize, usize)> {
        let (me, cpus) = (req.cpu.index(), A::cpus_possible());
        (1..cpus).map(|step| CpuId::new((me + step) % cpus)).find_map(|cpu| {
            let cells = &self.caches.of(cpu).peek().block;
            let blocks = List::of_type(kind).filter_map(|list| cells[list.index()].get());
            blocks.filter(|&block| self.head(block).used() > 0).find_map(|block| {
                A::work(Op::BuddyStep, 1);
                Some((block, self.take_over(block, req, kind)?))
            })
        })
    }

    /// Enters a block that the CPU owns for other orders: better than to break up a whole one.
    fn try_other_lists(&self, cache: &CpuCache, req: AllocRequest) -> Option<(usize, usize)> {
        List::of_type(req.kind).find_map(|list| {
            let block = cache.block[list.index()].get()?;
            Some((block, self.enter_owned(block, req)?))
        })
    }

    /// Enters the block that the CPU took from last time, if it still owns it and it has what is
    /// wanted.
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

    /// Enters the whole block that the CPU kept.
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

    /// In a block that was entered: the word where `order` can be taken; leaves the block if there
    /// is none.
    pub(super) fn word_or_leave(&self, block: usize, order: Order) -> Option<usize> {
        let word = self.word_with(block, order);
        if word.is_none() {
            self.leave(block, 0);
        }
        word
    }

    /// A word of a block where `order`, at most 8, can be taken: the first one with a block of just
    /// that order, or the first.
    pub(super) fn word_with(&self, block: usize, order: Order) -> Option<usize> {
        let words = &self.words[block].0;
        if order.get() <= WORD_ORDER {
            let mut any = None;
            for (at, word) in words.iter().enumerate() {
                match bits::fit(!word.load(Acquire), order) {
                    Fit::Exact => return Some(at),
                    Fit::Larger => any = any.or(Some(at)),
                    Fit::None => {}
                }
            }
            return any;
        }
        let step = order.pages() >> WORD_ORDER;
        let free = |at: &usize| words[*at..*at + step].iter().all(|word| word.load(Acquire) == 0);
        (0..WORDS).step_by(step).find(free)
    }
}
