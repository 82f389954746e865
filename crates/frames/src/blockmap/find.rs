//! Searches for a block to enter: partial blocks, fullest first; whole ones; blocks of other types
//! and other CPUs.

use super::head::{BLOCK_PAGES, Fill, Head};
use super::index::Index;
use super::order_hints::LARGEST_HINT;
use super::{AllocRequest, BlockMap, Refill, ReserveAccess, Where};
use crate::frame::MigrateType;
use core::sync::atomic::Ordering::{Release, SeqCst};
use mmscale_arch::{Atomic, Cpu, Op, Order, PAGEBLOCK_ORDER};

/// Blocks without a free block of the requested order after which a search gives up; then a whole
/// block is broken up.
const LOOKS: usize = 64;

/// Blocks that a search may enter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owners {
    /// Blocks without owner.
    None,
    /// Also blocks that other CPUs own.
    Any,
}

impl<A: Cpu> BlockMap<A> {
    /// Enters a block when no partial block of the requested type has the requested order. Tries
    /// whole blocks first, then blocks of other types, then blocks of other CPUs. Returns the block
    /// and the word. The block becomes one of the requested type, unless too much of it is in use.
    pub(super) fn find(&self, req: AllocRequest) -> Option<(usize, usize)> {
        let found = self.find_whole(req, Where::All).or_else(|| self.find_fallback(req));
        let found = found.or_else(|| match req.refill {
            // Whole blocks that are left are in the reserve.
            Refill::Batch => self.try_steal(req),
            Refill::Exact => None,
        });
        // A single page may use the reserve later; all heads are read only then.
        let later = req.reserve != ReserveAccess::Full && req.order == Order::ZERO;
        found.or_else(|| if later { None } else { self.sweep(req) })
    }

    /// Enters the fullest partial block of `kind` without owner that has the requested order.
    /// Prefers blocks that have no larger order, so that no larger free block is broken up.
    pub(super) fn find_partial(
        &self,
        req: AllocRequest,
        kind: MigrateType,
        range: Where,
    ) -> Option<(usize, usize)> {
        let pages = req.order.pages() as u64;
        let may = |fill: &Fill| fill.most_free() >= pages && !self.fill(kind, *fill).is_empty();
        let exact = |fill| self.find_partly(req, (kind, fill), true, range);
        let any = |fill| self.find_partly(req, (kind, fill), false, range);
        let mut fills = Fill::all();
        let nearly_full = [fills.next().filter(may), fills.next().filter(may)];
        let nearly_full = || nearly_full.into_iter().flatten();
        let found = nearly_full().find_map(exact).or_else(|| nearly_full().find_map(any));
        found.or_else(|| fills.filter(may).find_map(|fill| exact(fill).or_else(|| any(fill))))
    }

    fn fill(&self, kind: MigrateType, fill: Fill) -> &Index<A> {
        &self.partial[kind.index()][fill.index()]
    }

    fn find_partly(
        &self,
        req: AllocRequest,
        (kind, fill): (MigrateType, Fill),
        exact: bool,
        range: Where,
    ) -> Option<(usize, usize)> {
        let above = if exact { Some(self.order_hints.above(req.order)?) } else { None };
        let (index, start) = (self.fill(kind, fill), self.search_start(req.cpu));
        let stretch = self.stretch(req.cpu, range);
        let blocks = index.common(self.order_hints.of(req.order), above, start);
        let blocks = blocks.take_while(|block| stretch.contains(block));
        self.find_among(req, (kind, fill), blocks)
    }

