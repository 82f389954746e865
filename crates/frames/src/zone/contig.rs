//! Taking named frames from the free lists. All functions are called under the zone lock.

use super::areas::End;
use super::{Buddy, ContigError};
use crate::frame::{FrameState, FrameTable};
use core::ops::Range;
use mmscale_arch::{Cpu, Op, Order, Pfn};

impl<A: Cpu> Buddy<A> {
    /// Takes the frames of `range`, all of which are of the zone, as allocated blocks of order
    /// `piece`, of which the range is a multiple. Takes all or nothing.
    pub(crate) fn take_range(
        &mut self,
        frames: &FrameTable,
        range: Range<usize>,
        piece: Order,
    ) -> Result<(), ContigError> {
        for block in range.clone().step_by(self.geometry.block_pages()).chain([range.end - 1]) {
            if self.isolation(Pfn::new(block)) != 0 {
                let first = Pfn::new(block).align_down(self.geometry.pageblock);
                return Err(ContigError::Isolated(first.max(Pfn::new(range.start))));
            }
        }
        for block in range.clone().step_by(self.geometry.max.pages()).chain([range.end - 1]) {
            self.use_until(frames, block as u32);
        }
        let mut at = range.start;
        while at < range.end {
            let (head, order) = self
                .free_block_of(frames, Pfn::new(at))
                .ok_or_else(|| ContigError::InUse(Pfn::new(at)))?;
            at = head.index() + order.pages();
        }
        let mut at = range.start;
        while at < range.end
            && let Some((head, order)) = self.free_block_of(frames, Pfn::new(at))
        {
            at = head.index() + order.pages();
            let list_type = frames.word(head).list();
            self.unlink(frames, head, order, list_type);
            frames.set_inside(head);
            for rest in [head.index()..range.start, range.end..at] {
                for (pfn, order) in blocks_of(rest, self.geometry.max) {
                    self.link(frames, pfn, order, list_type, End::Front);
                }
            }
        }
        for pfn in range.step_by(piece.pages()).map(Pfn::new) {
            if piece > self.geometry.pageblock {
                self.set_block_type(pfn, piece, self.block_type(pfn));
            }
            self.hand_out(frames, pfn, piece, self.block_type(pfn), FrameState::Held);
        }
        Ok(())
    }

    /// The free block on a list that has `pfn`.
    fn free_block_of(&self, frames: &FrameTable, pfn: Pfn) -> Option<(Pfn, Order)> {
        A::work(Op::BuddyStep, 1);
        self.geometry.orders().find_map(|order| {
            let head = pfn.align_down(order);
            let word = self.spans(head, Order::ZERO).then(|| frames.word(head))?;
            let has = word.state() == FrameState::Free && word.order() >= order;
            has.then(|| (head, word.order()))
        })
    }
}

/// The largest aligned blocks that a range of frames consists of, none larger than `max`.
pub(crate) fn blocks_of(range: Range<usize>, max: Order) -> impl Iterator<Item = (Pfn, Order)> {
    let mut at = range.start;
    core::iter::from_fn(move || {
        let left = range.end.checked_sub(at)?.checked_ilog2()?;
        let fits = left.min(at.trailing_zeros()).min(max.get().into());
        let block = (Pfn::new(at), Order::large(fits as u8).unwrap_or(max));
        at += 1 << fits;
        Some(block)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_consists_of_its_largest_blocks() {
        let blocks = |range| -> alloc::vec::Vec<(usize, u8)> {
            blocks_of(range, Order::MAX).map(|(pfn, order)| (pfn.index(), order.get())).collect()
        };
        assert_eq!(blocks(5..13), [(5, 0), (6, 1), (8, 2), (12, 0)]);
        assert_eq!(blocks(0..3072), [(0, 10), (1024, 10), (2048, 10)]);
        assert_eq!(blocks(7..7), []);
        assert_eq!(blocks(Range { start: 9, end: 7 }), []);
    }
}
