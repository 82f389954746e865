//! Finding a block to take from: the fullest that will do, then a whole one, then anything.

use super::head::{BLOCK_PAGES, Fill, Head};
use super::{BlockMap, Want};
use crate::arch::{Arch, Op, PAGEBLOCK_ORDER};
use crate::frame::MigrateType;

/// How many candidates of an index a search looks into for a block of higher order; a whole block
/// is broken up if none of them has one.
const LOOKS: usize = 8;

/// Which blocks a search may take over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owners {
    /// Those that nobody owns.
    None,
    /// Also other CPUs' blocks.
    Any,
}

impl<A: Arch> BlockMap<A> {
    /// Enters a block, nobody's or, if need be, another CPU's, that has what is wanted: the block
    /// and the word. It is of the wanted type unless only other types' blocks are left with too
    /// much in use to change that.
    pub(super) fn find(&self, want: Want) -> Option<(usize, usize)> {
        let single = want.order.get() <= 3;
        let first: &[Fill] = if single {
            &[Fill::Dense, Fill::Middle, Fill::Sparse]
        } else {
            &[Fill::Middle, Fill::Sparse]
        };
        self.find_partial(want, want.kind, first, LOOKS)
            .or_else(|| self.find_whole(want))
            .or_else(|| self.find_partial(want, want.kind, &Fill::ALL, usize::MAX))
            .or_else(|| self.find_fallback(want))
            .or_else(|| self.sweep(want))
    }

    /// Enters one of the blocks of `kind` that nobody owns.
    fn find_partial(
        &self,
        want: Want,
        kind: MigrateType,
        fills: &[Fill],
        looks: usize,
    ) -> Option<(usize, usize)> {
        for &fill in fills {
            let index = &self.partial[kind.index()][fill as usize];
            for block in index.from(self.home(want.cpu)).take(looks) {
                A::work(Op::BuddyStep, 1);
                // Look first: most blocks that lack a run of a higher order need not be entered.
                if want.order.get() > 0 && self.word_with(block, want.order).is_none() {
                    continue;
                }
                if !index.clear(block) {
                    continue;
                }
                match self.enter(block, want, Owners::None, Some(kind)) {
                    Ok(word) => return Some((block, word)),
                    Err(head) if !head.is_owned() => self.file(block, head),
                    Err(_) => {}
                }
            }
        }
        None
    }

    /// Enters a whole block, which becomes one of the wanted type.
    fn find_whole(&self, want: Want) -> Option<(usize, usize)> {
        for block in self.whole.from(self.home(want.cpu)) {
            A::work(Op::BuddyStep, 1);
            if !self.whole.clear(block) {
                continue;
            }
            let head = self.head(block);
            let free = head.used() == 0 && !head.is_owned() && !head.is_isolated();
            if free && self.change(block, head, head.entered_by(want.cpu).with_kind(want.kind)) {
                return Some((block, 0));
            }
            let now = self.head(block);
            if !now.is_owned() {
                self.file(block, now);
            }
        }
        None
    }

    /// Enters a block of another type, the emptiest first.
    fn find_fallback(&self, want: Want) -> Option<(usize, usize)> {
        let fills = [Fill::Sparse, Fill::Middle, Fill::Dense, Fill::Dregs];
        let of = |kind| self.find_partial(want, kind, &fills, usize::MAX);
        want.kind.fallbacks().into_iter().find_map(of)
    }

    /// The last resort: looks at every head, and takes over other CPUs' blocks too; those of the
    /// wanted type first.
    fn sweep(&self, want: Want) -> Option<(usize, usize)> {
        let (home, blocks) = (self.home(want.cpu), self.heads.len());
        for any_type in [false, true] {
            for block in (home..blocks).chain(0..home) {
                let head = self.head(block);
                let suits = any_type || head.kind() == want.kind || head.used() == 0;
                if !suits || head.free() < want.order.pages() as u64 {
                    continue;
                }
                A::work(Op::BuddyStep, 1);
                if self.word_with(block, want.order).is_some()
                    && let Ok(word) = self.enter(block, want, Owners::Any, None)
                {
                    return Some((block, word));
                }
            }
        }
        None
    }

    /// Enters a block, of type `kind` if one is given. The error is what its head says: it is
    /// somebody's, or of another type, or has not what is wanted.
    fn enter(
        &self,
        block: usize,
        want: Want,
        owners: Owners,
        kind: Option<MigrateType>,
    ) -> Result<usize, Head> {
        loop {
            let head = self.head(block);
            let free = !head.is_owned() || owners == Owners::Any && !head.is_busy();
            let open = free && !head.is_isolated() && kind.is_none_or(|kind| head.kind() == kind);
            if !open || head.free() < want.order.pages() as u64 {
                return Err(head);
            }
            // Half of it is free, and what comes would stay or is large: it changes its type, so
            // that what cannot be moved stays together (by this rule Linux claims a pageblock).
            let change = head.free() >= BLOCK_PAGES / 2
                && (want.kind != MigrateType::Movable || want.order.get() >= PAGEBLOCK_ORDER / 2)
                || head.used() == 0;
            let entered = head.entered_by(want.cpu);
            let entered = if change { entered.with_kind(want.kind) } else { entered };
            if !self.change(block, head, entered) {
                continue;
            }
            if let Some(word) = self.word_or_leave(block, want.order) {
                return Ok(word);
            }
            // As it was; only its owner may have changed, to nobody.
            self.disown(block, want.cpu);
            return Err(entered);
        }
    }
}
