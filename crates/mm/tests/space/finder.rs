//! Finding VMAs while the tree changes.

use crate::space::model::{page, range};
use crate::space::random::Random;
use mmscale_mm::space::{VmaId, VmaSlots, VmaTree};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn ids_in_the_tree_lead_to_their_vmas() {
    let (mut tree, mut slots) = (VmaTree::<VmaId>::new(), VmaSlots::<AtomicU64>::new());
    let (finder, lookup) = (tree.finder(), slots.lookup());
    assert!(finder.find(page(5)).is_none());
    let id = slots.alloc(|value| value.store(42, Ordering::Relaxed)).unwrap();
    tree.insert(range(4, 6), id).unwrap();
    let found = finder.find(page(5)).and_then(|id| lookup.get(id));
    assert_eq!(found.map(|value| value.load(Ordering::Relaxed)), Some(42));
    assert!(finder.find(page(6)).is_none() && finder.find(page(3)).is_none());
    tree.remove(page(4)).unwrap();
    assert!(finder.find(page(5)).is_none());
}

/// VMAs that stay, each with its position as value, between others that come and go. During the
/// changes a finder terminates, and after them it returns correct results.
#[test]
fn reading_during_changes_terminates() {
    const STAYING: u64 = 500;
    let mut tree = VmaTree::<u64>::new();
    (0..STAYING).for_each(|at| tree.insert(range(at * 100, at * 100 + 10), at).unwrap());
    let (finder, stop) = (tree.finder(), AtomicBool::new(false));
    let right = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut random, mut right, mut all) = (Random(3), 0u64, 0u64);
            while !stop.load(Ordering::Relaxed) || all < 1000 {
                let at = random.below(STAYING);
                right += u64::from(finder.find(page(at * 100 + 5)) == Some(at));
                all += 1;
            }
            right
        });
        let mut random = Random(4);
        for _ in 0..200_000 {
            let at = random.below(STAYING) * 100 + 10 + random.below(88);
            if tree.remove(page(at)).is_none() {
                let room = tree.find(page(at)).is_none_or(|next| next.range.start() > page(at));
                assert!(room && tree.insert(range(at, at + 1), u64::MAX).is_ok());
            }
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    tree.verify().unwrap();
    assert!(right > 0, "not one of all answers was right");
    assert!((0..STAYING).all(|at| finder.find(page(at * 100)) == Some(at)));
}
