//! Taking named frames from the map, pageblock by pageblock.
//!
//! A CPU enters each pageblock of the range, whichever CPU owns it, and takes frames only if all
//! that it wants are free. It waits for a CPU that is inside, so it must not be called in
//! interrupts.

use super::bits::{self, Run, WORD_PAGES};
use super::head::{BLOCK_PAGES, Head};
use super::order_hints::LARGEST_HINT;
use super::{BlockMap, WORDS, block_of};
use crate::zone::ContigError;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Release};
use mmscale_arch::sync::{NoPreempt, PreemptGuard};
use mmscale_arch::{Atomic, Cpu, CpuId, Op, Order, Pfn};

impl<A: Cpu> BlockMap<A> {
    /// Takes the frames of `range`, all of which are of the zone, or none. They are one block of
    /// `order` if that is a pageblock's or more; otherwise the order has no meaning here. Returns
    /// the result and the change of the zone's free pages, which the caller adds to its counter:
    /// frees of other CPUs may change both while a range is taken without success.
    pub(crate) fn take_range(
        &self,
        range: Range<usize>,
        order: Order,
    ) -> (Result<(), ContigError>, i64) {
        let first = self.index(Pfn::new(range.start));
        let range = first..first + range.len() as u32;
        let (mut change, mut taken) = (0, range.start);
        while taken < range.end {
            let part = taken..range.end.min((block_of(taken) as u32 + 1) << Order::PAGEBLOCK.get());
            if let Err(why) = self.take_part(part.clone(), order) {
                change += self.put_range(range.start..taken, order);
                return (Err(why), change);
            }
            change -= part.len() as i64;
            taken = part.end;
        }
        (Ok(()), change)
    }

    /// Frees what a range that was not taken to its end has taken.
    fn put_range(&self, range: Range<u32>, order: Order) -> i64 {
        // Other CPUs, and tasks of this one, wait for a block between its change and its place in
        // the index.
        let _pinned = PreemptGuard::<A>::new();
        if order >= Order::PAGEBLOCK {
            let blocks = block_of(range.start)..block_of(range.end);
            return blocks.map(|block| self.put_held_part(block, order)).sum();
        }
        runs_of(range).map(|run| self.put_back(run, run.frames.count_ones())).sum()
    }

    /// Takes frames of one pageblock, all or none.
    fn take_part(&self, part: Range<u32>, order: Order) -> Result<(), ContigError> {
        A::work(Op::BuddyStep, 1);
        let pinned = PreemptGuard::<A>::new();
        let (block, cpu) = (block_of(part.start), pinned.cpu());
        self.enter_for(block, part.start, cpu)?;
        self.order_hints.note(block, LARGEST_HINT);
        let leave = || {
            self.leave(block, 0);
            self.disown(block, cpu);
        };
        for run in runs_of(part.clone()) {
            // Row 6 of `drain`: the last user of the frames is done with them.
            let used = self.word(run.word).load(Acquire) & run.frames;
            if used != 0 {
                leave();
                return Err(ContigError::InUse(self.frame(run.word, used.trailing_zeros())));
            }
        }
        if order >= Order::PAGEBLOCK {
            // A CPU that has cleared bits is about to subtract them.
            while self.head(block).used() != 0 {
                A::relax();
            }
            let held = Head::fully_used(order, self.head(block).kind());
            // A plain store: other CPUs do not enter or isolate a busy block, and no frame of it is
            // in use, so none can be freed. Pairs with the loads of heads.
            self.heads[block].store(held.0, Release);
            return Ok(());
        }
        for run in runs_of(part.clone()) {
            let word = run.word as usize % WORDS;
            self.mark_used(block, word..word + 1, run.frames);
        }
        self.leave(block, part.len() as u64);
        self.disown(block, cpu);
        Ok(())
    }

    /// Enters a pageblock for the frame `first` of it. Fails if it is held or isolated; waits while
    /// another CPU is inside.
    fn enter_for(&self, block: usize, first: u32, cpu: CpuId) -> Result<(), ContigError> {
        loop {
            let head = self.head(block);
            if head.is_isolated() {
                return Err(ContigError::Isolated(self.pfn(first)));
            }
            if head.is_unowned_free() {
                if self.whole.clear(block) {
                    // A plain store: clearing the index bit made the block this CPU's. Pairs with
                    // the loads of heads.
                    self.heads[block].store(self.head(block).entered_by(cpu).0, Release);
                    return Ok(());
                }
            } else if !head.is_busy() {
                if head.held().is_some() {
                    return Err(ContigError::InUse(self.pfn(first)));
                }
                if self.change(block, head, head.entered_by(cpu)) {
                    return Ok(());
                }
            }
            A::relax();
        }
    }

    /// Frees one held pageblock of a block of `order`.
    fn put_held_part(&self, block: usize, order: Order) -> i64 {
        let head = self.release_held(block, order, None);
        self.file(block, head);
        if head.is_isolated() { 0 } else { BLOCK_PAGES as i64 }
    }
}

/// Iterates over the frames of a range, by word.
pub(super) fn runs_of(range: Range<u32>) -> impl Iterator<Item = Run> {
    let (first, _) = bits::split(range.start);
    let end = if range.is_empty() { first } else { range.end.div_ceil(WORD_PAGES as u32) };
    (first..end).map(move |word| {
        let at = |frame: u32| frame.saturating_sub(bits::join(word, 0)).min(WORD_PAGES as u32);
        let (from, to) = (at(range.start), at(range.end));
        Run { word, frames: !0 >> (WORD_PAGES as u32 - (to - from)) << from }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_range_has_the_frames_of_its_words() {
        let runs = |range: Range<u32>| -> Vec<(u32, u64)> {
            runs_of(range).map(|run| (run.word, run.frames)).collect()
        };
        assert_eq!(runs(3..5), [(0, 0b11000)]);
        assert_eq!(runs(63..129), [(0, 1 << 63), (1, !0), (2, 1)]);
        assert_eq!(runs(64..128), [(1, !0)]);
        assert!(runs_of(64..64).chain(runs_of(70..70)).next().is_none());
    }
}
