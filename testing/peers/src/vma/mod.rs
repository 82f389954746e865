//! The VMA tree beside maps that others would take for it.
//!
//! All run the same programs over the same ranges of pages. A search for a gap is part of only one
//! of them: the maps know no gaps and have to go along, from the start or from where they found
//! the last one.

mod btree;
mod ours;
mod program;
mod ranges;
mod round;

pub use btree::BTree;
pub use ours::Ours;
pub use program::{Layout, Load, Program, Random};
pub use ranges::Ranges;
pub use round::{Entry, Row, render, run};

/// Pages in all: a user address space of 2^47 bytes.
pub const PAGES: u64 = 1 << 35;

/// Where a map without knowledge of gaps starts to look for one.
pub trait Search {
    /// The page to start from, when the last gap was found at `last`.
    fn from(last: u64) -> u64;
}

/// From page 0: the lowest gap, as the tree finds it.
pub struct FirstFit;

impl Search for FirstFit {
    fn from(_: u64) -> u64 {
        0
    }
}

/// From the last gap found, and around: short ways, but addresses wander.
pub struct NextFit;

impl Search for NextFit {
    fn from(last: u64) -> u64 {
        last
    }
}

/// A map from ranges of pages to a word.
pub trait Space {
    /// No ranges.
    fn new() -> Self;
    /// Maps the pages `start .. end`, which are free.
    fn map(&mut self, start: u64, end: u64, value: u64);
    /// Unmaps all that is mapped in `start .. end`; what reaches over its ends is cut.
    fn unmap(&mut self, start: u64, end: u64);
    /// The range that holds `page`, or else the first after it.
    fn find(&self, page: u64) -> Option<(u64, u64)>;
    /// The value at `page`.
    fn get(&self, page: u64) -> Option<u64>;
    /// The first of `pages` free pages, all of them before page `below`.
    fn gap(&mut self, pages: u64, below: u64) -> Option<u64>;
    /// Ranges.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
