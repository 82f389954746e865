//! Random operations on the tree and the model: short sequences that shrink, long ones with a seed.

use crate::space::model::{Model, page, range};
use mmscale_mm::space::{GapRequest, VmaRange, VmaTree};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A random operation; pages are in `0 .. span`.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert { at: u64, pages: u64 },
    Map { pages: u64, align: u64, top_down: bool },
    Gap { at: u64, window: u64, pages: u64, align: u64 },
    Remove { at: u64 },
    Unmap { at: u64, pages: u64 },
    Find { at: u64 },
    Walk { at: u64, pages: u64 },
    Split { at: u64 },
    Merge { at: u64 },
    Resize { at: u64, down: u64, up: u64 },
    Replace { at: u64 },
}

struct Run {
    tree: VmaTree<u64>,
    model: Model,
    span: u64,
    values: u64,
}

impl Run {
    fn new(span: u64) -> Self {
        Self { tree: VmaTree::new(), model: Model::default(), span, values: 0 }
    }
    /// Clips a range to the address space of this run.
    fn clip(&self, at: u64, pages: u64) -> VmaRange {
        range(at, (at + pages).min(self.span).max(at + 1))
    }
    fn step(&mut self, step: Step) {
        self.values += 1;
        let value = self.values;
        match step {
            Step::Insert { at, pages } => {
                let new = self.clip(at, pages);
                assert_eq!(self.tree.insert(new, value), self.model.insert(new, value));
            }
            Step::Map { pages, align, top_down } => self.map(pages, align, top_down),
            Step::Gap { at, window, pages, align } => {
                let request = GapRequest::new(pages).aligned(align);
                self.search(&request.within(self.clip(at, window)));
            }
            Step::Remove { at } => {
                assert_eq!(self.tree.remove(page(at)), self.model.remove(page(at)));
            }
            Step::Unmap { at, pages } => self.unmap(self.clip(at, pages)),
            Step::Find { at } => self.find(at),
            Step::Walk { at, pages } => self.walk(self.clip(at, pages)),
            Step::Split { at } => {
                let mut edit = self.tree.edit(1).unwrap();
                let parts = edit.split(page(at), |old| old ^ value);
                let old = self.model.get(page(at)).map_or(0, |entry| entry.value);
                assert_eq!(parts.is_some(), self.model.split(page(at), old ^ value));
            }
            Step::Merge { at } => {
                let merged = self.tree.edit(0).unwrap().merge(page(at));
                let upper = self.model.get(page(at)).map(|entry| entry.value);
                assert_eq!(merged.is_some(), self.model.merge(page(at)));
                if let Some((whole, gone)) = merged {
                    assert_eq!(self.model.get(page(at)), Some(whole));
                    assert_eq!(Some(gone), upper);
                }
            }
            Step::Resize { at, down, up } => {
                let to = self.clip(at.saturating_sub(down), down + up);
                let done = self.tree.edit(0).unwrap().resize(page(at), to);
                assert_eq!(done.map(|done| done.is_ok()), self.model.resize(page(at), to));
            }
            Step::Replace { at } => {
                let old = self.tree.edit(0).unwrap().replace(page(at), value);
                assert_eq!(old, self.model.replace(page(at), value));
            }
        }
    }
    fn search(&self, request: &GapRequest) -> (Option<VmaRange>, Option<VmaRange>) {
        let expect = self.model.fits(request);
        let found = (self.tree.lowest_gap(request), self.tree.highest_gap(request));
        assert_eq!(found, expect, "{request:?}");
        found
    }
    fn map(&mut self, pages: u64, align: u64, top_down: bool) {
        let request = GapRequest::new(pages).aligned(align).within(range(0, self.span));
        let (lowest, highest) = self.search(&request);
        if let Some(place) = if top_down { highest } else { lowest } {
            assert_eq!(self.tree.insert(place, self.values), Ok(()));
            assert_eq!(self.model.insert(place, self.values), Ok(()));
        }
    }
    /// Unmaps as munmap does: splits at both ends, then removes the VMAs between.
    fn unmap(&mut self, gone: VmaRange) {
        let mut edit = self.tree.edit(2).unwrap();
        for at in [gone.start(), gone.end()] {
            assert_eq!(edit.split(at, |old| old).is_some(), {
                let old = self.model.get(at).map_or(0, |entry| entry.value);
                self.model.split(at, old)
            });
        }
        for entry in self.model.in_range(gone) {
            assert_eq!(edit.first_in(gone), Some(entry));
            assert_eq!(edit.remove(entry.range.start()), Some(entry));
            self.model.remove(entry.range.start());
        }
        assert_eq!(edit.first_in(gone), None);
    }
    fn find(&self, at: u64) {
        let at = page(at);
        assert_eq!(self.tree.find(at), self.model.find(at));
        assert_eq!(self.tree.get(at), self.model.get(at));
        assert_eq!(self.tree.find_before(at), self.model.find_before(at));
        let hint = self.tree.finder().find(at);
        assert_eq!(hint, self.model.get(at).map(|entry| entry.value));
    }
    fn walk(&self, over: VmaRange) {
        let expect = self.model.in_range(over);
        assert!(self.tree.range(over).eq(expect.iter().copied()));
        assert!(self.tree.range(over).rev().eq(expect.iter().rev().copied()));
        // From both ends alternately, until they meet.
        let (mut iter, mut left) = (self.tree.range(over), expect.into_iter());
        for turn in 0.. {
            let (found, expect) = match turn % 3 {
                0 => (iter.next_back(), left.next_back()),
                _ => (iter.next(), left.next()),
            };
            assert_eq!(found, expect);
            if found.is_none() {
                break;
            }
        }
        assert_eq!((iter.next(), iter.next_back()), (None, None));
    }
}

