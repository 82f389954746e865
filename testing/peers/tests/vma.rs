//! All maps support the operations of the programs, with the same results.

use mmscale_peers::vma::{BTree, FirstFit, Layout, Load, NextFit, Ours, Program, Random, Ranges};
use mmscale_peers::vma::{Space, render, run};

const BELOW: u64 = 4000;

/// Maps and unmaps at random; returns the ranges found and the gaps, in order.
fn story<S: Space>(gaps: bool) -> Vec<Option<(u64, u64)>> {
    let (mut space, mut random, mut story) = (S::new(), Random(7), Vec::new());
    for value in 0..20_000 {
        let (at, pages) = (random.below(BELOW - 20), 1 + random.below(20));
        match random.below(4) {
            0 => space.unmap(at, at + pages),
            1 if gaps => {
                let gap = space.gap(pages, BELOW);
                story.push(gap.map(|start| (start, pages)));
                gap.into_iter().for_each(|start| space.map(start, start + pages, value));
            }
            1 => {
                space.unmap(at, at + pages);
                space.map(at, at + pages, value);
            }
            2 => story.push(space.get(at).map(|value| (value, 0))),
            _ => story.push(space.find(at)),
        }
        story.push(Some((space.len() as u64, 0)));
    }
    story
}

#[test]
fn all_maps_tell_the_same_story() {
    let ours = story::<Ours>(false);
    assert!(ours == story::<BTree<FirstFit>>(false));
    assert!(ours == story::<BTree<NextFit>>(false));
    assert!(ours == story::<Ranges<FirstFit>>(false));
    assert!(ours == story::<Ranges<NextFit>>(false));
}

#[test]
fn the_lowest_gap_is_the_same_for_all() {
    let ours = story::<Ours>(true);
    assert!(ours == story::<BTree<FirstFit>>(true));
    assert!(ours == story::<Ranges<FirstFit>>(true));
}

#[test]
fn the_next_gap_is_free_and_inside() {
    let next = story::<BTree<NextFit>>(true);
    assert!(next == story::<Ranges<NextFit>>(true));
    assert!(next != story::<BTree<FirstFit>>(true));
}

#[test]
fn programs_keep_the_number_of_vmas() {
    let layout = Layout::worn(1000);
    let mut space: Ours = layout.fill();
    assert_eq!(space.len(), 1000);
    for program in Program::ALL {
        program.time(&mut space, &layout, 4000, 1);
        assert_eq!(space.len(), 1000, "after {}", program.title());
    }
}

#[test]
fn the_tables_fit_a_mail() {
    let loads = [100, 400, 500].map(|vmas| Load { vmas, operations: 400 });
    for (program, rows) in run(&loads, 1, |_| {}) {
        assert_eq!(rows.len(), 5);
        let large = loads.map(|load| Load { vmas: load.vmas * 2000, ..load });
        let text = render(program.title(), &large, &rows);
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
    }
}
