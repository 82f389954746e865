//! The rules of the tree, one by one.

use crate::space::model::{page, range};
use mmscale_arch::{USER_END, VirtAddr};
use mmscale_mm::space::{GapRequest, InsertError, Overlap, VmaEntry, VmaRange, VmaTree, Vpn};

fn tree_of(ranges: &[(u64, u64)]) -> VmaTree<u64> {
    let mut tree = VmaTree::new();
    for (value, &(start, end)) in ranges.iter().enumerate() {
        tree.insert(range(start, end), value as u64).unwrap();
    }
    tree
}

fn ranges(tree: &VmaTree<u64>) -> Vec<(u64, u64)> {
    let pair = |entry: VmaEntry<u64>| (entry.range.start().get(), entry.range.end().get());
    tree.iter().map(pair).collect()
}

#[test]
fn overlaps_are_refused_at_either_end() {
    let mut tree = tree_of(&[(10, 20), (30, 40)]);
    for (start, end) in [(9, 11), (19, 21), (12, 13), (10, 20), (5, 50), (25, 31)] {
        assert_eq!(tree.insert(range(start, end), 9), Err(InsertError::Overlap));
    }
    assert_eq!(tree.insert(range(20, 30), 2), Ok(()));
    assert_eq!(ranges(&tree), [(10, 20), (20, 30), (30, 40)]);
}

#[test]
fn finds_the_vma_or_the_first_after() {
    let tree = tree_of(&[(10, 20), (30, 40)]);
    let value = |found: Option<VmaEntry<u64>>| found.map(|entry| entry.value);
    assert_eq!([0, 10, 19].map(|at| value(tree.find(page(at)))), [Some(0); 3]);
    assert_eq!([20, 29, 39].map(|at| value(tree.find(page(at)))), [Some(1); 3]);
    assert_eq!(value(tree.find(page(40))), None);
    assert_eq!([9, 20, 40].map(|at| value(tree.get(page(at)))), [None; 3]);
    assert_eq!(value(tree.find_before(page(10))), None);
    assert_eq!([11, 30].map(|at| value(tree.find_before(page(at)))), [Some(0); 2]);
    assert_eq!(value(tree.find_before(Vpn::USER_END)), Some(1));
    assert_eq!(value(tree.first_in(range(20, 30))), None);
}

#[test]
fn resize_keeps_the_place_between_neighbours() {
    let mut tree = tree_of(&[(10, 20), (30, 40), (50, 60)]);
    let mut edit = tree.edit(0).unwrap();
    assert_eq!(edit.resize(page(35), range(19, 40)), Some(Err(Overlap)));
    assert_eq!(edit.resize(page(35), range(30, 51)), Some(Err(Overlap)));
    assert_eq!(edit.resize(page(35), range(70, 80)), Some(Err(Overlap)));
    assert_eq!(edit.resize(page(25), range(24, 26)), None);
    assert_eq!(edit.resize(page(35), range(20, 50)), Some(Ok(range(30, 40))));
    assert_eq!(edit.resize(page(55), range(58, 99)), Some(Ok(range(50, 60))));
    assert_eq!(ranges(&tree), [(10, 20), (20, 50), (58, 99)]);
    tree.verify().unwrap();
}

#[test]
fn split_and_merge_undo_each_other() {
    let mut tree = tree_of(&[(10, 20)]);
    let mut edit = tree.edit(1).unwrap();
    for at in [9, 10, 20, 21] {
        assert!(edit.split(page(at), |_| panic!("nothing to split at {at}")).is_none());
    }
    let (low, high) = edit.split(page(13), |old| old + 7).unwrap();
    assert_eq!((low.range, low.value), (range(10, 13), 0));
    assert_eq!((high.range, high.value), (range(13, 20), 7));
    assert!(edit.merge(page(10)).is_none() && edit.merge(page(20)).is_none());
    assert_eq!(edit.merge(page(13)), Some((VmaEntry { range: range(10, 20), value: 0 }, 7)));
    assert_eq!(ranges(&tree), [(10, 20)]);
}

