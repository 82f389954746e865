//! Lazy membership: the guarantees of the blanket drain hold without it.

use crate::lru::machine::{ANON, FILE, Machine, locks, moves};
use mmscale_arch::Pfn;
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::{BATCH, LruList, LruPolicy};
use mmscale_stepped as stepped;

fn boot() -> Machine {
    Machine::boot(LruPolicy::Lazy, 2)
}

fn pending(machine: &Machine, pfn: Pfn) -> bool {
    machine.flags(pfn).contains(FolioFlags::PENDING)
}

#[test]
fn a_folio_that_survives_its_batch_joins_its_list() {
    let machine = boot();
    let kept: Vec<_> = (0..BATCH).map(|_| machine.fault(ANON)).collect();
    assert_eq!((locks(), machine.audit().pending), (0, 31));
    let before = locks();
    let next = machine.fault(ANON);
    assert_eq!(locks() - before, 1);
    assert!(pending(&machine, next));
    assert_eq!(machine.oldest_first(LruList::InactiveAnon), kept);
    kept.into_iter().chain([next]).for_each(|pfn| machine.unmap(pfn));
    machine.end();
}

#[test]
fn a_hole_in_the_batch_is_filled_before_the_batch_moves() {
    let machine = boot();
    let kept: Vec<_> = (0..BATCH - 1).map(|_| machine.fault(ANON)).collect();
    for _ in 0..500 {
        let pfn = machine.fault(ANON);
        machine.unmap(pfn);
    }
    assert_eq!((locks(), machine.audit().pending), (0, 30));
    kept.into_iter().for_each(|pfn| machine.unmap(pfn));
    machine.end();
}

#[test]
fn the_last_user_frees_a_pending_folio_whichever_cpu_he_is_on() {
    let machine = boot();
    // As if a task had moved between fault and unmap.
    for _ in 0..200 {
        let pfn = machine.fault(ANON);
        machine.on(1, || machine.unmap(pfn));
    }
    let moved = moves();
    assert_eq!((locks(), moved.pinned, moved.unmapped_max), (0, 0, 0));
    assert_eq!(machine.audit().folios, 0);
    // It went to the page cache of the CPU that freed it.
    let zone = mmscale_frames::zone::ZoneId::new(0);
    let cached = |cpu| {
        let cpu = mmscale_arch::CpuId::new(cpu);
        machine.mm.frames().inspect_pcp(zone, cpu, |pcp| pcp.count())
    };
    assert!(cached(1) > 0);
    machine.end();
}

#[test]
fn a_second_user_keeps_it_pending_and_the_last_one_frees_it() {
    let machine = boot();
    let pfn = machine.fault(ANON);
    machine.memory().folios.get(pfn);
    machine.unmap(pfn);
    assert!(pending(&machine, pfn));
    machine.memory().put(pfn);
    assert_eq!((locks(), machine.refs(pfn)), (0, 0));
    let many = machine.fault(ANON);
    machine.memory().folios.get(many);
    machine.memory().remove_maps(many, 1);
    machine.memory().release(&[(many, 2)]);
    assert_eq!((locks(), machine.audit().folios), (0, 0), "two references in one step");
    machine.end();
}

#[test]
fn isolating_takes_a_folio_out_of_any_cpus_batch_without_a_lock() {
    let machine = boot();
    let memory = machine.memory();
    let pfn = machine.fault(ANON);
    machine.on(1, || assert!(memory.isolate(pfn)));
    assert_eq!((locks(), machine.refs(pfn)), (0, 2), "the mapping's and the isolator's");
    assert!(!pending(&machine, pfn) && !machine.flags(pfn).contains(FolioFlags::LRU));
    assert!(!memory.isolate(pfn), "it is in use");
    machine.on(1, || memory.putback(pfn));
    assert!(pending(&machine, pfn));
    assert_eq!(machine.refs(pfn), 2);
    assert_eq!(memory.lru.counters().demanded, 1);
    machine.unmap(pfn);
    machine.end();
}

