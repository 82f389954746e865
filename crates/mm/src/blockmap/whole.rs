//! Blocks that are wanted whole: orders 9 and 10 take no bits, only heads.

use super::cpu::{BlockCell, CpuCache};
use super::head::Head;
use super::{BlockMap, Want};
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

    /// The one that the CPU kept.
    fn take_spare(&self, cache: &CpuCache, want: Want) -> Option<usize> {
        let block = cache.spare.take()?;
        let head = self.head(block);
        (head.owned_by(want.cpu) && self.hold(block, head, want)).then_some(block)
    }

    /// One that nobody owns; if there is none, one that somebody owns and has not begun to use.
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
        self.release(block, want.order);
        false
    }

    /// Makes a whole block, of which `head` is what its head says, held for `want`.
    fn hold(&self, block: usize, head: Head, want: Want) -> bool {
        let whole = head.used() == 0 && !head.is_busy() && !head.is_isolated();
        whole && self.change(block, head, head.as_held(want.order).with_kind(want.kind))
    }

    /// Undoes `hold`.
    fn release(&self, block: usize, order: Order) {
        loop {
            let head = self.head(block);
            debug_assert_eq!(head.held(), Some(order));
            if self.change(block, head, head.as_whole()) {
                return self.file(block, head.as_whole());
            }
        }
    }

    /// Puts a block where it can be found if nobody owns it.
    pub(super) fn file_if_nobodys(&self, block: usize) {
        let head = self.head(block);
        if !head.is_owned() {
            self.file(block, head);
        }
    }
}
