//! The way to a frame: the CPU's words, then the block it owns, then another block.

use super::bits::{self, Fit, WORD_ORDER};
use super::cpu::{CpuCache, List};
use super::head::{BUSY, Head};
use super::places::LARGE;
use super::rooms::LARGEST_ROOM;
use super::{Appetite, BlockMap, Reserve, WORDS, Want, Where};
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
        want: Want,
        change: &mut i64,
    ) -> Option<Pfn> {
        let Some(cache) = self.caches.of(pinned.cpu()).enter() else {
            let taken = match want.order < Order::PAGEBLOCK {
                true => self.claim_in_interrupt(want)?,
                false => self.take_whole(None, want)?,
            };
            *change -= want.order.pages() as i64;
            return Some(taken);
        };
        if want.appetite == Appetite::Ample {
            // Before anything is taken for later: who isolates a block drains those who said so.
            self.say_filled(want.cpu);
        }
        if want.order < Order::PAGEBLOCK {
            return self.claim_part(&cache, want);
        }
        let several = || self.claim_several(&cache, want);
        let one = || {
            let taken = self.take_whole(Some(&cache), want)?;
            cache.account(-(want.order.pages() as i64));
            Some(taken)
        };
        if want.order == Order::PAGEBLOCK { several().or_else(one) } else { one() }
    }

    /// Takes whole blocks for what is wanted and for what comes later, if there may be any of that:
    /// of large orders only.
    fn claim_several(&self, cache: &CpuCache, want: Want) -> Option<Pfn> {
        if want.order.get() < LARGE {
            return None;
        }
        let most = cache.stacks.refill(want.order, want.kind);
        self.take_more(cache, want, self.home(want.cpu), most);
        cache.stacks.pop(want.order, want.kind).map(|frame| self.pfn(frame))
    }

    /// Takes a block below a pageblock from the map.
    fn claim_part(&self, cache: &CpuCache, want: Want) -> Option<Pfn> {
        let plenty = self.is_plenty(want);
        let several = || self.claim_several(cache, want);
        let own = self.enter_kept(cache, want);
        // Where there is plenty it is not worth while to look for others.
        if plenty
            && own.is_none()
            && let Some(taken) = several()
        {
            return Some(taken);
        }
        let near = own.or_else(|| self.enter_near(cache, want, plenty));
        let begun = near.or_else(|| self.enter_begun(cache, want));
        if !plenty
            && begun.is_none()
            && let Some(taken) = several()
        {
            return Some(taken);
        }
        let from = match begun {
            Some(from) => from,
            None => self.own(cache, want, self.find(want)?),
        };
        Some(self.claim_from(cache, want, from))
    }

    /// The same from a block that was entered for it, with what is for later.
    fn claim_from(&self, cache: &CpuCache, want: Want, from: (usize, usize)) -> Pfn {
        let (order, kind) = (want.order, want.kind);
        let most = cache.stacks.refill(order, kind).min(want.spare_pages >> order.get());
        let taken = self.take_from(from, want, most);
        if taken.kind != kind {
            // It stays another type's, and those who look for that would not find it.
            cache.block[want.list().index()].take();
            self.disown(from.0, want.cpu);
        }
        cache.account(-((order.pages() * (1 + taken.more as usize)) as i64));
        if taken.more > 0 {
            A::work(Op::PcpPut, 1);
            let word = (from.0 * WORDS) as u32;
            while !cache.stacks.fill((word, &taken.rest), taken.more, order, kind) {
                self.shed(cache, want.cpu, order, kind);
            }
        }
        taken.first
    }

    /// Takes what is wanted from a block that was entered for it, and what else its word has or
    /// `more` blocks if that is for later; leaves the block.
    fn take_from(&self, (block, word): (usize, usize), want: Want, more: u32) -> Taken {
        A::work(Op::BuddyTake, 1);
        let (order, head) = (want.order, self.head(block));
        // Frames of another type's block are taken one by one: it stays what it is.
        let ample = want.appetite == Appetite::Ample && head.kind() == want.kind;
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
    fn enter_kept(&self, cache: &CpuCache, want: Want) -> Option<(usize, usize)> {
        let own = &cache.block[want.list().index()];
        let block = own.get()?;
        if let Some(word) = self.enter_own(block, want) {
            return Some((block, word));
        }
        own.take();
        self.disown(block, want.cpu);
        None
    }

    /// Enters a block of the CPU's own stretch that becomes its block for what is wanted.
    ///
    /// Where there is plenty that is a whole one rather than one of another stretch, whose frames
    /// would be two CPUs' then for as long as they live: that CPU may be about to make it whole.
    fn enter_near(&self, cache: &CpuCache, want: Want, plenty: bool) -> Option<(usize, usize)> {
        if want.appetite == Appetite::Scarce {
            return None;
        }
        let found = self.find_partial(want, want.kind, Where::Own);
        let single = plenty && want.order.get() < LARGE;
        let found = found.or_else(|| if single { self.find_whole(want, Where::Own) } else { None });
        Some(self.own(cache, want, found?))
    }

    /// Enters a block in use already that becomes the CPU's for what is wanted, wherever it is.
    ///
    /// Where memory is short a CPU keeps its block too, so that what is taken together lies
    /// together; but before a whole one is broken up those of all CPUs and types come first.
    fn enter_begun(&self, cache: &CpuCache, want: Want) -> Option<(usize, usize)> {
        let found = self.find_partial(want, want.kind, Where::All);
        if found.is_none()
            && let Some(found) = self.enter_others_own(cache, want)
        {
            return Some(found);
        }
        let found = found.or_else(|| match want.appetite {
            Appetite::Ample => None,
            Appetite::Scarce => self.enter_used(want),
        });
        let found = found.or_else(|| {
            let spare = cache.spare.take()?;
            Some((spare, self.enter_spare(spare, want)?))
        });
        Some(self.own(cache, want, found?))
    }

    /// Notes that a block is the CPU's for what is wanted.
    #[inline]
    fn own(&self, cache: &CpuCache, want: Want, from: (usize, usize)) -> (usize, usize) {
        cache.block[want.list().index()].set(from.0);
        from
    }

    /// Enters a block in use already, be it another CPU's or of another type, but none of the
    /// wanted type that is nobody's.
    pub(super) fn enter_used(&self, want: Want) -> Option<(usize, usize)> {
        let partial = |kind| self.find_partial(want, kind, Where::All);
        let other = |kind| partial(kind).or_else(|| self.enter_others(want, kind));
        let fallbacks = || want.kind.fallbacks().into_iter().find_map(other);
        self.enter_others(want, want.kind).or_else(fallbacks)
    }

    /// Takes a block for an interrupt in the middle of an allocation or a free: nothing of its
    /// CPU's is for it.
    fn claim_in_interrupt(&self, want: Want) -> Option<Pfn> {
        let want = Want { appetite: Appetite::Scarce, reserve: Reserve::Open, ..want };
        let found = self.find_partial(want, want.kind, Where::All);
        let found = found.or_else(|| self.enter_used(want));
        let from = found.or_else(|| self.find(want))?;
        let taken = self.take_from(from, want, 0);
        self.disown(from.0, want.cpu);
        Some(taken.first)
    }

    /// Enters a block of `kind`, in use already, that another CPU owns.
    fn enter_others(&self, want: Want, kind: MigrateType) -> Option<(usize, usize)> {
        let (me, cpus) = (want.cpu.index(), A::cpus_possible());
        (1..cpus).map(|step| CpuId::new((me + step) % cpus)).find_map(|cpu| {
            let cells = &self.caches.of(cpu).peek().block;
            let blocks = List::of_type(kind).filter_map(|list| cells[list.index()].get());
            blocks.filter(|&block| self.head(block).used() > 0).find_map(|block| {
                A::work(Op::BuddyStep, 1);
                Some((block, self.take_over(block, want, kind)?))
            })
        })
    }

    /// Enters a block that the CPU owns for other orders: better than to break up a whole one.
    fn enter_others_own(&self, cache: &CpuCache, want: Want) -> Option<(usize, usize)> {
        List::of_type(want.kind).find_map(|list| {
            let block = cache.block[list.index()].get()?;
            Some((block, self.enter_own(block, want)?))
        })
    }

    /// Enters the block that the CPU took from last time, if it still owns it and it has what is
    /// wanted.
    fn enter_own(&self, block: usize, want: Want) -> Option<usize> {
        loop {
            let head = self.head(block);
            let mine = head.owned_by(want.cpu) && !head.is_busy() && head.kind() == want.kind;
            if !mine || head.free() < want.order.pages() as u64 {
                return None;
            }
            if self.change(block, head, Head(head.0 | BUSY)) {
                return self.word_or_leave(block, want.order);
            }
        }
    }

    /// Enters the whole block that the CPU kept.
    fn enter_spare(&self, block: usize, want: Want) -> Option<usize> {
        let head = self.head(block);
        let mine = head.owned_by(want.cpu) && !head.is_busy() && head.used() == 0;
        let entered = head.entered_by(want.cpu).with_kind(want.kind);
        if !mine || !self.change(block, head, entered) {
            return None;
        }
        self.rooms.note(block, LARGEST_ROOM);
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
