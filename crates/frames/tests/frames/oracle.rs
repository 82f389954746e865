//! Who has which frames, by the simplest means.

use mmscale_arch::{Cpu as _, Ipi, Order, Pfn};
use mmscale_frames::page_alloc::FrameAllocator;
use mmscale_stepped::{self as stepped, Stepped};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How many times as many operations as usual to try: `MMSCALE_DEPTH`, 1 unless set. A usual run
/// of these tests is more than a million operations, one with 10 more than ten million.
///
/// Panics if it is no number above 0.
pub(crate) fn depth() -> usize {
    let Ok(text) = std::env::var("MMSCALE_DEPTH") else { return 1 };
    let depth = text.parse().ok().filter(|&depth: &usize| depth > 0);
    depth.unwrap_or_else(|| panic!("MMSCALE_DEPTH is {text}: give a number above 0"))
}

/// Lets the other CPUs answer when one of them waits for what they keep.
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

/// The blocks that somebody holds.
#[derive(Default)]
pub(crate) struct Oracle {
    /// First frame -> order; no two blocks overlap.
    blocks: BTreeMap<usize, Order>,
    keys: Vec<usize>,
    pub(crate) pages: u64,
}

impl Oracle {
    /// Panics if the block is askew, or if somebody holds a part of it.
    pub(crate) fn add(&mut self, pfn: Pfn, order: Order) {
        let (start, end) = (pfn.index(), pfn.index() + order.pages());
        assert!(pfn.is_aligned(order), "block at {start} of order {} is askew", order.get());
        if let Some((&before, size)) = self.blocks.range(..end).next_back() {
            assert!(before + size.pages() <= start, "block at {start} overlaps one at {before}");
        }
        self.blocks.insert(start, order);
        self.keys.push(start);
        self.pages += order.pages() as u64;
    }
    /// Takes one of the blocks away, `choice` says which.
    pub(crate) fn take(&mut self, choice: usize) -> Option<(Pfn, Order)> {
        if self.keys.is_empty() {
            return None;
        }
        let start = self.keys.swap_remove(choice % self.keys.len());
        let order = self.blocks.remove(&start).unwrap();
        self.pages -= order.pages() as u64;
        Some((Pfn::new(start), order))
    }
    /// Pages held from frame `start` on, `pages` in number.
    pub(crate) fn held_within(&self, start: Pfn, pages: u32) -> u64 {
        let range = start.index()..start.index() + pages as usize;
        self.blocks.range(range).map(|(_, order)| order.pages() as u64).sum()
    }
    /// All blocks: first frame and size.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (usize, Order)> {
        self.blocks.iter().map(|(&start, &order)| (start, order))
    }
    /// Pages held of the frames from `start` on, `pages` in number, also of blocks that only
    /// partly lie there.
    pub(crate) fn held_of(&self, start: Pfn, pages: usize) -> u64 {
        let (from, to) = (start.index(), start.index() + pages);
        let near = self.blocks.range(..to).rev();
        let parts = near.map(|(&first, order)| (first, first + order.pages()));
        let inside = parts.take_while(|&(_, end)| end + Order::MAX.pages() > from);
        inside.map(|(first, end)| end.min(to).saturating_sub(first.max(from)) as u64).sum()
    }
    /// Blocks held.
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
#[should_panic(expected = "block at 6 of order 2 is askew")]
fn a_block_that_does_not_start_at_a_multiple_is_caught() {
    Oracle::default().add(Pfn::new(6), order(2));
}
