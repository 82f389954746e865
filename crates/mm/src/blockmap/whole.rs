//! Blocks that are wanted whole: orders 9 and 10 take no bits, only heads; and those that CPUs take
//! for later.

use super::batch::Batch;
use super::cpu::{BlockCell, CpuCache};
use super::head::{BLOCK_PAGES, Head};
use super::{Appetite, BlockMap, Reserve, Want};
use crate::arch::{Arch, Atomic, Op, Order, PAGEBLOCK_ORDER, Pfn};
use core::sync::atomic::Ordering::Release;

impl<A: Arch> BlockMap<A> {
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
        let batch = self.batch(want.cpu);
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
                let used_up = self.use_up_some(&batch, (first, some), want);
                self.stack_all(cache, &batch, (first, used_up), want);
                (left, taken) = (left - some.count_ones(), taken + used_up.count_ones());
                from = first + 1;
            }
            if left == 0 || start == 0 || taken > 0 {
                break;
            }
        }
        cache.account(-i64::from(taken) * BLOCK_PAGES as i64);
    }

    /// Puts blocks of which all is this CPU's onto its stack, as blocks of the wanted order.
    fn stack_all(
        &self,
        cache: &CpuCache,
        batch: &Batch<'_, A>,
        (first, some): (usize, u64),
        want: Want,
    ) {
        A::work(Op::BuddyTake, some.count_ones());
        A::work(Op::PcpPut, some.count_ones());
        while !cache.stacks.fill_whole((first, some), want.order, want.kind) {
            self.shed(cache, batch, want.order, want.kind);
        }
    }

    /// Makes blocks that were taken out of where whole ones are found such that all of them is in
    /// use, by blocks of the wanted order; which of them are. The others, which somebody isolates,
    /// are put back.
    fn use_up_some(&self, batch: &Batch<'_, A>, (first, some): (usize, u64), want: Want) -> u64 {
        A::work(Op::BuddyStep, some.count_ones());
        let (mut left, mut used_up) = (some, 0);
        while left != 0 {
            let block = first + left.trailing_zeros() as usize;
            let bit = left & left.wrapping_neg();
            left &= left - 1;
            let all = |head: Head| {
                let held = want.order == Order::PAGEBLOCK;
                let all = if held { head.as_held(want.order) } else { head.used_up() };
                head.is_nobodys_whole().then_some(all.with_kind(want.kind))
            };
            if self.replace(batch, block, all) {
                used_up |= bit;
                if want.order < Order::PAGEBLOCK {
                    self.mark_all_used(block);
                }
            }
        }
        if used_up != some {
            self.whole.set_some(first, some & !used_up);
        }
        used_up
    }

    /// The one that the CPU kept.
    fn take_spare(&self, cache: &CpuCache, want: Want) -> Option<usize> {
        let block = cache.spare.take()?;
        let head = self.head(block);
        (head.owned_by(want.cpu) && self.hold(block, head, want)).then_some(block)
    }

    /// One that nobody owns; if there is none, one that somebody owns and has not begun to use. One
    /// that somebody is about to put where it is found is missed: to look at all heads would cost
    /// each that asks in vain more than that.
    fn take_one(&self, want: Want) -> Option<usize> {
        for block in self.whole.from(self.home(want.cpu)) {
            A::work(Op::BuddyStep, 1);
            if !self.whole.clear(block) {
                continue;
            }
            if self.hold(block, self.head(block), want) {
                return Some(block);
            }
            self.whole.set(block);
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
        let held = self.head(block).as_held(want.order).with_kind(want.kind);
        self.heads[block].store(held.0, Release);
        true
    }

    /// Makes a whole block held for `want`, be it one that somebody owns and has not begun to use.
    fn hold_any(&self, block: usize, want: Want) -> bool {
        self.seize(block, |head| head.as_held(want.order).with_kind(want.kind))
    }

    /// Makes of the head of a whole block what `to` makes of it, be it somebody's.
    fn seize(&self, block: usize, to: impl Fn(Head) -> Head) -> bool {
        let head = self.head(block);
        let whole = head.used() == 0 && !head.is_busy() && !head.is_isolated();
        let nobodys = head.is_nobodys_whole();
        if !whole || nobodys && !self.whole.clear(block) {
            return false;
        }
        let seized = self.change(block, head, to(head));
        if nobodys && !seized {
            self.whole.set(block);
        }
        seized
    }

    /// Makes a whole block, of which `head` is what its head says, held for `want`.
    fn hold(&self, block: usize, head: Head, want: Want) -> bool {
        let whole = head.used() == 0 && !head.is_busy() && !head.is_isolated();
        whole && self.change(block, head, head.as_held(want.order).with_kind(want.kind))
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
