//! Allocation of whole blocks: orders 9 and 10, which change heads and no bits, and refills of
//! stacks with whole blocks.

use super::cpu::{BlockCell, CpuCache};
use super::head::{BLOCK_PAGES, Head};
use super::{AllocRequest, BlockMap, Refill, ReserveAccess, Where};
use core::sync::atomic::Ordering::Release;
use mmscale_arch::{Atomic, Cpu, CpuId, Op, Order, PAGEBLOCK_ORDER, Pfn};

impl<A: Cpu> BlockMap<A> {
    /// Takes one whole block for order 9, or two adjacent ones for order 10.
    pub(super) fn take_whole(&self, cache: Option<&CpuCache>, req: AllocRequest) -> Option<Pfn> {
        let block = if req.order == Order::PAGEBLOCK {
            let spare = cache.and_then(|cache| self.take_spare(cache, req));
            spare.or_else(|| self.take_one(req))?
        } else {
            self.take_pair(req)?
        };
        A::work(Op::BuddyTake, 1);
        Some(self.first.offset(block << PAGEBLOCK_ORDER))
    }

    /// Takes whole blocks without owner, those after `near` first, onto the CPU's stack as blocks
    /// of the requested order. Takes blocks for at most `most` entries, and at most the pages that
    /// a CPU may cache. Heads say full before bits are set; no CPU searches a full block.
    pub(super) fn take_more(&self, cache: &CpuCache, req: AllocRequest, near: usize, most: u32) {
        let each = 1 << (PAGEBLOCK_ORDER - req.order.get());
        let left = most.min((req.spare_pages >> PAGEBLOCK_ORDER) * each) / each;
        if req.refill == Refill::Exact || left == 0 {
            return;
        }
        // Further blocks are not urgent, even if the request is.
        let kept = self.reserve.blocks(AllocRequest { reserve: ReserveAccess::None, ..req });
        let (mut left, mut taken) = (left, 0);
        for start in [near, 0] {
            let mut from = start;
            while left > 0
                && let Some((first, some)) = self.whole.take_some(from, left)
            {
                // The bits were cleared before the check, so that two CPUs cannot both take the
                // last blocks above the reserve.
                if kept > 0 && !self.whole.has(kept, first) {
                    self.whole.set_some(first, some);
                    left = 0;
                    break;
                }
                self.make_all_fully_used((first, some), req);
                self.stack_all(cache, (first, some), req);
                (left, taken) = (left - some.count_ones(), taken + some.count_ones());
                from = first + 1;
            }
            if left == 0 || start == 0 || taken > 0 {
                break;
            }
        }
        cache.account(-i64::from(taken) * BLOCK_PAGES as i64);
    }

    /// Pushes whole blocks that this CPU has taken onto its stack of the requested order.
    fn stack_all(&self, cache: &CpuCache, (first, some): (usize, u64), req: AllocRequest) {
        A::work(Op::BuddyTake, some.count_ones());
        A::work(Op::PcpPut, some.count_ones());
        while !cache.stacks.fill_whole((first, some), req.order, req.kind) {
            self.evict(cache, req.cpu, req.order, req.kind);
        }
    }

    /// Makes whole blocks, whose index bits the caller has cleared, full or held.
    fn make_all_fully_used(&self, (first, some): (usize, u64), req: AllocRequest) {
        A::work(Op::BuddyStep, some.count_ones());
        let mut left = some;
        while left != 0 {
            self.make_fully_used(first + left.trailing_zeros() as usize, req);
            left &= left - 1;
        }
    }

    /// Makes a whole block, whose index bit the caller has cleared, full or held: all of it is used
    /// by blocks of the requested order.
    #[inline]
    fn make_fully_used(&self, block: usize, req: AllocRequest) {
        // A plain store: see the index of whole blocks. Pairs with the loads of heads.
        self.heads[block].store(Head::fully_used(req.order, req.kind).0, Release);
        if req.order < Order::PAGEBLOCK {
            self.mark_all_used(block);
        }
    }

