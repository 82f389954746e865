//! Drains: of this CPU, of other CPUs by work, of dead CPUs, and by populate under each policy.

use crate::lru::machine::{ALL, ANON, FILE, Machine, locks, moves};
use mmscale_arch::{Cpu as _, CpuId};
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::{BATCH, LruPolicy, LruViolation};
use mmscale_mm::work::WorkItem;
use mmscale_stepped::{self as stepped, Stepped};

#[test]
fn a_drain_moves_every_kind_of_batch_of_this_cpu_only() {
    for policy in ALL {
        let machine = Machine::boot(policy, 2);
        let memory = machine.memory();
        let files = [0; 3].map(|_| machine.listed(FILE));
        let anon = machine.listed(ANON);
        memory.activate(files[0]);
        memory.rotate(files[1]);
        memory.lazyfree(anon);
        let pending = machine.fault(ANON);
        let elsewhere = machine.on(1, || machine.fault(ANON));
        assert_eq!(machine.audit().gathered, 5);
        memory.drain();
        let audit = machine.audit();
        assert_eq!((audit.gathered, audit.pending), (1, 1), "the other CPU's");
        assert!(machine.flags(pending).contains(FolioFlags::LRU));
        assert!(machine.flags(elsewhere).contains(FolioFlags::PENDING));
        let mapped = [files[0], files[1], files[2], anon, pending, elsewhere];
        mapped.into_iter().for_each(|pfn| machine.unmap(pfn));
        machine.end();
    }
}

#[test]
fn a_blanket_drain_is_one_but_under_lazy() {
    for policy in ALL {
        let machine = Machine::boot(policy, 1);
        let pfn = machine.fault(ANON);
        machine.memory().blanket_drain();
        let listed = machine.flags(pfn).contains(FolioFlags::LRU);
        assert_eq!(listed, policy != LruPolicy::Lazy);
        machine.unmap(pfn);
        machine.end();
    }
}

#[test]
fn the_drain_work_empties_the_cpu_that_it_runs_on() {
    for policy in ALL {
        let machine = Machine::boot(policy, 3);
        let folios: Vec<_> = (0..3).map(|cpu| machine.on(cpu, || machine.fault(ANON))).collect();
        machine.mm.work().queue_on(CpuId::new(1), WorkItem::LruDrain(CpuId::new(1)));
        machine.work_on(1);
        let listed = |cpu: usize| machine.flags(folios[cpu]).contains(FolioFlags::LRU);
        assert_eq!([0, 1, 2].map(listed), [false, true, false]);
        folios.into_iter().for_each(|pfn| machine.unmap(pfn));
        machine.end();
    }
}

#[test]
fn a_dead_cpus_batches_are_taken_over() {
    for policy in ALL {
        let machine = Machine::boot(policy, 2);
        let alive = machine.on(1, || {
            let folios: Vec<_> = (0..BATCH - 1).map(|_| machine.fault(ANON)).collect();
            folios[1..].iter().for_each(|&pfn| machine.unmap(pfn));
            folios[0]
        });
        let active = machine.listed(ANON);
        machine.on(1, || machine.memory().activate(active));
        machine.mm.work().close(CpuId::new(1));
        machine.work_on(1);
        stepped::set_online(1, false);
        machine.mm.cpu_down_prepare(CpuId::new(1));
        assert_eq!(machine.memory().verify(), Err(LruViolation::LeftBehind(CpuId::new(1))));
        machine.mm.cpu_dead(CpuId::new(1));
        let audit = machine.audit();
        assert_eq!((audit.folios, audit.listed, audit.gathered), (2, 2, 0));
        assert!(machine.flags(active).contains(FolioFlags::ACTIVE));
        assert_eq!(moves().unmapped, 0);
        [alive, active].into_iter().for_each(|pfn| machine.unmap(pfn));
        machine.end();
    }
}

#[test]
fn at_the_end_of_a_run_batches_are_emptied_before_page_caches() {
    for policy in ALL {
        let machine = Machine::boot(policy, 2);
        for cpu in 0..2 {
            machine.on(cpu, || {
                (0..20).for_each(|_| {
                    let pfn = machine.fault(ANON);
                    machine.unmap(pfn);
                });
            });
        }
        machine.end();
    }
}

#[test]
fn rotation_comes_from_interrupts_too() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    let memory = machine.memory();
    let folios: Vec<_> = (0..40).map(|_| machine.listed(ANON)).collect();
    // The first 31 are a full batch: it is drained in the interrupt.
    folios[..32].iter().for_each(|&pfn| stepped::interrupt(|| memory.rotate(pfn)));
    assert_eq!(machine.audit().gathered, 1);
    memory.drain();
    let order = machine.oldest_first(mmscale_mm::lru::LruList::InactiveAnon);
    let turned: Vec<_> = folios[..32].iter().rev().chain(&folios[32..]).copied().collect();
    assert_eq!(order, turned, "the last one that was turned is the first to go");
    folios.into_iter().for_each(|pfn| machine.unmap(pfn));
    machine.end();
}

/// Under `Lazy` a folio whose write-out completes may be in a slot, as after a putback.
#[test]
fn a_folio_that_is_rotated_in_its_slot_joins_at_the_end() {
    let machine = Machine::boot(LruPolicy::Lazy, 1);
    let memory = machine.memory();
    let folios: Vec<_> = (0..8).map(|_| machine.listed(ANON)).collect();
    for &pfn in &folios[4..] {
        assert!(memory.isolate(pfn));
        memory.putback_now(&[pfn]);
    }
    folios[6..].iter().for_each(|&pfn| stepped::interrupt(|| memory.rotate_waiting(pfn)));
    assert_eq!(machine.audit().pending, 4, "no lock was taken for that");
    assert!(folios[4..].iter().all(|&pfn| memory.demand(pfn)));
    let order = machine.oldest_first(mmscale_mm::lru::LruList::InactiveAnon);
    let turned: Vec<_> = folios[6..].iter().rev().chain(&folios[..6]).copied().collect();
    assert_eq!(order, turned);
    folios.into_iter().for_each(|pfn| machine.unmap(pfn));
    machine.end();
}

#[test]
fn a_cpu_without_work_takes_no_lock_to_drain() {
    for policy in ALL {
        let machine = Machine::boot(policy, 1);
        machine.memory().drain();
        assert_eq!((locks(), moves().batches), (0, 0));
        assert_eq!(Stepped::cpu(), CpuId::new(0));
    }
}
