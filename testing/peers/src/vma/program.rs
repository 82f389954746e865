//! The programs.

use super::{Ours, Space};
use std::hint::black_box;
use std::time::Instant;

/// The size of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// VMAs; each has 1 to 16 pages.
    pub vmas: u64,
    /// Measured operations, unless each of them iterates over all VMAs.
    pub operations: u64,
}

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Finds the value at a random page.
    Find,
    /// Two finds, a munmap and an mmap at a fixed place: every fourth munmap cuts a hole into a
    /// VMA, the others remove one; the mmap restores what was unmapped before.
    Fixed,
    /// Two finds, a munmap of a whole VMA, and an mmap of a random size in a gap that is searched
    /// for.
    Gap,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 3] = [Self::Find, Self::Fixed, Self::Gap];

    /// Returns the title of its table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Fixed => "find/find/munmap/mmap, fixed",
            Self::Gap => "find/find/munmap/mmap, gap",
        }
    }
    /// Runs `operations` of it; returns ns for each.
    pub fn time(self, space: &mut impl Space, layout: &Layout, operations: u64, seed: u64) -> f64 {
        let mut random = Random(seed);
        let start = Instant::now();
        match self {
            Self::Find => find(space, layout, operations, &mut random),
            Self::Fixed => fixed(space, layout, operations, &mut random),
            Self::Gap => gap(space, layout, operations, &mut random),
        }
        start.elapsed().as_nanos() as f64 / operations as f64
    }
}

/// The mappings at the start of the programs, identical for all maps.
pub struct Layout {
    ranges: Vec<(u64, u64)>,
    /// All pages of the programs are below it: a quarter more than were mapped at first.
    pages: u64,
}

impl Layout {
    /// Adjacent VMAs, after as many munmaps and mmaps as there are VMAs: the remaining holes are
    /// those that were too small for any mmap, as in an address space that was used for a long
    /// time.
    pub fn worn(vmas: u64) -> Self {
        let (mut space, mut random) = (Ours::new(), Random(vmas));
        let mut end = 0;
        for _ in 0..vmas {
            let start = end;
            end += 1 + random.below(16);
            space.map(start, end, start);
        }
        let pages = end / 4 * 5;
        let new = Self { ranges: Vec::new(), pages };
        gap(&mut space, &new, 4 * vmas, &mut random);
        let next = |&(_, end): &(u64, u64)| space.find(end);
        let mut ranges: Vec<_> = std::iter::successors(space.find(0), next).collect();
        for last in (1..ranges.len()).rev() {
            ranges.swap(last, random.below(last as u64 + 1) as usize);
        }
        Self { ranges, pages }
    }
    /// Fills a map with all VMAs, in random order.
    pub fn fill<S: Space>(&self) -> S {
        let mut space = S::new();
        self.ranges.iter().for_each(|&(start, end)| space.map(start, end, start));
        space
    }
    fn page(&self, random: &mut Random) -> u64 {
        random.below(self.pages)
    }
}

fn look(space: &impl Space, layout: &Layout, random: &mut Random) {
    black_box(space.get(layout.page(random)));
}

fn find(space: &impl Space, layout: &Layout, operations: u64, random: &mut Random) {
    (0..operations).for_each(|_| look(space, layout, random));
}

/// Returns the VMA at or after a random page; the lowest one if there is none.
fn victim(space: &impl Space, layout: &Layout, random: &mut Random) -> (u64, u64) {
    let found = space.find(layout.page(random)).or_else(|| space.find(0));
    found.expect("there are always VMAs")
}

fn fixed(space: &mut impl Space, layout: &Layout, operations: u64, random: &mut Random) {
    for turn in 0..operations / 4 {
        look(space, layout, random);
        look(space, layout, random);
        let (start, end) = victim(space, layout, random);
        if turn % 4 == 0 && end - start > 2 {
            space.unmap(start + 1, end - 1);
            // Only the start of a range has its own number as its value, and this is no start.
            space.map(start + 1, end - 1, start + 1);
            // One VMA again, so that the next program has the same state.
            space.unmap(start, end);
        } else {
            space.unmap(start, end);
        }
        space.map(start, end, start);
    }
}

fn gap(space: &mut impl Space, layout: &Layout, operations: u64, random: &mut Random) {
    for _ in 0..operations / 4 {
        look(space, layout, random);
        look(space, layout, random);
        let (start, end) = victim(space, layout, random);
        space.unmap(start, end);
        let pages = 1 + random.below(16);
        match space.gap(pages, layout.pages) {
            Some(place) => space.map(place, place + pages, place),
            // Free pages are too scattered.
            None => space.map(start, end, start),
        }
    }
}

/// splitmix64: identical for every map.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
