//! The way to a frame: the CPU's words, then the block it owns, then another block.

use super::bits::{self, Fit, WORD_ORDER};
use super::cpu::{CpuCache, Joined, List, Run};
use super::head::{BUSY, Head};
use super::{Appetite, BlockMap, WORDS, Want, freed_twice};
use crate::arch::{Arch, Atomic, CpuId, Op, Order, Pfn};
use crate::frame::MigrateType;
use crate::sync::NoPreempt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

impl<A: Arch> BlockMap<A> {
    /// Takes a block of `order` from what this CPU has to itself: no other CPU sees it happen.
    #[inline(always)]
    pub(crate) fn take_cached(
        &self,
        pinned: &impl NoPreempt<A>,
        order: Order,
        kind: MigrateType,
    ) -> Option<Pfn> {
        if order.get() > WORD_ORDER {
            return None;
        }
        let taken = self.caches.of(pinned.cpu()).enter()?.take(order, kind);
        let (word, bit) = taken?;
        A::work(Op::PcpTake, 1);
        Some(self.frame(word, bit))
    }

    /// Takes a block of `order` from the map. `change` is what that changes in the zone's free
    /// pages, if the CPU's own account could not be used.
    pub(crate) fn claim(
        &self,
        pinned: &impl NoPreempt<A>,
        (order, kind): (Order, MigrateType),
        appetite: Appetite,
        change: &mut i64,
    ) -> Option<Pfn> {
        let cpu = pinned.cpu();
        let want = Want { cpu, order, kind };
        if let Some(cache) = self.caches.of(cpu).enter() {
            return self.claim_with(&cache, want, appetite);
        }
        // An interrupt in the middle of the above: a cache of its own, for this time.
        let cache = CpuCache::new(1);
        let found = self.claim_with(&cache, want, Appetite::Scarce);
        self.empty(&cache, cpu);
        *change += cache.settle();
        found
    }

    fn claim_with(&self, cache: &CpuCache, want: Want, appetite: Appetite) -> Option<Pfn> {
        match want.order.get() {
            0..=WORD_ORDER => self.refill(cache, want, appetite),
            7..9 => self.take_words(cache, want, appetite),
            _ => self.take_whole(cache, want),
        }
    }

    /// Takes a word, or of it what is wanted.
    fn refill(&self, cache: &CpuCache, want: Want, appetite: Appetite) -> Option<Pfn> {
        let (block, word) = self.enter_some(cache, want, appetite)?;
        A::work(Op::BuddyTake, 1);
        let bits = &self.words[block].0[word];
        let at = (block * WORDS + word) as u32;
        let used = bits.load(Acquire);
        // Frames of another type's block are taken one by one: it stays what it is.
        let own = self.head(block).kind() == want.kind;
        let run = bits::best(!used, want.order).map(|bit| (bit, bits::run(want.order, bit)));
        let Some((bit, run)) = run else {
            debug_assert!(false, "nobody else takes frames of a block that was entered");
            self.leave_as(block, 0, appetite);
            return None;
        };
        let all = appetite == Appetite::Ample && own;
        let before = match (all, used) {
            // All are free, so nobody can be giving one back.
            (true, 0) => {
                bits.store(!0, Release);
                0
            }
            (true, _) => bits.swap(!0, AcqRel),
            (false, _) => bits.fetch_or(run, AcqRel),
        };
        let taken = if all { !before } else { run };
        self.leave_as(block, taken.count_ones().into(), appetite);
        cache.account(-i64::from(taken.count_ones()));
        let rest = Run { word: at, frames: taken & !run };
        if rest.frames != 0 {
            self.keep(cache, want.cpu, rest, want.list());
        }
        Some(self.frame(at, bit))
    }

    /// Puts frames into the CPU's cache; what has to make room goes to the map.
    pub(super) fn keep(&self, cache: &CpuCache, cpu: CpuId, run: Run, list: List) {
        A::work(Op::PcpPut, 1);
        self.say_filled(cpu);
        // The word may be here already, with other frames of it that are free.
        match cache.join(run, run.frames.count_ones()) {
            Joined::Yes => {}
            Joined::Absent => {
                if let Some(old) = cache.install(run, list) {
                    cache.account(self.put_back(old));
                }
            }
            Joined::Twice => freed_twice(self.frame(run.word, run.frames.trailing_zeros())),
        }
    }

    /// Takes two or four whole words.
    fn take_words(&self, cache: &CpuCache, want: Want, appetite: Appetite) -> Option<Pfn> {
        let (block, word) = self.enter_some(cache, want, appetite)?;
        A::work(Op::BuddyTake, 1);
        for bits in &self.words[block].0[word..word + (want.order.pages() >> WORD_ORDER)] {
            // It is clear, and only the CPU that has entered the block sets bits.
            bits.store(!0, Release);
        }
        self.leave_as(block, want.order.pages() as u64, appetite);
        cache.account(-(want.order.pages() as i64));
        Some(self.frame((block * WORDS + word) as u32, 0))
    }

    /// Enters the CPU's block for what is wanted, or another that becomes it: the block, and the
    /// word in it where that can be taken.
    fn enter_some(
        &self,
        cache: &CpuCache,
        want: Want,
        appetite: Appetite,
    ) -> Option<(usize, usize)> {
        if appetite == Appetite::Scarce {
            return self.enter_shared(cache, want);
        }
        let own = &cache.block[want.list().index()];
        if let Some(block) = own.get() {
            if let Some(word) = self.enter_own(block, want) {
                return Some((block, word));
            }
            own.take();
            self.disown(block, want.cpu);
        }
        let found = self.find_partial(want, want.kind);
        if found.is_none()
            && let Some(found) = self.enter_others_own(cache, want)
        {
            return Some(found);
        }
        let found = found.or_else(|| {
            let spare = cache.spare.take()?;
            Some((spare, self.enter_spare(spare, want)?))
        });
        let (block, word) = found.or_else(|| self.find(want))?;
        own.set(block);
        Some((block, word))
    }

    /// The same where memory is short: no CPU keeps a block then, and none is broken up while any
    /// CPU's has room. Otherwise CPUs would hold as many whole blocks open as there are CPUs.
    fn enter_shared(&self, cache: &CpuCache, want: Want) -> Option<(usize, usize)> {
        self.disown_all(cache, want.cpu);
        let found = self.find_partial(want, want.kind);
        found.or_else(|| self.enter_others(want)).or_else(|| self.find(want))
    }

    /// Enters a block in use that another CPU owns.
    fn enter_others(&self, want: Want) -> Option<(usize, usize)> {
        let (me, cpus) = (want.cpu.index(), A::cpus_possible());
        (1..cpus).map(|step| CpuId::new((me + step) % cpus)).find_map(|cpu| {
            let cells = &self.caches.of(cpu).peek().block;
            let blocks = List::of_type(want.kind).filter_map(|list| cells[list.index()].get());
            blocks.filter(|&block| self.head(block).used() > 0).find_map(|block| {
                A::work(Op::BuddyStep, 1);
                Some((block, self.take_over(block, want)?))
            })
        })
    }

    /// Leaves a block that was entered; where memory is short it is nobody's then.
    fn leave_as(&self, block: usize, taken: u64, appetite: Appetite) {
        match appetite {
            Appetite::Ample => self.leave(block, taken),
            Appetite::Scarce => loop {
                let head = self.head(block);
                let after = Head(head.0 + taken).disowned();
                if self.change(block, head, after) {
                    return self.file(block, after);
                }
            },
        }
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
        self.rooms.note(block, WORD_ORDER);
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
