//! How folios reach their lists: batches of 31, the effects of populate and faults, freezing.

use crate::lru::machine::{ALL, ANON, FILE, Machine, locks, moves};
use mmscale_arch::Order;
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::{BATCH, FoliosPolicy, LruList, LruPolicy};

const ITERATIONS: u64 = 1000;

#[test]
fn a_batch_moves_when_it_has_31_folios() {
    for policy in [LruPolicy::Stock, LruPolicy::Freeze] {
        let machine = Machine::boot(policy, 1);
        let mut folios: Vec<_> = (0..BATCH - 1).map(|_| machine.fault(ANON)).collect();
        assert_eq!((moves().batches, locks()), (0, 0));
        assert!(folios.iter().all(|&pfn| machine.refs(pfn) == 2), "the batch has a reference");
        folios.push(machine.fault(ANON));
        let moved = moves();
        assert_eq!((moved.batches, moved.folios, moved.dead, locks()), (1, 31, 0, 1));
        assert!(folios.iter().all(|&pfn| machine.refs(pfn) == 1));
        assert_eq!(machine.audit().pages, [31, 0, 0, 0, 0]);
        assert_eq!(machine.oldest_first(LruList::InactiveAnon), folios);
        folios.iter().for_each(|&pfn| machine.unmap(pfn));
        machine.end();
    }
}

#[test]
fn before_linux_6_9_a_batch_moves_when_it_has_15_folios() {
    let machine = Machine::with(1, |config| config.folios = FoliosPolicy::Fifteen);
    let folios: Vec<_> = (0..31).map(|_| machine.fault(ANON)).collect();
    let moved = moves();
    assert_eq!((moved.batches, moved.folios, locks()), (2, 30, 2));
    folios.iter().for_each(|&pfn| machine.unmap(pfn));
    machine.end();
}

#[test]
fn folios_go_to_the_list_of_their_kind_and_age() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    let memory = machine.memory();
    let folios = [ANON, FILE, ANON, FILE].map(|what| machine.folio(what));
    memory.folios.set(folios[2], FolioFlags::ACTIVE);
    memory.folios.set(folios[3], FolioFlags::ACTIVE);
    folios.iter().for_each(|&pfn| memory.add(pfn));
    memory.drain();
    let lists =
        [LruList::InactiveAnon, LruList::InactiveFile, LruList::ActiveAnon, LruList::ActiveFile];
    for (pfn, list) in folios.into_iter().zip(lists) {
        assert_eq!(machine.oldest_first(list), [pfn]);
        memory.put(pfn);
    }
    machine.end();
}

#[test]
fn a_large_folio_does_not_wait_and_counts_all_its_pages() {
    for policy in ALL {
        let machine = Machine::boot(policy, 1);
        let pfn = machine.folio_of(Order::PAGEBLOCK, ANON);
        machine.memory().add(pfn);
        assert_eq!((moves().batches, machine.pages(LruList::InactiveAnon)), (1, 512));
        machine.memory().put(pfn);
        machine.end();
    }
}

/// Maps one page with populate and unmaps it: add, drain, unmap, release.
fn populate_churn(machine: &Machine) {
    for _ in 0..ITERATIONS {
        let pfn = machine.fault(ANON);
        machine.memory().blanket_drain();
        machine.unmap(pfn);
    }
}

#[test]
fn populating_one_page_at_a_time_makes_batches_of_one() {
    for policy in [LruPolicy::Stock, LruPolicy::Freeze] {
        let machine = Machine::boot(policy, 1);
        populate_churn(&machine);
        let moved = moves();
        assert_eq!((moved.folios, moved.batches, moved.largest), (1000, 1000, 1));
        assert_eq!((moved.dead, moved.pinned, moved.pinned_max), (0, 0, 1));
        assert_eq!(locks(), 2 * ITERATIONS, "one to add and one to remove");
        machine.end();
    }
}

#[test]
fn touching_one_page_at_a_time_makes_batches_of_31_of_which_30_are_dead() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    for _ in 0..ITERATIONS {
        let pfn = machine.fault(ANON);
        machine.unmap(pfn);
    }
    let moved = moves();
    assert_eq!((moved.folios, moved.batches), (992, 32));
    assert_eq!((moved.dead, moved.freed), (32 * 30, 0));
    assert_eq!((moved.pinned, moved.pinned_max), (8, 31), "eight wait for the next batch");
    assert_eq!((moved.unmapped, moved.unmapped_max), (8, 30));
    // Per batch: one lock to add it, one to remove its dead folios; the last folio is removed by
    // its own release.
    assert_eq!(locks(), 32 * 3);
    let counters = machine.memory().lru.counters();
    assert_eq!((counters.add_batches, counters.added, counters.dead), (32, 992, 960));
    machine.end();
}

#[test]
fn freezing_frees_the_dead_without_adding_them() {
    let machine = Machine::boot(LruPolicy::Freeze, 1);
    for _ in 0..ITERATIONS {
        let pfn = machine.fault(ANON);
        machine.unmap(pfn);
    }
    let moved = moves();
    assert_eq!((moved.folios, moved.batches), (992, 32));
    assert_eq!((moved.dead, moved.freed), (960, 960));
    assert_eq!((moved.unmapped, moved.unmapped_max), (8, 30));
    // The folio that stays in use is added, and removed later.
    assert_eq!(locks(), 32 * 2);
    assert_eq!(machine.memory().lru.counters().added, 32);
    machine.end();
}

#[test]
fn freezing_skips_a_folio_in_use() {
    let machine = Machine::boot(LruPolicy::Freeze, 1);
    let pfn = machine.fault(ANON);
    machine.memory().folios.get(pfn);
    machine.unmap(pfn);
    machine.memory().drain();
    assert!(machine.flags(pfn).contains(FolioFlags::LRU));
    machine.memory().put(pfn);
    machine.end();
}

#[test]
fn lazy_takes_no_lruvec_lock_in_churn_and_leaves_no_folio() {
    for drains in [true, false] {
        let machine = Machine::boot(LruPolicy::Lazy, 1);
        if drains {
            populate_churn(&machine);
        } else {
            (0..ITERATIONS).for_each(|_| machine.unmap(machine.fault(ANON)));
        }
        let moved = moves();
        assert_eq!((locks(), moved.batches), (0, 0));
        assert_eq!((moved.pinned, moved.pinned_max), (0, 1));
        assert_eq!((moved.unmapped, moved.unmapped_max), (0, 0));
        let audit = machine.audit();
        assert_eq!((audit.folios, audit.gathered), (0, 0), "nothing waits, nothing is charged");
        assert_eq!(machine.memory().lru.counters().freed_pending, ITERATIONS);
        machine.end();
    }
}

#[test]
fn a_release_of_many_folios_takes_a_lock_for_each_31() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    let folios: Vec<_> = (0..4 * BATCH).map(|_| (machine.folio(ANON), 1)).collect();
    folios.iter().for_each(|&(pfn, _)| machine.memory().add(pfn));
    let before = locks();
    machine.memory().release(&folios);
    assert_eq!(locks() - before, 4);
    machine.end();
}