    /// Takes the CPU's spare block, if it still owns it.
    fn take_spare(&self, cache: &CpuCache, req: AllocRequest) -> Option<usize> {
        let block = cache.spare.take()?;
        (self.head(block).owned_by(req.cpu) && self.hold_whole(block, req)).then_some(block)
    }

    /// Clears the index bit of a whole block without owner, which becomes the caller's.
    pub(super) fn take_out_one(&self, cpu: CpuId, range: Where) -> Option<usize> {
        let stretch = self.stretch(cpu, range);
        let mut blocks =
            self.whole.from(self.search_start(cpu)).take_while(|at| stretch.contains(at));
        blocks.find(|&block| {
            A::work(Op::BuddyStep, 1);
            self.whole.clear(block)
        })
    }

    /// Takes a whole block without owner; if there is none, one that a CPU owns and has not used
    /// yet. Misses a block that another CPU is about to add to the index: reading all heads would
    /// cost every failing allocation more than that is worth.
    fn take_one(&self, req: AllocRequest) -> Option<usize> {
        if let Some(block) = self.take_out_one(req.cpu, Where::All) {
            self.make_fully_used(block, req);
            return Some(block);
        }
        let mut owned = self.caches.iter().flat_map(|(_, cache)| {
            let cache = cache.peek();
            let cells = cache.block.iter().chain([&cache.spare]);
            cells.filter_map(BlockCell::get)
        });
        owned.find(|&block| self.hold_whole(block, req))
    }

    fn take_pair(&self, req: AllocRequest) -> Option<usize> {
        let pairs = self.whole.from(self.search_start(req.cpu) & !1).filter(|block| block % 2 == 0);
        for block in pairs {
            A::work(Op::BuddyStep, 1);
            if !self.whole.contains(block + 1) {
                continue;
            }
            if self.hold_pair(block, req) {
                return Some(block);
            }
        }
        let last = self.heads.len() - 1;
        (0..last).step_by(2).find(|&block| self.hold_pair(block, req))
    }

    /// Holds two adjacent blocks, or none. The first is busy until the second is held, so an
    /// isolator waits meanwhile. It finds the first one free or held, and never isolates a block
    /// that is about to be freed again.
    fn hold_pair(&self, block: usize, req: AllocRequest) -> bool {
        let entered = |head: Head| head.entered_by(req.cpu);
        if self.head(block + 1).used() != 0 || !self.claim_whole(block, entered) {
            return false;
        }
        if !self.hold_whole(block + 1, req) {
            self.leave(block, 0);
            self.disown(block, req.cpu);
            return false;
        }
        // A plain store: other CPUs do not enter or isolate a busy block, and no frame of it is in
        // use, so none can be freed.
        self.heads[block].store(Head::fully_used(req.order, req.kind).0, Release);
        true
    }

    /// Makes a whole block held, for orders 9 and 10; also one that a CPU owns and has not used.
    fn hold_whole(&self, block: usize, req: AllocRequest) -> bool {
        self.claim_whole(block, |_| Head::fully_used(req.order, req.kind))
    }

    /// Replaces the head of a whole block by `to(head)`; also of one that a CPU owns and has not
    /// used. Returns `false` if the block is not whole, or if another CPU was faster.
    fn claim_whole(&self, block: usize, to: impl Fn(Head) -> Head) -> bool {
        let head = self.head(block);
        if head.is_unowned_free() {
            let mine = self.whole.clear(block);
            if mine {
                // A plain store: clearing the index bit made the block this CPU's. Pairs with the
                // loads of heads.
                self.heads[block].store(to(self.head(block)).0, Release);
            }
            return mine;
        }
        let whole = head.used() == 0 && !head.is_busy() && !head.is_isolated();
        whole && self.change(block, head, to(head))
    }

    /// Adds a partial block without owner to its index. Whole blocks are added only by the CPU that
    /// has made them whole, or has cleared their index bit.
    pub(super) fn file_part(&self, block: usize) {
        let head = self.head(block);
        if !head.is_owned() && head.used() > 0 {
            self.file(block, head);
        }
    }
}
