//! Addresses of the kernel's own range: free, in use, or in limbo.

use crate::arch::{VmaRange, Vpn};
use alloc::vec::Vec;

/// Addresses that nothing is mapped at any more, but that a CPU may still translate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lazy {
    pub(super) range: VmaRange,
    /// Flushes of the kernel's range that had begun when it was unmapped: a later one frees it.
    pub(super) generation: u64,
    pub(super) since_ns: u64,
}

/// All of them. No locks.
pub(super) struct Ranges {
    /// Free stretches, by address; no two touch.
    free: Vec<VmaRange>,
    lazy: Vec<Lazy>,
    pub(super) lazy_pages: u64,
    /// Flushes that have begun.
    pub(super) generation: u64,
}

impl Ranges {
    pub(super) fn new(whole: VmaRange) -> Self {
        let mut free = Vec::with_capacity(64);
        free.push(whole);
        Self { free, lazy: Vec::with_capacity(64), lazy_pages: 0, generation: 0 }
    }
    /// The lowest stretch of `pages` pages that is free.
    pub(super) fn take(&mut self, pages: u64) -> Option<VmaRange> {
        let at = self.free.iter().position(|range| range.pages() >= pages)?;
        let from = self.free[at];
        let taken = VmaRange::with_pages(from.start(), pages)?;
        match VmaRange::new(taken.end(), from.end()) {
            Some(rest) => self.free[at] = rest,
            None => drop(self.free.remove(at)),
        }
        Some(taken)
    }
    /// Nothing is mapped there any more.
    pub(super) fn defer(&mut self, range: VmaRange, now_ns: u64) {
        let generation = self.generation;
        self.lazy.push(Lazy { range, generation, since_ns: now_ns });
        self.lazy_pages += range.pages();
    }
    /// A flush is about to begin: its number, and the stretch from the first to the last page that
    /// it has to be for. `None`: there is nothing in limbo.
    pub(super) fn begin_flush(&mut self) -> Option<(u64, VmaRange)> {
        let start = self.lazy.iter().map(|lazy| lazy.range.start()).min()?;
        let end = self.lazy.iter().map(|lazy| lazy.range.end()).max()?;
        self.generation += 1;
        VmaRange::new(start, end).map(|hull| (self.generation, hull))
    }
    /// The flush of that number has ended: what was in limbo when it began is free. Returns when
    /// the oldest of it got there, in ns.
    pub(super) fn end_flush(&mut self, generation: u64) -> Option<u64> {
        let mut oldest = None;
        let mut at = 0;
        while at < self.lazy.len() {
            if self.lazy[at].generation >= generation {
                at += 1;
                continue;
            }
            let Lazy { range, since_ns, .. } = self.lazy.swap_remove(at);
            self.lazy_pages -= range.pages();
            oldest = Some(oldest.map_or(since_ns, |before: u64| before.min(since_ns)));
            self.give(range);
        }
        oldest
    }
    /// `range` is free, and joins its neighbours.
    fn give(&mut self, range: VmaRange) {
        let at = self.free.partition_point(|free| free.start() < range.start());
        let (mut start, mut end) = (range.start(), range.end());
        let mut joined = at..at;
        if let Some(before) = at.checked_sub(1).map(|before| self.free[before]) {
            assert!(before.end() <= start, "addresses are freed twice");
            if before.end() == start {
                (start, joined.start) = (before.start(), at - 1);
            }
        }
        if let Some(after) = self.free.get(at) {
            assert!(end <= after.start(), "addresses are freed twice");
            if after.start() == end {
                (end, joined.end) = (after.end(), at + 1);
            }
        }
        self.free.splice(joined, VmaRange::new(start, end));
    }
    /// Pages of all free stretches, and how many of these there are.
    pub(super) fn free(&self) -> (u64, usize) {
        (self.free.iter().map(|range| range.pages()).sum(), self.free.len())
    }
}

/// The smallest number of pages that limbo has room for on `cpus` CPUs: 32 MiB for each doubling
/// (`lazy_max_pages` of Linux: a flush costs more the more CPUs there are).
pub(super) fn lazy_max_pages(cpus: usize) -> u64 {
    const STEP: u64 = 32 << (20 - crate::arch::PAGE_SHIFT);
    u64::from(usize::BITS - cpus.leading_zeros()) * STEP
}

/// Where the kernel maps: 8 GiB of addresses, which no page of a program stands for, as
/// translations are told apart by address space.
pub(super) const KERNEL_RANGE: (Vpn, u64) = (Vpn::new(1 << 30), 1 << 21);

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, pages: u64) -> VmaRange {
        VmaRange::with_pages(Vpn::new(start), pages).unwrap()
    }

    #[test]
    fn addresses_are_free_only_after_a_flush_that_began_later() {
        let mut ranges = Ranges::new(range(100, 10));
        assert_eq!(ranges.take(4), Some(range(100, 4)));
        assert_eq!((ranges.take(6), ranges.take(1)), (Some(range(104, 6)), None));
        ranges.defer(range(100, 4), 7);
        let (first, hull) = ranges.begin_flush().unwrap();
        assert_eq!(hull, range(100, 4));
        // Unmapped while the flush is under way: it may have passed a CPU by then.
        ranges.defer(range(104, 2), 9);
        assert_eq!((ranges.take(1), ranges.lazy_pages), (None, 6));
        assert_eq!(ranges.end_flush(first), Some(7));
        assert_eq!((ranges.lazy_pages, ranges.free()), (2, (4, 1)));
        assert_eq!(ranges.take(5), None);
        let (second, hull) = ranges.begin_flush().unwrap();
        assert_eq!((hull, ranges.end_flush(second)), (range(104, 2), Some(9)));
        assert_eq!((ranges.free(), ranges.begin_flush()), ((6, 1), None));
    }

    #[test]
    fn stretches_join_their_neighbours() {
        let mut ranges = Ranges::new(range(0, 9));
        let parts: Vec<_> = (0..3).map(|_| ranges.take(3).unwrap()).collect();
        for (nth, free) in [(0, 1), (2, 2), (1, 1)] {
            ranges.give(parts[nth]);
            assert_eq!(ranges.free().1, free);
        }
        assert_eq!(ranges.take(9), Some(range(0, 9)));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn addresses_are_not_freed_twice() {
        let mut ranges = Ranges::new(range(0, 9));
        ranges.give(range(3, 1));
    }

    #[test]
    fn limbo_has_room_for_more_on_more_cpus() {
        assert_eq!([1, 2, 16, 512].map(lazy_max_pages), [8192, 16384, 40960, 81920]);
    }
}
