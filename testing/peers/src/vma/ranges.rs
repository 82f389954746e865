//! The map of ranges of the crate `rangemap`.

use super::{PAGES, Search, Space};
use rangemap::RangeMap;
use std::marker::PhantomData;

/// [`RangeMap`]. It merges neighbours of equal value, so the programs give every range its own
/// value.
pub struct Ranges<S> {
    map: RangeMap<u64, u64>,
    last: u64,
    search: PhantomData<S>,
}

impl<S: Search> Ranges<S> {
    fn gap_in(&self, pages: u64, from: u64, to: u64) -> Option<u64> {
        if from >= to {
            return None;
        }
        let gap = self.map.gaps(&(from..to)).find(|gap| gap.end - gap.start >= pages);
        gap.map(|gap| gap.start)
    }
}

impl<S: Search> Space for Ranges<S> {
    fn new() -> Self {
        Self { map: RangeMap::new(), last: 0, search: PhantomData }
    }
    #[inline]
    fn map(&mut self, start: u64, end: u64, value: u64) {
        self.map.insert(start..end, value);
    }
    #[inline]
    fn unmap(&mut self, start: u64, end: u64) {
        self.map.remove(start..end);
    }
    #[inline]
    fn find(&self, page: u64) -> Option<(u64, u64)> {
        self.map.overlapping(page..PAGES).next().map(|(range, _)| (range.start, range.end))
    }
    #[inline]
    fn get(&self, page: u64) -> Option<u64> {
        self.map.get(&page).copied()
    }
    fn gap(&mut self, pages: u64, below: u64) -> Option<u64> {
        let from = S::from(self.last).min(below);
        let found = self.gap_in(pages, from, below);
        let found = found.or_else(|| self.gap_in(pages, 0, (from + pages).min(below)))?;
        self.last = found + pages;
        Some(found)
    }
    fn len(&self) -> usize {
        self.map.len()
    }
}