fn steps(span: u64) -> impl Strategy<Value = Step> {
    let at = move || 0..span;
    let pages = || 1u64..20;
    let align = || (0u32..5).prop_map(|bits| 1u64 << bits);
    prop_oneof![
        4 => (at(), pages()).prop_map(|(at, pages)| Step::Insert { at, pages }),
        4 => (pages(), align(), any::<bool>())
            .prop_map(|(pages, align, top_down)| Step::Map { pages, align, top_down }),
        1 => (at(), pages(), pages(), align())
            .prop_map(|(at, window, pages, align)| Step::Gap { at, window, pages, align }),
        1 => at().prop_map(|at| Step::Remove { at }),
        1 => (at(), pages()).prop_map(|(at, pages)| Step::Unmap { at, pages }),
        1 => at().prop_map(|at| Step::Find { at }),
        1 => (at(), pages()).prop_map(|(at, pages)| Step::Walk { at, pages }),
        2 => at().prop_map(|at| Step::Split { at }),
        1 => at().prop_map(|at| Step::Merge { at }),
        1 => (at(), pages(), pages()).prop_map(|(at, down, up)| Step::Resize { at, down, up }),
        1 => at().prop_map(|at| Step::Replace { at }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]
    #[test]
    fn short_sequences(all in prop::collection::vec(steps(300), 1..400)) {
        let mut run = Run::new(300);
        for step in all {
            run.step(step);
            run.tree.verify().unwrap();
        }
        run.model.assert_same(&run.tree);
    }
}

/// splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
    /// Alternates between phases with more mapping and with more unmapping. One step in `rarely` is
    /// a search, since the model scans all gaps for a search.
    fn step(&mut self, span: u64, growing: bool, rarely: u64) -> Step {
        let (at, pages) = (self.below(span), 1 + self.below(12));
        let align = 1 << self.below(6).saturating_sub(2);
        match self.below(100) {
            0..2 if self.below(rarely) == 0 => {
                Step::Gap { at, window: self.below(span), pages, align }
            }
            2..30 if growing && self.below(rarely) == 0 => {
                Step::Map { pages, align, top_down: self.below(2) == 0 }
            }
            0..30 if growing => Step::Insert { at, pages },
            0..30 => Step::Remove { at },
            30..40 => Step::Insert { at, pages },
            40..50 => Step::Remove { at },
            50..56 => Step::Unmap { at, pages: 1 + self.below(if growing { 8 } else { 60 }) },
            56..66 => Step::Find { at },
            66..70 => Step::Walk { at, pages: self.below(40) },
            70..82 => Step::Split { at },
            82..88 => Step::Merge { at },
            88..96 => Step::Resize { at, down: self.below(6), up: 1 + self.below(6) },
            _ => Step::Replace { at },
        }
    }
}

/// Runs `steps` random steps in an address space of `span` pages; returns the largest number of
/// VMAs.
fn long_run(seed: u64, span: u64, steps: usize, rarely: u64) -> usize {
    let (mut run, mut random, mut most) = (Run::new(span), Random(seed), 0);
    let wave = (steps / 6).min(40_000);
    for count in 0..steps {
        let growing = (count / wave).is_multiple_of(2);
        run.step(random.step(span, growing, rarely));
        most = most.max(run.tree.len());
        if count % (steps / 40) == 0 {
            run.model.assert_same(&run.tree);
        }
    }
    run.model.assert_same(&run.tree);
    run.unmap(range(0, span));
    assert!(run.tree.is_empty());
    assert_eq!(run.tree.verify().unwrap().nodes, 0);
    most
}

#[test]
fn few_vmas_and_many_searches() {
    (0..5).for_each(|seed| assert!(long_run(seed, 700, 60_000, 1) > 60));
}

#[test]
fn hundreds_of_vmas() {
    (10..13).for_each(|seed| assert!(long_run(seed, 6_000, 150_000, 16) > 600));
}

#[test]
fn many_thousands_of_vmas() {
    (20..22).for_each(|seed| assert!(long_run(seed, 200_000, 200_000, 2_000) > 8_000));
}
