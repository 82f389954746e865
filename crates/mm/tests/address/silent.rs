//! Which CPUs are interrupted when address spaces end, and which frames wait in limbo instead.

use crate::address::machine::{Machine, range};
use mmscale_arch::{CpuId, NodeId, Vpn};
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::reclaim::ReclaimRef;
use mmscale_mm::smp::CallPolicy;
use mmscale_mm::space::{Advice, ExitPolicy, MapRequest, Place, ReapLock, Reaped, Space};
use mmscale_mm::tlb::Leave;
use mmscale_stepped::{self as stepped, Stepped};
use std::sync::Arc;

const POLICIES: [CallPolicy; CallPolicy::ALL.len()] = CallPolicy::ALL;
const EXITS: [ExitPolicy; ExitPolicy::ALL.len()] = ExitPolicy::ALL;
const AT: u64 = 512 * 8 - 20;
const PAGES: u64 = 40;

/// An address space with a thread on each of three CPUs, all of which have used all pages. The
/// caller is on CPU 0.
fn used(policy: CallPolicy, exit: ExitPolicy) -> (Machine, Arc<Space<Stepped>>) {
    let machine = Machine::boot(3, |config| {
        config.smp.policy = policy;
        config.space.exit = exit;
        config.swap.pages = 100;
    });
    let space = machine.space();
    let request = MapRequest::new(PAGES).at(Place::Fixed(Vpn::new(AT)));
    space.mmap(machine.on(), request).expect("there is memory");
    for cpu in [2, 1, 0] {
        stepped::set_cpu(cpu);
        (0..PAGES).for_each(|page| machine.write(&space, AT + page, 1).expect("there is memory"));
    }
    (machine, space)
}

/// Ends the threads.
fn threads_end(machine: &Machine) {
    for cpu in [2, 1, 0] {
        stepped::set_cpu(cpu);
        machine.mm.tlb().exit_mm();
    }
}

#[test]
fn the_exit_of_a_dead_address_space_sends_no_interrupt_with_requests() {
    for policy in POLICIES {
        for exit in EXITS {
            let (machine, space) = used(policy, exit);
            space.kill();
            threads_end(&machine);
            machine.exit(space);
            let sent = machine.mm.call_stats().ipis_sent;
            match policy {
                CallPolicy::Requests => assert_eq!(sent, 0, "{exit:?}"),
                // Tables are freed: the idle CPUs must not read them.
                CallPolicy::Stock | CallPolicy::Posted => {
                    assert_eq!(sent, 2, "{policy:?} {exit:?}")
                }
            }
            machine.end();
        }
    }
}

#[test]
fn a_reaper_of_a_living_victim_waits_for_its_cpus_or_leaves_the_frames_in_limbo() {
    for policy in POLICIES {
        for exit in EXITS {
            let (machine, space) = used(policy, exit);
            space.kill();
            let held = machine.mm.verify().expect("frames add up").held;
            assert_eq!(space.reap(machine.on(), ReapLock::Wait), Reaped::Done);
            let freed = held - machine.mm.verify().expect("frames add up").held;
            let limbo = machine.mm.tlb().in_limbo() as u64;
            if policy == CallPolicy::Requests {
                assert_eq!((freed, limbo), (0, PAGES), "{exit:?}");
                assert_eq!(machine.on().leave_limbo(Leave::Passed), 0, "no CPU has responded");
                machine.finish_ios(0);
                assert_eq!(machine.on().leave_limbo(Leave::Passed) as u64, PAGES);
            } else {
                // LRU batches keep a few.
                assert!(freed > PAGES / 2 && limbo == 0, "{policy:?} {exit:?}: {freed}, {limbo}");
            }
            assert_eq!(machine.mm.tlb().in_limbo(), 0);
            threads_end(&machine);
            machine.exit(space);
            machine.end();
        }
    }
}