    /// Enters one of `blocks`, which are from the index of a type and a fill.
    fn find_among(
        &self,
        req: AllocRequest,
        (kind, fill): (MigrateType, Fill),
        blocks: impl Iterator<Item = usize>,
    ) -> Option<(usize, usize)> {
        let index = self.fill(kind, fill);
        let mut looks = 0;
        for block in blocks {
            A::work(Op::BuddyStep, 1);
            let head = self.head(block);
            if head.fill() != Some(fill) || head.kind() != kind {
                // The block is in another index too, or about to be.
                index.clear(block);
                self.file_part(block);
                continue;
            }
            if head.is_busy() {
                // The CPU inside files it when it disowns it.
                continue;
            }
            // Search before entering: a block without a free block of the order need not be
            // entered.
            if req.order.get() > 0 && self.word_with(block, req.order).is_none() {
                self.order_hints.forget(block, req.order);
                // Pairs with the `SeqCst` in `clear` and the fence in `order_words`: a CPU that
                // frees pages sees that the hint is cleared, or its pages are seen here.
                A::fence(SeqCst);
                if self.word_with(block, req.order).is_some() {
                    // A free made it just now, perhaps as part of a larger block. `used` does not
                    // limit the order: bits are cleared before frames are subtracted.
                    self.order_hints.note(block, LARGEST_HINT);
                }
                looks += 1;
                if looks == LOOKS {
                    return None;
                }
                continue;
            }
            match self.enter(block, req, Owners::None, Some(kind)) {
                Ok(word) => {
                    index.clear(block);
                    return Some((block, word));
                }
                Err(head) if head.is_owned() && !head.is_busy() => {
                    index.clear(block);
                    self.file_part(block);
                }
                Err(_) => {}
            }
        }
        None
    }

    /// Enters a whole block, which becomes one of the requested type, unless only the reserve is
    /// left.
    pub(super) fn find_whole(&self, req: AllocRequest, range: Where) -> Option<(usize, usize)> {
        let block = self.take_out_one(req.cpu, range)?;
        let kept = self.reserve.blocks(req);
        if kept > 0 && !self.whole.has(kept, block) {
            // The bit was cleared before the check, so that two CPUs cannot both take the last
            // block above the reserve.
            self.whole.set(block);
            return None;
        }
        Some(self.enter_whole(block, req))
    }

    /// Enters a whole block whose index bit the caller has cleared, at its first word.
    fn enter_whole(&self, block: usize, req: AllocRequest) -> (usize, usize) {
        let entered = Head::WHOLE.entered_by(req.cpu).with_kind(req.kind);
        // Pairs with the loads of heads, which are `SeqCst`.
        self.heads[block].store(entered.0, Release);
        self.order_hints.note(block, LARGEST_HINT);
        (block, 0)
    }

    /// Enters a partial block of another type, the emptiest first.
    fn find_fallback(&self, req: AllocRequest) -> Option<(usize, usize)> {
        let of = |kind| {
            Fill::all()
                .rev()
                .find_map(|fill| self.find_partly(req, (kind, fill), false, Where::All))
        };
        req.kind.fallbacks().into_iter().find_map(of)
    }

    /// The last resort: reads every head, and takes over other CPUs' blocks too. Blocks of the
    /// requested type come first.
    fn sweep(&self, req: AllocRequest) -> Option<(usize, usize)> {
        let (start, blocks) = (self.search_start(req.cpu), self.heads.len());
        for any_type in [false, true] {
            for block in (start..blocks).chain(0..start) {
                let head = self.head(block);
                let suits = match head.used() {
                    0 => req.reserve == ReserveAccess::Full,
                    _ => any_type || head.kind() == req.kind,
                };
                if head.is_unowned_free() {
                    if suits && self.whole.clear(block) {
                        return Some(self.enter_whole(block, req));
                    }
                    continue;
                }
                if !suits || head.free() < req.order.pages() as u64 {
                    continue;
                }
                A::work(Op::BuddyStep, 1);
                if self.word_with(block, req.order).is_some()
                    && let Ok(word) = self.enter(block, req, Owners::Any, None)
                {
                    return Some((block, word));
                }
            }
        }
        None
    }

