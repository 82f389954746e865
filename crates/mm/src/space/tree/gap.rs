//! Finding a gap: the lowest or the highest that is large enough.
//!
//! A subtree that lies wholly inside the window and knows a gap of the size has the answer; one
//! that does not is skipped. Only the subtrees at the window's edges can disappoint, one on each
//! level, so both searches are O(log n).
//!
//! With an alignment of a pages a gap of `pages + a - 1` fits wherever it lies. The lowest (or
//! highest) gap of that size is taken. Only when there is none, gaps of at least `pages` are tried
//! one by one: some may happen to lie right.

use super::node::{Item, Node};
use super::{TreeWord, VmaTree};
use crate::space::{VmaRange, Vpn};

/// What is asked of a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapRequest {
    /// Pages, at least 1.
    pub pages: u64,
    /// The first page's number is a multiple of this power of two, in pages.
    pub align_pages: u64,
    /// All pages are in here.
    pub within: VmaRange,
}

impl GapRequest {
    /// `pages` pages anywhere.
    pub const fn new(pages: u64) -> Self {
        Self { pages, align_pages: 1, within: VmaRange::USER }
    }
    /// At a multiple of `align_pages`.
    #[must_use]
    pub const fn aligned(self, align_pages: u64) -> Self {
        Self { align_pages, ..self }
    }
    /// Inside `within`.
    #[must_use]
    pub const fn within(self, within: VmaRange) -> Self {
        Self { within, ..self }
    }
}

/// A request made ready. All numbers are pages.
struct Want {
    pages: u64,
    /// Alignment minus 1.
    mask: u64,
    /// A gap of at least this size is tried.
    size: u64,
    low: u64,
    high: u64,
}

impl Want {
    /// The lowest fitting place in the gap `from .. to`, as far as it is inside the window.
    #[inline]
    fn lowest(&self, from: u64, to: u64) -> Option<u64> {
        let (from, to) = (from.max(self.low), to.min(self.high));
        if to.saturating_sub(from) < self.size {
            return None;
        }
        let start = (from + self.mask) & !self.mask;
        (start + self.pages <= to).then_some(start)
    }
    /// The highest one.
    #[inline]
    fn highest(&self, from: u64, to: u64) -> Option<u64> {
        let (from, to) = (from.max(self.low), to.min(self.high));
        if to.saturating_sub(from) < self.size {
            return None;
        }
        let start = (to - self.pages) & !self.mask;
        (start >= from).then_some(start)
    }
    /// Whether the inside of `child` may hold such a gap, in the window.
    #[inline]
    fn may_hold(&self, child: Item) -> bool {
        child.gap() >= self.size && child.end > self.low && child.start < self.high
    }
}

impl<V: TreeWord> VmaTree<V> {
    /// The free pages of `request` that lie lowest. `None` when there are none, and for a request
    /// that makes no sense: no pages, or an alignment that is no power of two.
    pub fn lowest_gap(&self, request: &GapRequest) -> Option<VmaRange> {
        search(request, |want| self.lowest_in_all(want))
    }
    /// The free pages of `request` that lie highest. `None` as for [`VmaTree::lowest_gap`].
    pub fn highest_gap(&self, request: &GapRequest) -> Option<VmaRange> {
        search(request, |want| self.highest_in_all(want))
    }
    fn lowest_in_all(&self, want: &Want) -> Option<u64> {
        if self.height == 0 {
            return want.lowest(want.low, want.high);
        }
        let root = self.node(self.root);
        let inside = self.lowest_in(root, self.height - 1, want.low, want);
        inside.or_else(|| want.lowest(root.end(root.len() - 1), want.high))
    }
    /// The lowest fitting place that ends before the last VMA of `node`. Pages before its first
    /// one are free from `from` on.
    fn lowest_in(&self, node: &Node, level: usize, from: u64, want: &Want) -> Option<u64> {
        let first = node.first_ending_after(want.low);
        let mut from = if first == 0 { from } else { node.end(first - 1) };
        for at in first..node.len() {
            let item = node.item(at);
            if let Some(start) = want.lowest(from, item.start) {
                return Some(start);
            }
            if item.start >= want.high {
                return None;
            }
            if level > 0 && want.may_hold(item) {
                let child = self.node(item.child());
                let found = self.lowest_in(child, level - 1, item.start, want);
                if found.is_some() {
                    return found;
                }
            }
            from = item.end;
        }
        None
    }
    fn highest_in_all(&self, want: &Want) -> Option<u64> {
        if self.height == 0 {
            return want.highest(want.low, want.high);
        }
        let root = self.node(self.root);
        let inside = self.highest_in(root, self.height - 1, want.high, want);
        inside.or_else(|| want.highest(want.low, root.start(0)))
    }
    /// The highest fitting place that starts after the first VMA of `node`. Pages after its last
    /// one are free up to `to`.
    fn highest_in(&self, node: &Node, level: usize, to: u64, want: &Want) -> Option<u64> {
        let end = node.starting_before(want.high);
        let mut to = if end == node.len() { to } else { node.start(end) };
        for at in (0..end).rev() {
            let item = node.item(at);
            if let Some(start) = want.highest(item.end, to) {
                return Some(start);
            }
            if item.end <= want.low {
                return None;
            }
            if level > 0 && want.may_hold(item) {
                let child = self.node(item.child());
                let found = self.highest_in(child, level - 1, item.end, want);
                if found.is_some() {
                    return found;
                }
            }
            to = item.start;
        }
        None
    }
}

/// Searches for a gap that fits anyhow, then for one that happens to.
fn search(request: &GapRequest, find: impl Fn(&Want) -> Option<u64>) -> Option<VmaRange> {
    let &GapRequest { pages, align_pages, within } = request;
    if pages == 0 || !align_pages.is_power_of_two() || pages > within.pages() {
        return None;
    }
    let mask = align_pages - 1;
    let (low, high) = (within.start().get(), within.end().get());
    if mask > high {
        // Page 0 is the only one with such an alignment.
        let zero = Want { pages, mask: 0, size: pages, low, high: pages };
        return find(&zero).filter(|&start| start == 0).map(|_| VmaRange::raw(0, pages));
    }
    let mut want = Want { pages, mask, size: pages + mask, low, high };
    let start = find(&want).or_else(|| {
        want.size = pages;
        if mask == 0 { None } else { find(&want) }
    })?;
    VmaRange::with_pages(Vpn::new(start), pages)
}