#[test]
fn an_allocation_without_memory_takes_frames_in_limbo_first() {
    let (machine, space) = used(CallPolicy::Requests, ExitPolicy::Stock);
    space.kill();
    assert_eq!(space.reap(machine.on(), ReapLock::Wait), Reaped::Done);
    let on = machine.on();
    let scope = ReclaimRef { memory: on.memory, swap: on.swap, rmap: &on };
    let freed = on.reclaim.direct(scope, NodeId::new(0), 1, None);
    let counters = on.reclaim.counters();
    assert_eq!((u64::from(freed), counters.scanned), (PAGES, 0));
    let stats = machine.mm.call_stats();
    assert_eq!((stats.frames_in_limbo_max, machine.mm.tlb().in_limbo()), (PAGES, 0));
    threads_end(&machine);
    machine.exit(space);
    machine.end();
}

#[test]
fn reclaim_flushes_once_for_many_pages() {
    for policy in POLICIES {
        let (machine, space) = used(policy, ExitPolicy::Stock);
        let part = range(AT, PAGES);
        assert_eq!(space.madvise(machine.on(), part, Advice::PageOut), Ok(()));
        machine.finish_ios(usize::MAX);
        // All are in memory, clean and in the swap cache.
        (0..PAGES).for_each(|page| assert_eq!(machine.read(&space, AT + page), Ok(1)));
        for cpu in [1, 2, 0] {
            stepped::set_cpu(cpu);
            (0..PAGES).for_each(|page| assert_eq!(machine.read(&space, AT + page), Ok(1)));
        }
        let before = machine.mm.call_stats();
        assert_eq!(space.madvise(machine.on(), part, Advice::PageOut), Ok(()));
        let after = machine.mm.call_stats();
        if policy == CallPolicy::Requests {
            machine.finish_ios(0);
            machine.on().leave_limbo(Leave::Passed);
        }
        let (flushes, sent) = (after.flushes - before.flushes, after.ipis_sent - before.ipis_sent);
        assert!(flushes <= 4 && sent <= 2 * flushes, "{policy:?}: {flushes} flushes, {sent} sent");
        // The pages that were on a list; LRU batches keep a few.
        let left = machine.mincore(&space, AT, PAGES).iter().filter(|&&there| there).count();
        assert!(left < PAGES as usize / 2, "{policy:?}: {left}");
        for cpu in 0..3 {
            assert!(stepped::tlb_len(cpu) <= left, "{policy:?}: {}", CpuId::new(cpu));
        }
        threads_end(&machine);
        machine.exit(space);
        machine.end();
    }
}

/// Like [`used`], with all pages in memory, clean and in the swap cache.
fn clean(policy: CallPolicy) -> (Machine, Arc<Space<Stepped>>) {
    let (machine, space) = used(policy, ExitPolicy::Stock);
    assert_eq!(space.madvise(machine.on(), range(AT, PAGES), Advice::PageOut), Ok(()));
    machine.finish_ios(usize::MAX);
    for cpu in [1, 2, 0] {
        stepped::set_cpu(cpu);
        (0..PAGES).for_each(|page| assert_eq!(machine.read(&space, AT + page), Ok(1)));
    }
    (machine, space)
}

/// Like [`clean`]; then reclaims the pages.
fn paged_out(policy: CallPolicy) -> (Machine, Arc<Space<Stepped>>) {
    let (machine, space) = clean(policy);
    assert_eq!(space.madvise(machine.on(), range(AT, PAGES), Advice::PageOut), Ok(()));
    (machine, space)
}