#[test]
fn stock_finds_a_folio_only_after_a_drain_of_its_cpu() {
    let machine = Machine::boot(LruPolicy::Stock, 2);
    let memory = machine.memory();
    let pfn = machine.fault(ANON);
    machine.on(1, || {
        assert!(!memory.isolate(pfn) && !memory.demand(pfn));
    });
    assert!(memory.demand(pfn) && memory.isolate(pfn));
    memory.putback_now(&[pfn]);
    machine.unmap(pfn);
    machine.end();
}

#[test]
fn demand_brings_one_folio_to_its_list_and_leaves_the_others() {
    let machine = boot();
    let memory = machine.memory();
    let folios: Vec<_> = (0..5).map(|_| machine.fault(FILE)).collect();
    machine.on(1, || assert!(memory.demand(folios[2])));
    assert_eq!((locks(), machine.audit().pending), (1, 4));
    assert_eq!(machine.oldest_first(LruList::InactiveFile), [folios[2]]);
    assert_eq!(machine.refs(folios[2]), 1);
    folios.into_iter().for_each(|pfn| machine.unmap(pfn));
    machine.end();
}

#[test]
fn a_folio_that_is_locked_while_it_waits_is_unevictable_at_once() {
    let machine = boot();
    let memory = machine.memory();
    let pfn = machine.fault(ANON);
    machine.on(1, || memory.mlock(pfn));
    assert_eq!(machine.oldest_first(LruList::Unevictable), [pfn]);
    memory.munlock(pfn);
    assert_eq!(machine.oldest_first(LruList::InactiveAnon), [pfn]);
    machine.unmap(pfn);
    machine.end();
}

#[test]
fn advice_reaches_a_folio_where_it_waits() {
    let machine = boot();
    let memory = machine.memory();
    let pfn = machine.fault(ANON);
    machine.on(1, || {
        memory.activate(pfn);
        assert!(machine.flags(pfn).contains(FolioFlags::ACTIVE));
        memory.deactivate(pfn);
        assert!(!machine.flags(pfn).contains(FolioFlags::ACTIVE));
        memory.lazyfree(pfn);
    });
    assert!(memory.folios.word(pfn).is_lazyfree());
    assert_eq!((locks(), machine.audit().gathered), (0, 1));
    memory.drain();
    assert_eq!(machine.oldest_first(LruList::InactiveFile), [pfn]);
    machine.unmap(pfn);
    machine.end();
}

#[test]
fn copy_on_write_ignores_the_reference_of_a_batch() {
    for policy in crate::lru::machine::ALL {
        let machine = Machine::boot(policy, 2);
        let memory = machine.memory();
        let pfn = machine.fault(ANON);
        // From another CPU, only lazy can determine the owner of the second reference.
        let elsewhere = machine.on(1, || memory.is_exclusive(pfn, 1));
        assert_eq!(elsewhere, policy == LruPolicy::Lazy);
        assert!(memory.is_exclusive(pfn, 1));
        memory.folios.get(pfn);
        assert!(!memory.is_exclusive(pfn, 1));
        memory.put(pfn);
        machine.unmap(pfn);
        machine.end();
    }
}

#[test]
fn a_split_gets_rid_of_the_batchs_reference() {
    for policy in crate::lru::machine::ALL {
        let machine = Machine::boot(policy, 2);
        let memory = machine.memory();
        let pfn = machine.fault(ANON);
        let elsewhere = machine.on(1, || memory.freeze(pfn, 1));
        assert_eq!(elsewhere, policy == LruPolicy::Lazy);
        if elsewhere || memory.freeze(pfn, 1) {
            assert!(!memory.folios.try_get(pfn));
            memory.folios.unfreeze(pfn, 1);
        } else {
            panic!("{policy:?}: its own CPU can");
        }
        machine.unmap(pfn);
        machine.end();
    }
}

#[test]
fn folios_that_others_took_from_the_batch_cost_its_owner_nothing() {
    let machine = boot();
    for _ in 0..10 {
        let folios: Vec<_> = (0..BATCH).map(|_| machine.fault(ANON)).collect();
        machine.on(1, || folios.into_iter().for_each(|pfn| machine.unmap(pfn)));
    }
    let moved = moves();
    assert_eq!((locks(), moved.folios, moved.dead), (0, 0, 0), "empty batches hold no lock");
    machine.end();
    stepped::assert_quiet();
}
