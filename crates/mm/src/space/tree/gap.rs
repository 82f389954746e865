//! Finding the lowest or the highest gap that is large enough.
//!
//! A subtree that lies inside the window and has a gap of the size contains the answer; a subtree
//! without such a gap is skipped. Only the subtrees at the window's edges can fail, one at each
//! level, so both searches are O(log n).
//!
//! With an alignment of a pages, a gap of `pages + a - 1` always suffices. The lowest (or highest)
//! gap of that size is taken. Only if there is none, gaps of at least `pages` are tried one by one:
//! some may be aligned by chance.

use super::node::{Item, Node};
use super::{TreeWord, VmaTree};
use crate::space::{VmaRange, Vpn};

/// The arguments of a search for a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapRequest {
    /// The number of pages, at least 1.
    pub pages: u64,
    /// The first page's number is a multiple of this power of two, in pages.
    pub align_pages: u64,
    /// All pages are inside this range.
    pub within: VmaRange,
}

impl GapRequest {
    /// `pages` pages anywhere.
    pub const fn new(pages: u64) -> Self {
        Self { pages, align_pages: 1, within: VmaRange::USER }
    }
    /// Sets the alignment, in pages.
    #[must_use]
    pub const fn aligned(self, align_pages: u64) -> Self {
        Self { align_pages, ..self }
    }
    /// Sets the range to search.
    #[must_use]
    pub const fn within(self, within: VmaRange) -> Self {
        Self { within, ..self }
    }
}

/// A prepared request. All numbers are pages.
struct GapSearch {
    pages: u64,
    /// Alignment minus 1.
    mask: u64,
    /// The smallest gap that is tried.
    size: u64,
    low: u64,
    high: u64,
}

impl GapSearch {
    /// The lowest fitting page in the gap `from .. to`, inside the window.
    #[inline]
    fn lowest(&self, from: u64, to: u64) -> Option<u64> {
        let (from, to) = (from.max(self.low), to.min(self.high));
        if to.saturating_sub(from) < self.size {
            return None;
        }
        let start = (from + self.mask) & !self.mask;
        (start + self.pages <= to).then_some(start)
    }
    /// The highest fitting page in the gap `from .. to`, inside the window.
    #[inline]
    fn highest(&self, from: u64, to: u64) -> Option<u64> {
        let (from, to) = (from.max(self.low), to.min(self.high));
        if to.saturating_sub(from) < self.size {
            return None;
        }
        let start = (to - self.pages) & !self.mask;
        (start >= from).then_some(start)
    }
    /// Whether `child` may contain such a gap, inside the window.
    #[inline]
    fn may_hold(&self, child: Item) -> bool {
        child.gap() >= self.size && child.end > self.low && child.start < self.high
    }
}

impl<V: TreeWord> VmaTree<V> {
    /// Returns the lowest free range for `request`. `None` if there is none, or for an invalid
    /// request: no pages, or an alignment that is not a power of two.
    pub fn lowest_gap(&self, request: &GapRequest) -> Option<VmaRange> {
        find_gap(request, |search| self.lowest_in_all(search))
    }
    /// Returns the highest free range for `request`. `None` as for [`VmaTree::lowest_gap`].
    pub fn highest_gap(&self, request: &GapRequest) -> Option<VmaRange> {
        find_gap(request, |search| self.highest_in_all(search))
    }
    fn lowest_in_all(&self, search: &GapSearch) -> Option<u64> {
        if self.height == 0 {
            return search.lowest(search.low, search.high);
        }
        let root = self.node(self.root);
        let inside = self.lowest_in(root, self.height - 1, search.low, search);
        inside.or_else(|| search.lowest(root.end(root.len() - 1), search.high))
    }
    /// The lowest fitting page before the last VMA of `node`. Pages from `from` to its first VMA
    /// are free.
    fn lowest_in(&self, node: &Node, level: usize, from: u64, search: &GapSearch) -> Option<u64> {
        let first = node.first_ending_after(search.low);
        let mut from = if first == 0 { from } else { node.end(first - 1) };
        for at in first..node.len() {
            let item = node.item(at);
            if let Some(start) = search.lowest(from, item.start) {
                return Some(start);
            }
            if item.start >= search.high {
                return None;
            }
            if level > 0 && search.may_hold(item) {
                let child = self.node(item.child());
                let found = self.lowest_in(child, level - 1, item.start, search);
                if found.is_some() {
                    return found;
                }
            }
            from = item.end;
        }
        None
    }
    fn highest_in_all(&self, search: &GapSearch) -> Option<u64> {
        if self.height == 0 {
            return search.highest(search.low, search.high);
        }
        let root = self.node(self.root);
        let inside = self.highest_in(root, self.height - 1, search.high, search);
        inside.or_else(|| search.highest(search.low, root.start(0)))
    }
    /// The highest fitting page after the first VMA of `node`. Pages from its last VMA to `to` are
    /// free.
    fn highest_in(&self, node: &Node, level: usize, to: u64, search: &GapSearch) -> Option<u64> {
        let end = node.starting_before(search.high);
        let mut to = if end == node.len() { to } else { node.start(end) };
        for at in (0..end).rev() {
            let item = node.item(at);
            if let Some(start) = search.highest(item.end, to) {
                return Some(start);
            }
            if item.end <= search.low {
                return None;
            }
            if level > 0 && search.may_hold(item) {
                let child = self.node(item.child());
                let found = self.highest_in(child, level - 1, item.end, search);
                if found.is_some() {
                    return found;
                }
            }
            to = item.start;
        }
        None
    }
}

/// Searches for a gap that fits with any offset, then for one that is aligned by chance.
fn find_gap(request: &GapRequest, find: impl Fn(&GapSearch) -> Option<u64>) -> Option<VmaRange> {
    let &GapRequest { pages, align_pages, within } = request;
    if pages == 0 || !align_pages.is_power_of_two() || pages > within.pages() {
        return None;
    }
    let mask = align_pages - 1;
    let (low, high) = (within.start().get(), within.end().get());
    if mask > high {
        // Page 0 is the only one with such an alignment.
        let zero = GapSearch { pages, mask: 0, size: pages, low, high: pages };
        return find(&zero).filter(|&start| start == 0).map(|_| VmaRange::raw(0, pages));
    }
    let mut search = GapSearch { pages, mask, size: pages + mask, low, high };
    let start = find(&search).or_else(|| {
        search.size = pages;
        if mask == 0 { None } else { find(&search) }
    })?;
    VmaRange::with_pages(Vpn::new(start), pages)
}
