//! The choice of slots.

use crate::swap::machine::Machine;
use mmscale_arch::{CpuId, LockClass};
use mmscale_mm::swap::Zeromap;
use mmscale_stepped as stepped;
use std::collections::BTreeSet;

#[test]
fn each_cpu_takes_from_a_cluster_of_its_own() {
    let machine = Machine::boot(2, 2_048, Zeromap::On);
    let mut clusters = [BTreeSet::new(), BTreeSet::new()];
    for round in 0..200 {
        stepped::set_cpu(round % 2);
        let (_, entry) = machine.to_cache(1);
        clusters[round % 2].insert(entry.slot() / 512);
    }
    assert_eq!((clusters[0].len(), clusters[1].len()), (1, 1));
    assert!(clusters[0].is_disjoint(&clusters[1]));
}

#[test]
fn taking_a_slot_takes_one_lock_and_sharing_one() {
    let machine = Machine::boot(1, 2_048, Zeromap::On);
    machine.to_cache(1);
    let before = stepped::lock_acquisitions(LockClass::Swap);
    for _ in 0..100 {
        machine.to_cache(1);
    }
    assert_eq!(stepped::lock_acquisitions(LockClass::Swap) - before, 200);
}

#[test]
fn every_slot_can_be_used_and_is_used_once() {
    // The last cluster is incomplete.
    let machine = Machine::boot(3, 1_200, Zeromap::On);
    let mut seen = BTreeSet::new();
    for round in 0..1_200 {
        stepped::set_cpu(round % 3);
        let (_, entry) = machine.to_cache(1);
        assert!(entry.slot() < 1_200 && seen.insert(entry), "{entry:?} twice");
    }
    assert_eq!(machine.swap.free_slots(), 0);
    let audit = machine.audit();
    assert_eq!((audit.used, audit.cached, audit.unneeded), (1_200, 1_200, 0));
}

#[test]
fn clusters_that_were_full_are_used_again() {
    let machine = Machine::boot(1, 1_024, Zeromap::On);
    let entries: Vec<_> = (1..=1_024).map(|stamp| machine.out(stamp)).collect();
    let given: BTreeSet<_> = entries.iter().copied().step_by(7).collect();
    given.iter().for_each(|&entry| machine.free(entry));
    assert_eq!(machine.swap.free_slots(), given.len() as u64);
    let again: BTreeSet<_> = given.iter().map(|_| machine.out(1)).collect();
    assert_eq!(again, given);
    assert!(machine.swap.is_half_full());
    machine.audit();
}

#[test]
fn the_cluster_of_a_cpu_that_went_is_not_lost() {
    let machine = Machine::boot(2, 1_024, Zeromap::On);
    stepped::set_cpu(1);
    let (_, first) = machine.to_cache(1);
    stepped::set_cpu(0);
    machine.swap.cpu_dead(machine.memory(), CpuId::new(1));
    let mine: BTreeSet<_> = (0..1_023).map(|_| machine.to_cache(1).1).collect();
    assert!(mine.len() == 1_023 && !mine.contains(&first));
}
