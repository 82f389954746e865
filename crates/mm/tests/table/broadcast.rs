//! Invalidations by broadcast on a machine that has them for a limited number of address spaces.

use crate::table::common::{World, map, page};
use mmscale_arch::{Cpu as _, PageSize, Pfn, VmaRange, Vpn};
use mmscale_mm::pgtable::{MemAccess, PageTable};
use mmscale_mm::smp::{BroadcastPolicy, CallPolicy, SmpConfig, Wait};
use mmscale_mm::tlb::{Extent, UnmapBatch};
use mmscale_stepped::{self as stepped, Stepped};

const AT: Vpn = Vpn::new(5);

/// A machine whose broadcasts serve `spaces` address spaces.
fn world(cpus: usize, spaces: u32, smp: SmpConfig) -> World {
    let world = World::with_smp(cpus, smp);
    stepped::set_broadcast(true);
    stepped::set_broadcast_spaces(Some(spaces));
    world
}

/// An address space with two pages that the first `cpus` CPUs have used; the caller is on CPU 0.
fn used_on(world: &World, cpus: usize) -> PageTable<Stepped> {
    let table = world.table();
    map(world, &table, AT.get(), page(Pfn::new(3)));
    map(world, &table, AT.get() + 1, page(Pfn::new(4)));
    (0..cpus).rev().for_each(|cpu| use_on(world, &table, cpu));
    table
}

fn use_on(world: &World, table: &PageTable<Stepped>, cpu: usize) {
    stepped::set_cpu(cpu);
    for at in [AT, AT.offset(1)] {
        let _ = table.access(world.on(), at, MemAccess::Read, |_| ());
    }
}

/// Whether `cpu` reaches the page at `at`.
fn reaches(world: &World, table: &PageTable<Stepped>, cpu: usize, at: Vpn) -> bool {
    let back = Stepped::cpu().index();
    stepped::set_cpu(cpu);
    let found = table.access(world.on(), at, MemAccess::Read, |_| ()).is_ok();
    stepped::set_cpu(back);
    found
}

fn one(at: Vpn) -> Extent {
    Extent::Range(VmaRange::with_pages(at, 1).unwrap(), PageSize::Base)
}

/// Flushes one page; returns the number of interrupts.
fn interrupts(world: &World, table: &PageTable<Stepped>, at: Vpn) -> u64 {
    let before = world.tlb.stats().ipis_sent;
    let _ = table.flush(world.on(), one(at));
    world.tlb.stats().ipis_sent - before
}

fn take(world: &World, table: &PageTable<Stepped>, at: Vpn) {
    assert!(table.lock_pte(world.on(), at).unwrap().take(at).is_present());
}

#[test]
fn an_address_space_on_four_cpus_joins_and_then_interrupts_none() {
    for policy in [CallPolicy::Stock, CallPolicy::Posted] {
        let world = world(4, 9, SmpConfig { policy, ..SmpConfig::default() });
        let table = used_on(&world, 4);
        // The first finds it active on four CPUs, the second tells them, the others broadcast.
        let sent: Vec<_> = (9..13).map(|at| interrupts(&world, &table, Vpn::new(at))).collect();
        assert_eq!(sent, [3, 3, 0, 0], "{policy:?}");
        use_on(&world, &table, 2);
        stepped::set_cpu(0);
        take(&world, &table, AT);
        assert_eq!(interrupts(&world, &table, AT), 0);
        assert!(!reaches(&world, &table, 2, AT) && reaches(&world, &table, 2, AT.offset(1)));
    }
}

#[test]
fn fewer_cpus_another_policy_and_requests_are_interrupted() {
    let stock = SmpConfig::default();
    let none = SmpConfig { broadcast: BroadcastPolicy::None, ..stock };
    let requests = SmpConfig { policy: CallPolicy::Requests, ..stock };
    for (cpus, smp) in [(3, stock), (4, none), (4, requests)] {
        let world = world(cpus, 9, smp);
        let table = used_on(&world, cpus);
        for _ in 0..4 {
            // With requests, a CPU that is up to date is interrupted for a new generation too.
            assert_eq!(interrupts(&world, &table, AT), cpus as u64 - 1, "{cpus} CPUs, {smp:?}");
        }
    }
}

/// A CPU that has left an address space still has its translations. It must not use them when it
/// returns, whether the address space has joined meanwhile or not.
#[test]
fn a_cpu_that_returns_has_no_old_translation() {
    for flushes in 1..4 {
        let world = world(5, 9, SmpConfig::default());
        let (table, other) = (used_on(&world, 5), used_on(&world, 0));
        use_on(&world, &other, 4);
        stepped::set_cpu(0);
        take(&world, &table, AT);
        for _ in 0..flushes {
            assert!(interrupts(&world, &table, AT) <= 3, "CPU 4 is elsewhere");
        }
        assert!(!reaches(&world, &table, 4, AT), "{flushes} flushes");
        assert!(reaches(&world, &table, 4, AT.offset(1)), "{flushes} flushes");
    }
}

#[test]
fn a_number_goes_to_one_address_space_and_comes_back_at_its_end() {
    let world = world(4, 1, SmpConfig::default());
    let (first, second) = (used_on(&world, 4), used_on(&world, 4));
    (0..4).for_each(|cpu| use_on(&world, &second, cpu));
    let joined = |table: &PageTable<Stepped>| {
        (0..3).map(|_| interrupts(&world, table, AT)).last() == Some(0)
    };
    stepped::set_cpu(0);
    assert!(joined(&second));
    (0..4).for_each(|cpu| use_on(&world, &first, cpu));
    stepped::set_cpu(0);
    assert!(!joined(&first), "there is only one number");
    for at in [AT, AT.offset(1)] {
        take(&world, &second, at);
    }
    world.end(second);
    assert!(joined(&first));
}

#[test]
fn a_batch_and_the_kernels_range_are_broadcast_too() {
    let world = world(4, 9, SmpConfig::default());
    let table = used_on(&world, 4);
    (0..2).for_each(|_| _ = interrupts(&world, &table, Vpn::new(9)));
    (0..4).for_each(|cpu| use_on(&world, &table, cpu));
    stepped::set_cpu(0);
    let before = world.tlb.stats().ipis_sent;
    let mut batch = UnmapBatch::new();
    take(&world, &table, AT);
    world.tlb.defer(&mut batch, table.asid(), one(AT));
    world.tlb.flush_batch(&mut batch, Wait::Sleep);
    assert!((0..4).all(|cpu| !reaches(&world, &table, cpu, AT)));
    world.tlb.flush_kernel_range(VmaRange::with_pages(AT, 1).unwrap(), Wait::Sleep);
    assert_eq!(world.tlb.stats().ipis_sent, before);
}
