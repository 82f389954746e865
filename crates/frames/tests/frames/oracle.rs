//! A simple model of the held blocks.

use mmscale_arch::{Cpu as _, Ipi, Order, Pfn};
use mmscale_frames::page_alloc::FrameAllocator;
use mmscale_stepped::{self as stepped, Stepped};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Factor of the number of operations: `MMSCALE_DEPTH`, 1 unless set. With 1 these tests do more
/// than a million operations, with 10 more than ten million.
///
/// Panics unless it is a number above 0.
pub(crate) fn depth() -> usize {
    let Ok(text) = std::env::var("MMSCALE_DEPTH") else { return 1 };
    let depth = text.parse().ok().filter(|&depth: &usize| depth > 0);
    depth.unwrap_or_else(|| panic!("MMSCALE_DEPTH is {text}: a number above 0 is required"))
}

/// Lets the other CPUs handle drain requests while one CPU waits for them.
pub(crate) fn answer_drains(allocator: &Rc<FrameAllocator<Stepped>>) {
    let allocator = Rc::clone(allocator);
    stepped::on_relax(move || {
        let back = Stepped::cpu().index();
        for (cpu, reason) in stepped::take_ipis() {
            assert_eq!(reason, Ipi::DrainPages);
            stepped::set_cpu(cpu.index());
            stepped::interrupt(|| allocator.drain_ipi());
        }
        stepped::set_cpu(back);
    });
}

/// The held blocks.
#[derive(Default)]
pub(crate) struct Oracle {
    /// First frame -> order; no two blocks overlap.
    blocks: BTreeMap<usize, Order>,
    keys: Vec<usize>,
    pub(crate) pages: u64,
}

impl Oracle {
    /// Adds a block. Panics if it is not aligned, or if a part of it is held already.
    pub(crate) fn add(&mut self, pfn: Pfn, order: Order) {
        let (start, end) = (pfn.index(), pfn.index() + order.pages());
        assert!(pfn.is_aligned(order), "block at {start} of order {} is not aligned", order.get());
        if let Some((&before, size)) = self.blocks.range(..end).next_back() {
            assert!(before + size.pages() <= start, "block at {start} overlaps one at {before}");
        }
        self.blocks.insert(start, order);
        self.keys.push(start);
        self.pages += order.pages() as u64;
    }
    /// Removes one of the blocks, selected by `choice`.
    pub(crate) fn take(&mut self, choice: usize) -> Option<(Pfn, Order)> {
        if self.keys.is_empty() {
            return None;
        }
        let start = self.keys.swap_remove(choice % self.keys.len());
        let order = self.blocks.remove(&start).unwrap();
        self.pages -= order.pages() as u64;
        Some((Pfn::new(start), order))
    }
    /// The number of held pages in blocks that begin among the `pages` frames from `start` up.
    pub(crate) fn held_within(&self, start: Pfn, pages: u32) -> u64 {
        let range = start.index()..start.index() + pages as usize;
        self.blocks.range(range).map(|(_, order)| order.pages() as u64).sum()
    }
    /// Iterates over all blocks: first frame and order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (usize, Order)> {
        self.blocks.iter().map(|(&start, &order)| (start, order))
    }
    /// The number of held pages among the `pages` frames that begin with `start`, also of blocks
    /// that are only partly in that range.
    pub(crate) fn held_of(&self, start: Pfn, pages: usize) -> u64 {
        let (from, to) = (start.index(), start.index() + pages);
        let near = self.blocks.range(..to).rev();
        let parts = near.map(|(&first, order)| (first, first + order.pages()));
        let inside = parts.take_while(|&(_, end)| end + Order::MAX.pages() > from);
        inside.map(|(first, end)| end.min(to).saturating_sub(first.max(from)) as u64).sum()
    }
    /// The number of held blocks.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

fn order(value: u8) -> Order {
    Order::new(value).unwrap()
}

#[test]
#[should_panic(expected = "block at 6 overlaps one at 4")]
fn frames_given_to_two_are_caught() {
    let mut oracle = Oracle::default();
    oracle.add(Pfn::new(4), order(2));
    oracle.add(Pfn::new(6), order(0));
}

#[test]
#[should_panic(expected = "block at 0 overlaps one at 4")]
fn a_larger_block_over_a_smaller_one_is_caught() {
    let mut oracle = Oracle::default();
    oracle.add(Pfn::new(4), order(0));
    oracle.add(Pfn::new(0), order(3));
}

#[test]
#[should_panic(expected = "block at 6 of order 2 is not aligned")]
fn a_block_that_does_not_start_at_a_multiple_is_caught() {
    Oracle::default().add(Pfn::new(6), order(2));
}
