//! Finding a block to take from: the fullest that will do, then a whole one, then anything.

use super::head::{BLOCK_PAGES, Fill, Head};
use super::index::Index;
use super::order_hints::LARGEST_HINT;
use super::{AllocRequest, BlockMap, Refill, ReserveAccess, Where};
use crate::frame::MigrateType;
use core::sync::atomic::Ordering::{Release, SeqCst};
use mmscale_arch::{Atomic, Cpu, Op, Order, PAGEBLOCK_ORDER, planted};

/// How many blocks a search looks into that turn out to have no room; a whole block is broken up
/// then.
const LOOKS: usize = 64;

/// Which blocks a search may take over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owners {
    /// Those that nobody owns.
    None,
    /// Also other CPUs' blocks.
    Any,
}

impl<A: Cpu> BlockMap<A> {
    /// Enters a block when none that is in use already has what is wanted, but for other types'
    /// and other CPUs': the block and the word. It is of the wanted type unless only other types'
    /// blocks are left with too much in use to change that.
    pub(super) fn find(&self, req: AllocRequest) -> Option<(usize, usize)> {
        let found = self.find_whole(req, Where::All).or_else(|| self.find_fallback(req));
        let found = found.or_else(|| match req.refill {
            // If there is a whole one left, it is of the reserve.
            Refill::Batch => self.try_steal(req),
            Refill::Exact => None,
        });
        // A single page may have the reserve later, and then it is worth a look at everything.
        let later = req.reserve != ReserveAccess::Full && req.order == Order::ZERO;
        found.or_else(|| if later { None } else { self.sweep(req) })
    }

    /// Enters the fullest of the blocks of `kind`, in use already and nobody's, that has what is
    /// wanted; rather one that has nothing larger, so that nothing is broken up.
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

    /// Enters one of these blocks, which are filed under a type and a fill.
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
                // It is filed elsewhere too, or about to be.
                index.clear(block);
                self.file_part(block);
                continue;
            }
            if head.is_busy() {
                // Who is inside knows what becomes of it.
                continue;
            }
            // Look first: a block that lacks a run of a higher order need not be entered.
            if req.order.get() > 0 && self.word_with(block, req.order).is_none() {
                self.order_hints.forget(block, req.order);
                // Pairs with the `SeqCst` in `clear` and the fence in `order_words`: a CPU that
                // frees pages sees that the hint is cleared, or its pages are seen here.
                if !planted!(BlockmapForgetUnfenced) {
                    A::fence(SeqCst);
                }
                if self.word_with(block, req.order).is_some() {
                    // It came about at this moment, and perhaps with it something larger. The head
                    // says nothing of how large: bits are cleared before they are counted.
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

    /// Enters a whole block, which becomes one of the wanted type, unless that is of the reserve.
    pub(super) fn find_whole(&self, req: AllocRequest, range: Where) -> Option<(usize, usize)> {
        let block = self.take_out_one(req.cpu, range)?;
        let kept = self.reserve.blocks(req);
        if kept > 0 && !self.whole.has(kept, block) {
            // It is out already, so that no two can take the last one above the reserve.
            self.whole.set(block);
            return None;
        }
        Some(self.enter_whole(block, req))
    }

    /// Enters a whole block that was taken out of where those are found, at its first word.
    fn enter_whole(&self, block: usize, req: AllocRequest) -> (usize, usize) {
        let entered = Head::WHOLE.entered_by(req.cpu).with_kind(req.kind);
        self.heads[block].store(entered.0, Release);
        self.order_hints.note(block, LARGEST_HINT);
        (block, 0)
    }

    /// Enters a block of another type, the emptiest first.
    fn find_fallback(&self, req: AllocRequest) -> Option<(usize, usize)> {
        let of = |kind| {
            Fill::all()
                .rev()
                .find_map(|fill| self.find_partly(req, (kind, fill), false, Where::All))
        };
        req.kind.fallbacks().into_iter().find_map(of)
    }

    /// The last resort: looks at every head, and takes over other CPUs' blocks too; those of the
    /// wanted type first.
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

    /// Enters a block of `kind`, whoever owns it, if it has what is wanted.
    pub(super) fn take_over(
        &self,
        block: usize,
        req: AllocRequest,
        kind: MigrateType,
    ) -> Option<usize> {
        self.word_with(block, req.order)?;
        self.enter(block, req, Owners::Any, Some(kind)).ok()
    }

    /// Whether somebody has a block in his hands at this moment that has `order`, perhaps: it
    /// could not be looked into.
    pub(crate) fn is_busy_with(&self, order: Order) -> bool {
        (0..self.heads.len()).map(|block| (block, self.head(block))).any(|(block, head)| {
            let whole = || head.is_unowned_free() && !self.whole.contains(block);
            let busy = || head.is_busy() && !head.is_isolated();
            head.free() >= order.pages() as u64 && (busy() || whole())
        })
    }

    /// Enters a block, of type `kind` if one is given, but no whole one that nobody owns. The error
    /// is what its head says: it is somebody's, or of another type, or has not what is wanted.
    fn enter(
        &self,
        block: usize,
        req: AllocRequest,
        owners: Owners,
        kind: Option<MigrateType>,
    ) -> Result<usize, Head> {
        loop {
            let head = self.head(block);
            let is_idle = !head.is_busy() || planted!(BlockmapBusyEntered);
            let free = !head.is_owned() || owners == Owners::Any && is_idle;
            let open = free && !head.is_isolated() && kind.is_none_or(|kind| head.kind() == kind);
            if !open || head.is_unowned_free() || head.free() < req.order.pages() as u64 {
                return Err(head);
            }
            // Half of it is free, and what comes would stay or is large: it changes its type, so
            // that what cannot be moved stays together (by this rule Linux claims a pageblock).
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
            // As it was; only its owner may have changed, to nobody.
            self.disown(block, req.cpu);
            return Err(entered);
        }
    }
}
