//! Blocks that are wanted whole: orders 9 and 10 take no bits, only heads; and those that CPUs take
//! for later.

use super::cpu::{BlockCell, CpuCache};
use super::head::{BLOCK_PAGES, Head};
use super::{Appetite, BlockMap, Reserve, WORDS, Want};
use crate::arch::{Arch, Op, Order, PAGEBLOCK_ORDER, Pfn};

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

    /// Takes whole blocks that nobody owns for later, those after `near` first: onto the CPU's
    /// stack, as blocks of the wanted order, at most `most` of them. They say that all of them is
    /// in use before their bits do, and nobody looks for anything in them.
    pub(super) fn take_more(&self, cache: &CpuCache, want: Want, near: usize, most: u32) {
        let each = 1 << (PAGEBLOCK_ORDER - want.order.get());
        let mut left = most.min((want.spare_pages >> PAGEBLOCK_ORDER) * each) / each;
        if want.appetite == Appetite::Scarce || left == 0 {
            return;
        }
        // What is for later is not urgent, whoever asks.
        let kept = self.reserve.blocks(Want { reserve: Reserve::Kept, ..want });
        if kept > 0 && !self.whole.has(kept + left as usize, near) {
            return;
        }
        let (mut near, mut blocks) = (near, 0);
        while left > 0
            && let Some((first, mut some)) = self.whole.take_some(near, left)
        {
            // They are out already, so that no two can take the last ones above the reserve.
            if kept > 0 && !self.whole.has(kept, first) {
                self.whole.set_some(first, some);
                break;
            }
            while some != 0 {
                let block = first + some.trailing_zeros() as usize;
                some &= some - 1;
                A::work(Op::BuddyStep, 1);
                if !self.use_up(block, want) {
                    self.file_if_nobodys(block);
                    continue;
                }
                self.stack_all(cache, block, want);
                (left, blocks) = (left - 1, blocks + 1);
            }
            near = first + 1;
        }
        if blocks > 0 {
            cache.account(-blocks * BLOCK_PAGES as i64);
            self.say_filled(want.cpu);
        }
    }

    /// Puts a block of which all is this CPU's onto its stack, as blocks of the wanted order.
    fn stack_all(&self, cache: &CpuCache, block: usize, want: Want) {
        A::work(Op::BuddyTake, 1);
        A::work(Op::PcpPut, 1);
        let first = (block << PAGEBLOCK_ORDER) as u32;
        if want.order == Order::PAGEBLOCK && cache.stacks.push(first, want.order, want.kind) {
            return;
        }
        while !cache.stacks.fill_whole(first, want.order, want.kind) {
            self.shed(cache, want.order, want.kind);
        }
    }

    /// Makes a whole block that nobody owns one of which all is in use, by blocks of the wanted
    /// order.
    fn use_up(&self, block: usize, want: Want) -> bool {
        let head = self.head(block);
        if want.order == Order::PAGEBLOCK {
            return !head.is_owned() && self.hold(block, head, want);
        }
        let free = head.used() == 0 && !head.is_owned() && !head.is_isolated();
        let taken = free && self.change(block, head, head.with_kind(want.kind).used_up());
        if taken {
            self.mark_used(block, 0..WORDS, !0);
        }
        taken
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
            let head = self.head(block);
            if !head.is_owned() && self.hold(block, head, want) {
                return Some(block);
            }
            self.file_if_nobodys(block);
        }
        let mut owned = self.caches.iter().flat_map(|(_, cache)| {
            let cache = cache.peek();
            let cells = cache.block.iter().chain([&cache.spare]);
            cells.filter_map(BlockCell::get)
        });
        owned.find(|&block| self.hold(block, self.head(block), want))
    }

    fn take_pair(&self, want: Want) -> Option<usize> {
        let pairs = self.whole.from(self.home(want.cpu) & !1).filter(|block| block % 2 == 0);
        for block in pairs {
            A::work(Op::BuddyStep, 1);
            if !self.whole.contains(block + 1) {
                continue;
            }
            let mine = [block, block + 1].map(|block| self.whole.clear(block));
            if mine == [true, true] && self.hold_pair(block, want) {
                return Some(block);
            }
            self.file_if_nobodys(block);
            self.file_if_nobodys(block + 1);
        }
        let last = self.heads.len() - 1;
        (0..last).step_by(2).find(|&block| self.hold_pair(block, want))
    }

    fn hold_pair(&self, block: usize, want: Want) -> bool {
        if self.head(block + 1).used() != 0 || !self.hold(block, self.head(block), want) {
            return false;
        }
        if self.hold(block + 1, self.head(block + 1), want) {
            return true;
        }
        let head = self.release(block, want.order, None);
        self.file(block, head);
        false
    }

    /// Makes a whole block, of which `head` is what its head says, held for `want`.
    fn hold(&self, block: usize, head: Head, want: Want) -> bool {
        let whole = head.used() == 0 && !head.is_busy() && !head.is_isolated();
        whole && self.change(block, head, head.as_held(want.order).with_kind(want.kind))
    }

    /// Puts a block where it can be found if nobody owns it.
    pub(super) fn file_if_nobodys(&self, block: usize) {
        let head = self.head(block);
        if !head.is_owned() {
            self.file(block, head);
        }
    }
}
