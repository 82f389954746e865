//! The standard library's map.

use super::{Search, Space};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// Maps a range's end to its start and value, so that one search finds the range that holds a page
/// or the first one after it. It relies on the programs not to map what is mapped.
pub struct BTree<S> {
    map: BTreeMap<u64, (u64, u64)>,
    last: u64,
    search: PhantomData<S>,
}

impl<S: Search> BTree<S> {
    fn gap_in(&self, pages: u64, from: u64, to: u64) -> Option<u64> {
        let mut from = from;
        for (&end, &(start, _)) in self.map.range(from + 1..) {
            if start.min(to).saturating_sub(from) >= pages {
                return Some(from);
            }
            if start >= to {
                return None;
            }
            from = from.max(end);
        }
        (to.saturating_sub(from) >= pages).then_some(from)
    }
}

impl<S: Search> Space for BTree<S> {
    fn new() -> Self {
        Self { map: BTreeMap::new(), last: 0, search: PhantomData }
    }
    #[inline]
    fn map(&mut self, start: u64, end: u64, value: u64) {
        self.map.insert(end, (start, value));
    }
    #[inline]
    fn unmap(&mut self, start: u64, end: u64) {
        while let Some((&old_end, &(old_start, value))) = self.map.range(start + 1..).next() {
            if old_start >= end {
                return;
            }
            if old_end <= end {
                self.map.remove(&old_end);
            } else {
                self.map.insert(old_end, (end, value));
            }
            if old_start < start {
                self.map.insert(start, (old_start, value));
            }
            if old_end >= end {
                return;
            }
        }
    }
    #[inline]
    fn find(&self, page: u64) -> Option<(u64, u64)> {
        self.map.range(page + 1..).next().map(|(&end, &(start, _))| (start, end))
    }
    #[inline]
    fn get(&self, page: u64) -> Option<u64> {
        let (_, &(start, value)) = self.map.range(page + 1..).next()?;
        (start <= page).then_some(value)
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
