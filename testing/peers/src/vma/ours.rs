//! The tree of this workspace.

use super::Space;
use mmscale_mm::space::{GapRequest, VmaRange, VmaTree, Vpn};

/// [`VmaTree`], with overlaps checked and nodes reserved as in a kernel.
pub struct Ours(VmaTree<u64>);

fn range(start: u64, end: u64) -> VmaRange {
    VmaRange::new(Vpn::new(start), Vpn::new(end)).expect("the programs stay in the address space")
}

impl Space for Ours {
    fn new() -> Self {
        Self(VmaTree::new())
    }
    #[inline]
    fn map(&mut self, start: u64, end: u64, value: u64) {
        self.0.insert(range(start, end), value).expect("the programs map free pages");
    }
    #[inline]
    fn unmap(&mut self, start: u64, end: u64) {
        let gone = range(start, end);
        let mut edit = self.0.edit(1).expect("this computer has memory for a node");
        while let Some(vma) = edit.at_first_in(gone) {
            let old = vma.entry().range;
            let cut = if gone.covers(old) {
                vma.remove();
                Ok(old)
            } else if old.end() <= gone.end() {
                vma.resize(range(old.start().get(), start))
            } else if old.start() >= gone.start() {
                vma.resize(range(end, old.end().get()))
            } else {
                vma.split(gone.end(), |value| value);
                continue;
            };
            cut.expect("a shorter VMA keeps its place");
            if old.end() >= gone.end() {
                return;
            }
        }
    }
    #[inline]
    fn find(&self, page: u64) -> Option<(u64, u64)> {
        let found = self.0.find(Vpn::new(page))?;
        Some((found.range.start().get(), found.range.end().get()))
    }
    #[inline]
    fn get(&self, page: u64) -> Option<u64> {
        self.0.get(Vpn::new(page)).map(|entry| entry.value)
    }
    #[inline]
    fn gap(&mut self, pages: u64, below: u64) -> Option<u64> {
        let request = GapRequest::new(pages).within(range(0, below));
        self.0.lowest_gap(&request).map(|found| found.start().get())
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}
