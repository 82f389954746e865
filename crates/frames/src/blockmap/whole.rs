//! Blocks that are wanted whole: orders 9 and 10 take no bits, only heads; and those that CPUs take
//! for later.

use super::cpu::{BlockCell, CpuCache};
use super::head::{BLOCK_PAGES, Head};
use super::{Appetite, BlockMap, Reserve, Want, Where};
use core::sync::atomic::Ordering::Release;
use mmscale_arch::{Atomic, Cpu, CpuId, Op, Order, PAGEBLOCK_ORDER, Pfn};

impl<A: Cpu> BlockMap<A> {
    /// Takes one whole block, or two neighbours, for `want`.
    pub(super) fn take_whole(&self, cache: Option<&CpuCache>, want: Want) -> Option<Pfn> {
        let block = if want.order == Order::PAGEBLOCK {
            let spare = cache.and_then(|cache| self.take_spare(cache, want));
            spare.or_else(|| self.take_one(want))?
        } else {
            self.take_pair(want)?
        };
        A::work(Op::BuddyTake, 1);
        Some(self.first.offset(block << PAGEBLOCK_ORDER))
    }

    /// Takes whole blocks that nobody owns, those after `near` first: onto the CPU's stack, as
    /// blocks of the wanted order, at most `most` of them and what is for later. They say that all
    /// of them is in use before their bits do, and nobody looks for anything in them.
    pub(super) fn take_more(&self, cache: &CpuCache, want: Want, near: usize, most: u32) {
        let each = 1 << (PAGEBLOCK_ORDER - want.order.get());
        let left = most.min((want.spare_pages >> PAGEBLOCK_ORDER) * each) / each;
        if want.appetite == Appetite::Scarce || left == 0 {
            return;
        }
        // What is for later is not urgent, whoever asks.
        let kept = self.reserve.blocks(Want { reserve: Reserve::Kept, ..want });
        let (mut left, mut taken) = (left, 0);
        for start in [near, 0] {
            let mut from = start;
            while left > 0
                && let Some((first, some)) = self.whole.take_some(from, left)
            {
                // They are out already, so that no two can take the last ones above the reserve.
                if kept > 0 && !self.whole.has(kept, first) {
                    self.whole.set_some(first, some);
                    left = 0;
                    break;
                }
                self.use_up_some((first, some), want);
                self.stack_all(cache, (first, some), want);
                (left, taken) = (left - some.count_ones(), taken + some.count_ones());
                from = first + 1;
            }
            if left == 0 || start == 0 || taken > 0 {
                break;
            }
        }
        cache.account(-i64::from(taken) * BLOCK_PAGES as i64);
    }

    /// Puts blocks of which all is this CPU's onto its stack, as blocks of the wanted order.
    fn stack_all(&self, cache: &CpuCache, (first, some): (usize, u64), want: Want) {
        A::work(Op::BuddyTake, some.count_ones());
        A::work(Op::PcpPut, some.count_ones());
        while !cache.stacks.fill_whole((first, some), want.order, want.kind) {
            self.shed(cache, want.cpu, want.order, want.kind);
        }
    }

    /// Makes blocks that were taken out of where whole ones are found such that all of them is in
    /// use, by blocks of the wanted order.
    fn use_up_some(&self, (first, some): (usize, u64), want: Want) {
        A::work(Op::BuddyStep, some.count_ones());
        let mut left = some;
        while left != 0 {
            self.use_up(first + left.trailing_zeros() as usize, want);
            left &= left - 1;
        }
    }

    /// The same with one.
    #[inline]
    fn use_up(&self, block: usize, want: Want) {
        self.heads[block].store(Head::used_up(want.order, want.kind).0, Release);
        if want.order < Order::PAGEBLOCK {
            self.mark_all_used(block);
        }
    }

    /// The one that the CPU kept.
    fn take_spare(&self, cache: &CpuCache, want: Want) -> Option<usize> {
        let block = cache.spare.take()?;
        (self.head(block).owned_by(want.cpu) && self.hold_any(block, want)).then_some(block)
    }

    /// Takes a whole block that nobody owns out of where those are found: it is the caller's.
    pub(super) fn take_out_one(&self, cpu: CpuId, place: Where) -> Option<usize> {
        let stretch = self.stretch(cpu, place);
        let mut blocks = self.whole.from(self.home(cpu)).take_while(|at| stretch.contains(at));
        blocks.find(|&block| {
            A::work(Op::BuddyStep, 1);
            self.whole.clear(block)
        })
    }

    /// One that nobody owns; if there is none, one that somebody owns and has not begun to use. One
    /// that somebody is about to put where it is found is missed: to look at all heads would cost
    /// each that asks in vain more than that.
    fn take_one(&self, want: Want) -> Option<usize> {
        if let Some(block) = self.take_out_one(want.cpu, Where::All) {
            self.use_up(block, want);
            return Some(block);
        }
        let mut owned = self.caches.iter().flat_map(|(_, cache)| {
            let cache = cache.peek();
            let cells = cache.block.iter().chain([&cache.spare]);
            cells.filter_map(BlockCell::get)
        });
        owned.find(|&block| self.hold_any(block, want))
    }

    fn take_pair(&self, want: Want) -> Option<usize> {
        let pairs = self.whole.from(self.home(want.cpu) & !1).filter(|block| block % 2 == 0);
        for block in pairs {
            A::work(Op::BuddyStep, 1);
            if !self.whole.contains(block + 1) {
                continue;
            }
            if self.hold_pair(block, want) {
                return Some(block);
            }
        }
        let last = self.heads.len() - 1;
        (0..last).step_by(2).find(|&block| self.hold_pair(block, want))
    }

    /// Holds two neighbours, or none. The first is entered until the second is held: who isolates
    /// it meanwhile waits, and finds it free or held, not given up again.
    fn hold_pair(&self, block: usize, want: Want) -> bool {
        let entered = |head: Head| head.entered_by(want.cpu);
        if self.head(block + 1).used() != 0 || !self.seize(block, entered) {
            return false;
        }
        if !self.hold_any(block + 1, want) {
            self.leave(block, 0);
            self.disown(block, want.cpu);
            return false;
        }
        // Nobody else changes the head of a block that somebody is inside of while nothing of it
        // is used.
        self.heads[block].store(Head::used_up(want.order, want.kind).0, Release);
        true
    }

    /// Makes a whole block held for `want`, be it one that somebody owns and has not begun to use.
    fn hold_any(&self, block: usize, want: Want) -> bool {
        self.seize(block, |_| Head::used_up(want.order, want.kind))
    }

    /// Makes of the head of a whole block what `to` makes of it, be it somebody's.
    fn seize(&self, block: usize, to: impl Fn(Head) -> Head) -> bool {
        let head = self.head(block);
        if head.is_nobodys_whole() {
            let mine = self.whole.clear(block);
            if mine {
                self.heads[block].store(to(self.head(block)).0, Release);
            }
            return mine;
        }
        let whole = head.used() == 0 && !head.is_busy() && !head.is_isolated();
        whole && self.change(block, head, to(head))
    }

    /// Puts a block of which some is free, not all, where it can be found if nobody owns it. Whole
    /// ones are put there only by who made them so, or took them out.
    pub(super) fn file_part(&self, block: usize) {
        let head = self.head(block);
        if !head.is_owned() && head.used() > 0 {
            self.file(block, head);
        }
    }
}
