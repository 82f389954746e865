//! The memory layout of a victim: its VMAs, and which of their pages are present.

use mmscale_harness::names;
use mmscale_system::Share;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

names! {
    /// The layouts, in the order in which they run.
    pub enum Layout { App = "app", Single = "single", Sparse = "sparse", Huge = "huge" }
}

/// Pages of a huge page, and of a page table.
const TABLE_PAGES: u64 = 512;
/// The start of the first VMA, in pages.
const FIRST_PAGE: u64 = 1 << 20;
/// In the sparse layout, one of this many pages is present.
const SPARSE_STRIDE: u64 = 32;

/// Which pages of a VMA are present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Filled {
    /// All pages.
    Whole,
    /// The first of each group of this many pages.
    Every(u64),
    /// All pages, as huge pages.
    Huge,
}

/// The kind of memory that is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// Anonymous memory.
    Anonymous,
    /// A file, starting with this page of it. Shared mappings are not reaped.
    File(u64, Share),
}

/// One mapping of the victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapping {
    pub(super) first_page: u64,
    pub(super) pages: u64,
    pub(super) filled: Filled,
    pub(super) of: Of,
}

impl Mapping {
    pub(super) fn is_anonymous(&self) -> bool {
        self.of == Of::Anonymous
    }
}

/// Returns the mappings of a victim with about `pages` present pages, in ascending order. Of the
/// pages of an application, `file_1024` in 1024 belong to a file.
pub(super) fn mappings(layout: Layout, pages: u64, file_1024: u64, seed: u64) -> Vec<Mapping> {
    let one =
        |pages, filled| vec![Mapping { first_page: FIRST_PAGE, pages, filled, of: Of::Anonymous }];
    match layout {
        Layout::App => app(pages, pages * file_1024 / 1024, seed),
        Layout::Single => one(pages, Filled::Whole),
        Layout::Sparse => sparse(pages),
        Layout::Huge => one(pages.next_multiple_of(TABLE_PAGES), Filled::Huge),
    }
}

/// A heavy application on a phone: some large heaps, dozens of arenas and mapped buffers, and
/// hundreds of small mappings such as stacks, in random order with gaps between them. The first
/// mappings other than heaps with a total of `file_pages` pages belong to a file, such as code and
/// resources; they are alternately shared and private.
fn app(pages: u64, mut file_pages: u64, seed: u64) -> Vec<Mapping> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut sizes = Vec::new();
    // Number of mappings, and their share of the pages in 1/1024.
    for (count, share_1024) in [(4, 400), (56, 360), (340, 264)] {
        let mean = (pages * share_1024 / 1024 / count).max(1);
        // Sizes between 0.5 and 1.5 times the mean; all seeds have the same total.
        let mut some: Vec<u64> = (0..count).map(|_| mean / 2 + rng.next_u64() % mean + 1).collect();
        let sum: u64 = some.iter().sum();
        some.iter_mut().for_each(|size| *size = (*size * mean * count / sum).max(1));
        sizes.extend(some);
    }
    for at in (1..sizes.len()).rev() {
        sizes.swap(at, (rng.next_u64() % (at as u64 + 1)) as usize);
    }
    let (mut first_page, mut in_file, mut share) = (FIRST_PAGE, 0, Share::Shared);
    let heap = pages * 400 / 1024 / 4 / 2;
    let place = |pages: u64| {
        let mut of = Of::Anonymous;
        if pages < heap && pages <= file_pages {
            of = Of::File(in_file, share);
            share = if share == Share::Shared { Share::Private } else { Share::Shared };
            (in_file, file_pages) = (in_file + pages, file_pages - pages);
        }
        let mapping = Mapping { first_page, pages, filled: Filled::Whole, of };
        first_page += pages + 1 + rng.next_u64() % 16;
        mapping
    };
    sizes.into_iter().map(place).collect()
}

/// Four large mappings, 64 GiB apart, with few present pages: each page table has some.
fn sparse(pages: u64) -> Vec<Mapping> {
    const APART: u64 = 1 << 24;
    let each = (pages / 4).max(1) * SPARSE_STRIDE;
    let mapping = |nth: u64| Mapping {
        first_page: FIRST_PAGE + nth * APART.max(each.next_multiple_of(APART)),
        pages: each,
        filled: Filled::Every(SPARSE_STRIDE),
        of: Of::Anonymous,
    };
    (0..4).map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_harness::Named;

    fn there(mapping: &Mapping) -> u64 {
        match mapping.filled {
            Filled::Every(stride) => mapping.pages.div_ceil(stride),
            Filled::Whole | Filled::Huge => mapping.pages,
        }
    }

    #[test]
    fn every_layout_has_its_pages_and_no_two_mappings_meet() {
        for &name in Layout::NAMES {
            let layout = Layout::named(name);
            for pages in [1024, 100_000] {
                let all = mappings(layout, pages, 128, 7);
                let sum: u64 = all.iter().map(there).sum();
                assert!(sum.abs_diff(pages) * 8 < pages, "{name}: {sum} of {pages}");
                let apart =
                    all.windows(2).all(|two| two[0].first_page + two[0].pages < two[1].first_page);
                assert!(apart, "{name}");
            }
        }
        assert_eq!(mappings(Layout::App, 100_000, 0, 7).len(), 400);
        assert_ne!(mappings(Layout::App, 100_000, 0, 7), mappings(Layout::App, 100_000, 0, 8));
        assert_eq!(mappings(Layout::Single, 100_000, 0, 7).len(), 1);
    }

    #[test]
    fn an_application_has_pages_of_a_file_shared_and_not() {
        for seed in 0..20 {
            let all = mappings(Layout::App, 100_000, 128, seed);
            let mut next = 0;
            let mut pages = [0; 2];
            for mapping in &all {
                if let Of::File(first, share) = mapping.of {
                    assert_eq!(first, next, "the parts of the file follow one another");
                    next += mapping.pages;
                    pages[usize::from(share == Share::Shared)] += mapping.pages;
                }
            }
            assert!(next.abs_diff(12_500) < 1_000, "{next} of 12500, seed {seed}");
            assert!(pages[0].min(pages[1]) > 2_000, "{pages:?}, seed {seed}");
            assert!(mappings(Layout::App, 100_000, 0, seed).iter().all(Mapping::is_anonymous));
        }
    }
}
