//! The VMA tree compared with other maps of ranges.
//!
//! All run the same programs over the same ranges of pages. Only one of the programs searches for a
//! gap: the maps do not know gaps and have to iterate, from the start or from the last gap.

mod btree;
mod ours;
mod program;
mod ranges;
mod round;

pub use btree::BTree;
pub use ours::Ours;
pub use program::{Layout, Load, Program, Random};
pub use ranges::Ranges;
pub use round::{MapEntry, MapRow, render, run};

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

/// From the last gap found, with wrap-around: short searches, but addresses wander.
pub struct NextFit;

impl Search for NextFit {
    fn from(last: u64) -> u64 {
        last
    }
}

/// A map from ranges of pages to a word.
pub trait Space {
    /// Makes an empty map.
    fn new() -> Self;
    /// Maps the pages `start .. end`, which are free.
    fn map(&mut self, start: u64, end: u64, value: u64);
    /// Unmaps everything in `start .. end`; ranges that cross its ends are cut.
    fn unmap(&mut self, start: u64, end: u64);
    /// Returns the range that holds `page`, or else the first after it.
    fn find(&self, page: u64) -> Option<(u64, u64)>;
    /// Returns the value at `page`.
    fn get(&self, page: u64) -> Option<u64>;
    /// Returns the first of `pages` free pages, all of them before page `below`.
    fn gap(&mut self, pages: u64, below: u64) -> Option<u64>;
    /// Returns the number of ranges.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