#[test]
fn gaps_from_below_and_from_above() {
    let tree = tree_of(&[(10, 20), (24, 30), (40, 50)]);
    let within = GapRequest::new(4).within(range(10, 60));
    let at = |start, end| Some(range(start, end));
    assert_eq!(tree.lowest_gap(&within), at(20, 24));
    assert_eq!(tree.highest_gap(&within), at(56, 60));
    let five = GapRequest { pages: 5, ..within };
    assert_eq!(tree.lowest_gap(&five), at(30, 35));
    assert_eq!(tree.highest_gap(&five.within(range(10, 54))), at(35, 40));
    // Clipped by the window on both sides.
    assert_eq!(tree.lowest_gap(&within.within(range(32, 39))), at(32, 36));
    assert_eq!(tree.highest_gap(&within.within(range(32, 39))), at(35, 39));
    assert_eq!(tree.lowest_gap(&within.within(range(21, 34))), at(30, 34));
    assert_eq!(tree.lowest_gap(&five.within(range(10, 34))), None);
    // Aligned: 20..24 fits a block of 4 exactly, but 30..40 has one at any offset.
    assert_eq!(tree.lowest_gap(&within.aligned(4)), at(32, 36));
    assert_eq!(tree.highest_gap(&within.aligned(4).within(range(0, 40))), at(36, 40));
    // Only the gap that is aligned by chance.
    assert_eq!(tree.lowest_gap(&within.aligned(4).within(range(18, 30))), at(20, 24));
    assert_eq!(tree.lowest_gap(&within.aligned(16).within(range(18, 45))), at(32, 36));
}

#[test]
fn requests_without_sense_find_nothing() {
    let tree = tree_of(&[(10, 20)]);
    let request = GapRequest::new(1);
    assert_eq!(tree.lowest_gap(&GapRequest::new(0)), None);
    assert_eq!(tree.lowest_gap(&request.aligned(0)), None);
    assert_eq!(tree.highest_gap(&request.aligned(3)), None);
    assert_eq!(tree.lowest_gap(&GapRequest::new(u64::MAX)), None);
    assert_eq!(tree.lowest_gap(&request.aligned(1 << 63)), Some(range(0, 1)));
    assert_eq!(tree.highest_gap(&request.aligned(1 << 63).within(range(1, 9))), None);
    let all = GapRequest::new(VmaRange::USER.pages());
    assert_eq!(tree.lowest_gap(&all), None);
    assert_eq!(VmaTree::<u64>::new().highest_gap(&all), Some(VmaRange::USER));
}

#[test]
fn maps_downwards_from_the_top_of_the_address_space() {
    let mut tree = VmaTree::new();
    for value in 0..5000u64 {
        let place = tree.highest_gap(&GapRequest::new(3)).unwrap();
        assert_eq!(place.end().get(), Vpn::USER_END.get() - 3 * value);
        tree.insert(place, value).unwrap();
    }
    let audit = tree.verify().unwrap();
    assert_eq!((audit.vmas, audit.pages), (5000, 15_000));
    // Nodes that insertions in a row have left are more than half full.
    assert!(audit.nodes < 5000 / 8, "{} nodes", audit.nodes);
    let last = Vpn::containing(VirtAddr::new(USER_END.get() - 1));
    assert_eq!(tree.get(last).map(|entry| entry.value), Some(0));
}

#[test]
fn nodes_are_used_again() {
    let mut tree = VmaTree::new();
    let mut nodes = Vec::new();
    for _ in 0..3 {
        (0..3000).for_each(|at| tree.insert(range(at * 3, at * 3 + 2), at).unwrap());
        nodes.push(tree.nodes());
        (0..3000).rev().for_each(|at| assert!(tree.remove(page(at * 3)).is_some()));
        assert_eq!(tree.verify().unwrap().nodes, 0);
    }
    assert!(nodes.windows(2).all(|pair| pair[0] == pair[1]), "{nodes:?}");
}

#[test]
fn a_million_vmas_in_one_space() {
    const COUNT: u64 = 1 << 20;
    let mut tree = VmaTree::new();
    // An odd factor visits every position once, far from the last one.
    let place = |at: u64| (at * 0x9e37_79b9 % COUNT) * 3;
    (0..COUNT).for_each(|at| tree.insert(range(place(at), place(at) + 2), at).unwrap());
    assert_eq!(tree.verify().map(|audit| audit.vmas), Ok(COUNT as usize));
    let two = GapRequest::new(2);
    assert_eq!(tree.lowest_gap(&two), Some(range(COUNT * 3 - 1, COUNT * 3 + 1)));
    assert!(tree.remove(page(300_000)).is_some());
    assert_eq!(tree.lowest_gap(&two), Some(range(299_999, 300_001)));
    assert_eq!(tree.range(range(600_000, 600_030)).count(), 10);
}
