//! VMAs by id.

use mmscale_mm::space::{VmaId, VmaSlots};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[test]
fn an_id_is_of_one_life_only() {
    let mut slots = VmaSlots::<AtomicU64>::new();
    let lookup = slots.lookup();
    let first = slots.alloc(|_| ()).unwrap();
    slots.get(first).unwrap().store(7, Relaxed);
    assert!(lookup.is_live(first));
    assert!(slots.free(first));
    assert!(!slots.free(first), "freed twice");
    assert!(lookup.get(first).is_none());
    let second = slots.alloc(|value| assert_eq!(value.load(Relaxed), 7)).unwrap();
    assert_eq!(first.index(), second.index());
    assert!(lookup.get(first).is_none(), "the slot's next VMA is another one");
    assert_eq!(lookup.get(second).map(|value| value.load(Relaxed)), Some(7));
    assert!(slots.verify());
}

#[test]
fn any_word_is_safe_to_ask_for() {
    let mut slots = VmaSlots::<AtomicU64>::new();
    let ids: Vec<VmaId> = (0..100).map(|_| slots.alloc(|_| ()).unwrap()).collect();
    ids.iter().step_by(3).for_each(|&id| assert!(slots.free(id)));
    let lookup = slots.lookup();
    let near = |word: u64| (0..64).map(move |bit| word ^ 1 << bit);
    let mut words: Vec<u64> = ids.iter().flat_map(|id| near(id.to_word())).collect();
    words.extend(ids.iter().map(|id| id.to_word()));
    words.extend((0..2000).flat_map(|low| [low, low | 1 << 32, low | 2 << 32, !low, low << 32]));
    words.sort_unstable();
    words.dedup();
    let found = words.into_iter().map(VmaId::from_word).filter(|&id| lookup.is_live(id));
    assert_eq!(found.count(), 66);
    assert!(ids.iter().all(|&id| VmaId::from_word(id.to_word()) == id));
    assert_eq!(slots.len(), 66);
    assert!(slots.verify());
}

#[test]
fn a_reserve_is_there_when_it_is_needed() {
    let mut slots = VmaSlots::<AtomicU64>::new();
    slots.reserve(1000).unwrap();
    let ids: Vec<VmaId> = (0..1000).map(|_| slots.alloc(|_| ()).unwrap()).collect();
    let mut numbers: Vec<usize> = ids.iter().map(|id| id.index()).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..1000));
    ids.into_iter().for_each(|id| assert!(slots.free(id)));
    assert!(slots.is_empty() && slots.verify());
}
