//! Allocation failures, for every node in turn.

use crate::space::model::{Model, page, range};
use mmscale_mm::space::{NoMemory, VmaTree};

/// Grants the given number of nodes, then refuses.
fn granting(mut left: usize) -> impl FnMut() -> Result<(), NoMemory> {
    move || {
        left = left.checked_sub(1).ok_or(NoMemory)?;
        Ok(())
    }
}

/// Builds the same tree repeatedly; each time another node is refused.
#[test]
fn a_refused_node_leaves_the_tree_as_it_was() {
    for grows in [1, 2, 5] {
        let mut all_granted = false;
        for fail_at in 0..1000 {
            let (mut tree, mut model) = (VmaTree::<u64>::new(), Model::default());
            let (mut granted, mut refused) = (0, false);
            for at in 0..1200u64 {
                let (start, end) = (at * 37 % 1201 * 10, at * 37 % 1201 * 10 + 7);
                let before = tree.nodes();
                match tree.edit_with(grows, granting(fail_at - granted)) {
                    Ok(mut edit) => edit.insert(range(start, end), at).unwrap(),
                    Err(NoMemory) => {
                        refused = true;
                        model.assert_same(&tree);
                        assert_eq!(tree.nodes(), fail_at, "what was granted stays in reserve");
                        break;
                    }
                }
                granted += tree.nodes() - before;
                model.insert(range(start, end), at).unwrap();
            }
            // With memory the changes continue; changes that need none have never stopped.
            assert_eq!(tree.remove(page(0)), model.remove(page(0)));
            assert_eq!(tree.insert(range(0, 3), 1), model.insert(range(0, 3), 1));
            model.assert_same(&tree);
            if !refused {
                assert!(fail_at > 50, "{fail_at} nodes are too few to be a test");
                all_granted = true;
                break;
            }
        }
        assert!(all_granted, "the last node was never reached");
    }
}

#[test]
fn reserved_changes_never_ask_again() {
    let mut tree = VmaTree::<u64>::new();
    for round in 0..200u64 {
        let base = round * 1000;
        let mut edit = tree.edit(50).unwrap();
        let nodes = edit.nodes();
        edit.insert(range(base, base + 900), round).unwrap();
        for at in 1..50 {
            assert!(edit.split(page(base + at * 17), |old| old + at).is_some());
        }
        assert_eq!(edit.grows_left(), 0);
        assert_eq!(edit.nodes(), nodes);
        tree.verify().unwrap();
    }
    assert_eq!(tree.len(), 200 * 50);
}

#[test]
#[should_panic(expected = "no more VMAs than requested")]
fn more_changes_than_were_reserved_are_a_bug() {
    let mut tree = VmaTree::<u64>::new();
    let mut edit = tree.edit(1).unwrap();
    edit.insert(range(0, 9), 0).unwrap();
    edit.split(page(3), |old| old);
}

#[test]
fn changes_that_add_nothing_need_no_memory() {
    let mut tree = VmaTree::<u64>::new();
    (0..500).for_each(|at| tree.insert(range(at * 4, at * 4 + 4), at).unwrap());
    let nodes = tree.nodes();
    let mut edit = tree.edit_with(0, granting(0)).unwrap();
    assert!((1..500).all(|at| edit.merge(page(at * 4)).is_some()));
    assert!(edit.resize(page(7), range(3, 5)).unwrap().is_ok());
    assert_eq!(edit.remove(page(4)).map(|entry| entry.range), Some(range(3, 5)));
    assert!(tree.is_empty());
    assert_eq!(tree.nodes(), nodes);
    tree.verify().unwrap();
}