#[test]
fn clean_pages_that_reclaim_takes_wait_in_limbo_and_are_had_back_from_there() {
    let (machine, space) = paged_out(CallPolicy::Requests);
    let held = || machine.mm.verify().expect("frames add up").held;
    let (before, limbo) = (held(), machine.mm.tlb().in_limbo() as u64);
    assert!(limbo > PAGES / 2, "{limbo}");
    assert_eq!(machine.on().leave_limbo(Leave::Passed), 0, "no CPU has responded");
    // A write goes to the page that other CPUs may still read.
    let page = AT;
    assert_eq!(machine.write(&space, page, 7), Ok(()));
    for cpu in [1, 2, 0] {
        stepped::set_cpu(cpu);
        assert_eq!(machine.read(&space, page), Ok(7), "CPU {cpu}");
    }
    machine.finish_ios(0);
    assert_eq!(u64::from(machine.on().leave_limbo(Leave::Passed)), limbo - 1);
    assert_eq!((machine.mm.tlb().in_limbo(), held()), (0, before - (limbo - 1)));
    assert_eq!(machine.read(&space, page), Ok(7));
    (0..PAGES).filter(|at| AT + at != page).for_each(|at| {
        assert_eq!(machine.read(&space, AT + at), Ok(1));
    });
    threads_end(&machine);
    machine.exit(space);
    machine.end();
}

/// A page whose entry reclaim took and which it then has to keep: other CPUs may use it by the old
/// entry, and nothing but the flush tells when they do not.
#[test]
fn reclaim_flushes_at_once_what_it_unmaps_and_keeps() {
    for stays in [false, true] {
        let (machine, space) = clean(CallPolicy::Requests);
        let memory = machine.on().memory;
        let at = Vpn::new(AT + 5);
        let pfn = space.access(machine.on(), at, MemAccess::Read, |pfn| pfn).expect("it is mapped");
        memory.folios.get(pfn);
        if stays {
            // Its content would have to be written, which its user may still change.
            memory.folios.set(pfn, FolioFlags::DIRTY);
        }
        assert_eq!(space.madvise(machine.on(), range(AT, 20), Advice::PageOut), Ok(()));
        assert_eq!(machine.mm.tlb().in_limbo() > 0, !stays);
        memory.put(pfn);
        assert_eq!(machine.read(&space, at.get()), Ok(1));
        machine.finish_ios(0);
        machine.on().leave_limbo(Leave::Passed);
        threads_end(&machine);
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn an_unmap_that_promises_a_flush_waits_for_frames_in_limbo() {
    let (machine, space) = paged_out(CallPolicy::Requests);
    assert!(machine.mm.tlb().is_deferred(space.asid()));
    space.munmap(machine.on(), range(AT, PAGES)).expect("it is mapped");
    assert!(!machine.mm.tlb().is_deferred(space.asid()));
    (0..3).for_each(|cpu| assert_eq!(stepped::tlb_len(cpu), 0));
    // All CPUs have flushed: parked folios are freed.
    machine.on().leave_limbo(Leave::Passed);
    assert_eq!(machine.mm.tlb().in_limbo(), 0);
    threads_end(&machine);
    machine.exit(space);
    machine.end();
}

#[test]
fn an_allocation_without_memory_takes_folios_of_reclaim_in_limbo() {
    let (machine, space) = paged_out(CallPolicy::Requests);
    let (on, limbo) = (machine.on(), machine.mm.tlb().in_limbo());
    let scope = ReclaimRef { memory: on.memory, swap: on.swap, rmap: &on };
    let before = on.reclaim.counters();
    let freed = on.reclaim.direct(scope, NodeId::new(0), 1, None) as usize;
    let after = on.reclaim.counters();
    assert!(freed >= limbo && machine.mm.tlb().in_limbo() == 0, "{freed} of {limbo}");
    assert_eq!(after.freed - before.freed, freed as u64);
    threads_end(&machine);
    machine.exit(space);
    machine.end();
}

#[test]
fn there_is_no_limbo_with_other_policies() {
    for policy in [CallPolicy::Stock, CallPolicy::Posted] {
        let (machine, space) = paged_out(policy);
        assert_eq!(machine.mm.call_stats().frames_in_limbo_max, 0, "{policy:?}");
        threads_end(&machine);
        machine.exit(space);
        machine.end();
    }
}
