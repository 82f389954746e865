//! A simple model of an address space, run in parallel with the tree.

use mmscale_mm::space::{GapRequest, InsertError, VmaEntry, VmaRange, VmaTree, Vpn};
use std::collections::BTreeMap;

pub(crate) fn page(index: u64) -> Vpn {
    Vpn::new(index)
}

pub(crate) fn range(start: u64, end: u64) -> VmaRange {
    VmaRange::new(page(start), page(end)).expect("a test's range makes sense")
}

/// Start to end and value.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Model(pub(crate) BTreeMap<u64, (u64, u64)>);

fn entry((&start, &(end, value)): (&u64, &(u64, u64))) -> VmaEntry<u64> {
    VmaEntry { range: range(start, end), value }
}

impl Model {
    pub(crate) fn find(&self, at: Vpn) -> Option<VmaEntry<u64>> {
        self.get(at).or_else(|| self.0.range(at.get()..).next().map(entry))
    }
    pub(crate) fn find_before(&self, at: Vpn) -> Option<VmaEntry<u64>> {
        self.0.range(..at.get()).next_back().map(entry)
    }
    pub(crate) fn get(&self, at: Vpn) -> Option<VmaEntry<u64>> {
        let below = self.0.range(..=at.get()).next_back().map(entry);
        below.filter(|entry| entry.range.contains(at))
    }
    pub(crate) fn in_range(&self, over: VmaRange) -> Vec<VmaEntry<u64>> {
        let first = self.get(over.start()).map_or(over.start(), |entry| entry.range.start());
        self.0.range(first.get()..over.end().get()).map(entry).collect()
    }
    pub(crate) fn insert(&mut self, new: VmaRange, value: u64) -> Result<(), InsertError> {
        if !self.in_range(new).is_empty() {
            return Err(InsertError::Overlap);
        }
        self.0.insert(new.start().get(), (new.end().get(), value));
        Ok(())
    }
    pub(crate) fn remove(&mut self, at: Vpn) -> Option<VmaEntry<u64>> {
        let found = self.get(at)?;
        self.0.remove(&found.range.start().get());
        Some(found)
    }
    pub(crate) fn replace(&mut self, at: Vpn, value: u64) -> Option<u64> {
        let found = self.get(at)?;
        self.0.insert(found.range.start().get(), (found.range.end().get(), value));
        Some(found.value)
    }
    /// Returns `Some(false)` if a neighbour is in the way.
    pub(crate) fn resize(&mut self, at: Vpn, to: VmaRange) -> Option<bool> {
        let found = self.get(at)?;
        let before = self.find_before(found.range.start()).map_or(page(0), |e| e.range.end());
        let after = self.find(found.range.end()).map_or(Vpn::USER_END, |e| e.range.start());
        let fits = to.start() >= before && to.end() <= after;
        if fits {
            self.0.remove(&found.range.start().get());
            self.0.insert(to.start().get(), (to.end().get(), found.value));
        }
        Some(fits)
    }
    pub(crate) fn split(&mut self, at: Vpn, upper: u64) -> bool {
        let Some(found) = self.get(at).filter(|found| found.range.start() < at) else {
            return false;
        };
        self.0.insert(found.range.start().get(), (at.get(), found.value));
        self.0.insert(at.get(), (found.range.end().get(), upper));
        true
    }
    pub(crate) fn merge(&mut self, at: Vpn) -> bool {
        let low = self.find_before(at).filter(|low| low.range.end() == at);
        let (Some(low), Some(&(end, _))) = (low, self.0.get(&at.get())) else { return false };
        self.0.remove(&at.get());
        self.0.insert(low.range.start().get(), (end, low.value));
        true
    }
    /// The gaps in a window, lowest first.
    pub(crate) fn gaps(&self, within: VmaRange) -> Vec<(u64, u64)> {
        let mut from = within.start().get();
        let mut gaps = Vec::new();
        for entry in self.in_range(within) {
            gaps.push((from, entry.range.start().get()));
            from = entry.range.end().get();
        }
        gaps.push((from, within.end().get()));
        gaps.retain(|&(from, to)| from < to);
        gaps
    }
    /// The results that [`VmaTree::lowest_gap`] and [`VmaTree::highest_gap`] must return.
    pub(crate) fn fits(&self, request: &GapRequest) -> (Option<VmaRange>, Option<VmaRange>) {
        let &GapRequest { pages, align_pages, within } = request;
        let gaps = self.gaps(within);
        for size in [pages + align_pages - 1, pages] {
            let large = gaps.iter().filter(|&&(from, to)| to - from >= size);
            let lowest = large.clone().find_map(|&(from, to)| {
                let start = from.next_multiple_of(align_pages);
                (start + pages <= to).then_some(start)
            });
            let highest = large.rev().find_map(|&(from, to)| {
                let start = (to - pages) / align_pages * align_pages;
                (start >= from).then_some(start)
            });
            if let (Some(lowest), Some(highest)) = (lowest, highest) {
                let at = |start| VmaRange::with_pages(page(start), pages);
                return (at(lowest), at(highest));
            }
        }
        (None, None)
    }
    pub(crate) fn assert_same(&self, tree: &VmaTree<u64>) {
        let audit = tree.verify().expect("the tree is whole");
        assert_eq!(audit.vmas, self.0.len());
        assert!(tree.iter().eq(self.0.iter().map(entry)));
        assert!(tree.iter().rev().eq(self.0.iter().rev().map(entry)));
    }
}