    /// Enters a block of `kind`, with or without owner, if it has the requested order.
    pub(super) fn take_over(
        &self,
        block: usize,
        req: AllocRequest,
        kind: MigrateType,
    ) -> Option<usize> {
        self.word_with(block, req.order)?;
        self.enter(block, req, Owners::Any, Some(kind)).ok()
    }

    /// Whether a block that may have `order` could not be searched: a CPU is inside, or has cleared
    /// its index bit and not yet changed its head.
    pub(crate) fn is_busy_with(&self, order: Order) -> bool {
        (0..self.heads.len()).map(|block| (block, self.head(block))).any(|(block, head)| {
            let whole = || head.is_unowned_free() && !self.whole.contains(block);
            let busy = || head.is_busy() && !head.is_isolated();
            head.free() >= order.pages() as u64 && (busy() || whole())
        })
    }

    /// Enters a block, of type `kind` if one is given. The error is the head of a block that was
    /// not entered: it has an owner, is another type's, is isolated, has too few free frames or no
    /// free block of the order, or is whole without owner.
    fn enter(
        &self,
        block: usize,
        req: AllocRequest,
        owners: Owners,
        kind: Option<MigrateType>,
    ) -> Result<usize, Head> {
        loop {
            let head = self.head(block);
            let free = !head.is_owned() || owners == Owners::Any && !head.is_busy();
            let shut = head.is_isolated() || head.held().is_some();
            let open = free && !shut && kind.is_none_or(|kind| head.kind() == kind);
            if !open || head.is_unowned_free() || head.free() < req.order.pages() as u64 {
                return Err(head);
            }
            // At least half of it is free, and the request is unmovable or large: change the type,
            // so that unmovable blocks stay together (Linux claims a pageblock by this rule).
            let change = head.free() >= BLOCK_PAGES / 2
                && (req.kind != MigrateType::Movable || req.order.get() >= PAGEBLOCK_ORDER / 2)
                || head.used() == 0;
            let entered = head.entered_by(req.cpu);
            let entered = if change { entered.with_kind(req.kind) } else { entered };
            if !self.change(block, head, entered) {
                continue;
            }
            if let Some(word) = self.word_or_leave(block, req.order) {
                return Ok(word);
            }
            // Left unchanged, except that it has no owner now.
            self.disown(block, req.cpu);
            return Err(entered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blockmap::ReservePages;
    use mmscale_arch::sync::PreemptGuard;
    use mmscale_arch::{CpuId, Pfn};
    use mmscale_stepped::{self as stepped, Stepped};

    type Map = BlockMap<Stepped>;

    /// Returns whether a search finds a block of `order` where the only free pages are in a
    /// pageblock that no index has.
    fn finds(order: u8, reserve: ReserveAccess) -> bool {
        stepped::boot(1, 1000);
        let none = ReservePages { from_singles: 0, from_larger: 0 };
        let (map, cpu, kind) =
            (Map::alone(Pfn::new(0), 1024, none), CpuId::new(0), MigrateType::Movable);
        let request = |order, reserve| AllocRequest {
            cpu,
            order,
            kind,
            refill: Refill::Exact,
            reserve,
            spare_pages: 0,
        };
        let (block, _) = map.find(request(Order::ZERO, ReserveAccess::Full)).expect("all is free");
        map.leave(block, 1);
        map.mark_used(block, 0..1, 1);
        map.disown(block, cpu);
        let rest = request(Order::PAGEBLOCK, ReserveAccess::Full);
        map.claim(&PreemptGuard::new(), rest, &mut 0).expect("one pageblock is whole");
        Fill::all().for_each(|fill| _ = map.fill(kind, fill).clear(block));
        let order = Order::new(order).expect("a small one");
        map.find(request(order, reserve)).is_some()
    }

    #[test]
    fn all_heads_are_read_unless_a_single_page_may_use_the_reserve_later() {
        assert!(finds(1, ReserveAccess::None) && finds(0, ReserveAccess::Full));
        assert!(!finds(0, ReserveAccess::None));
    }
}
