//! Which CPUs are interrupted for an invalidation, by policy, and what they flush.

use crate::table::common::{World, map, page};
use mmscale_arch::{
    Asid, Cpu as _, CpuId, Machine as _, Op, PageSize, Pfn, Translation, VmaRange, Vpn,
};
use mmscale_mm::pgtable::{Gather, MemAccess, PageTable};
use mmscale_mm::smp::{CallPolicy, ShootdownPolicy, SmpConfig, Wait};
use mmscale_mm::tlb::{
    Extent, LIMBO_BATCH_PAGES, LIMBO_BATCHES, Leave, Parked, Tables, UnmapBatch,
};
use mmscale_stepped::{self as stepped, Stepped};
use std::cell::Cell;
use std::rc::Rc;

const POLICIES: [CallPolicy; CallPolicy::ALL.len()] = CallPolicy::ALL;
const AT: Vpn = Vpn::new(5);

/// Two pages that all CPUs have used; the caller is on CPU 0.
fn used_on_all(cpus: usize, policy: CallPolicy) -> (World, PageTable<Stepped>) {
    used_by(cpus, SmpConfig { policy, ..SmpConfig::default() })
}

fn used_by(cpus: usize, smp: SmpConfig) -> (World, PageTable<Stepped>) {
    let world = World::with_smp(cpus, smp);
    let table = world.table();
    map(&world, &table, AT.get(), page(Pfn::new(3)));
    map(&world, &table, AT.get() + 1, page(Pfn::new(4)));
    for cpu in (0..cpus).rev() {
        stepped::set_cpu(cpu);
        read(&world, &table);
    }
    (world, table)
}

fn read(world: &World, table: &PageTable<Stepped>) {
    for at in [AT, AT.offset(1)] {
        let _ = table.access(world.on(), at, MemAccess::Read, |_| ());
    }
}

fn take(world: &World, table: &PageTable<Stepped>, at: Vpn) {
    assert!(table.lock_pte(world.on(), at).unwrap().take(at).is_present());
}

fn one(at: Vpn) -> Extent {
    Extent::Range(VmaRange::with_pages(at, 1).unwrap(), PageSize::Base)
}

fn go_idle(world: &World, cpu: usize) {
    let back = Stepped::cpu().index();
    stepped::set_cpu(cpu);
    stepped::interrupt(|| world.tlb.enter_lazy());
    stepped::set_cpu(back);
}

fn lens(cpus: usize) -> Vec<usize> {
    (0..cpus).map(stepped::tlb_len).collect()
}

#[test]
fn a_cpu_that_uses_the_address_space_is_interrupted_and_flushes_only_the_pages() {
    for policy in POLICIES {
        let (world, table) = used_on_all(4, policy);
        go_idle(&world, 3);
        take(&world, &table, AT);
        let all = stepped::work_count(Op::TlbFlushAll);
        let _ = table.flush(world.on(), one(AT));
        assert_eq!(lens(4), [1, 1, 1, 2], "{policy:?}");
        assert_eq!(stepped::work_count(Op::TlbFlushAll), all, "{policy:?}: page by page");
        let stats = world.tlb.stats();
        assert_eq!((stats.ipis_sent, stats.flushes), (2, 1), "{policy:?}");
        stepped::assert_quiet();
    }
}

/// The CPU that flushes first, and whether interrupts were sent before, as Linux had it before
/// 5.13 and since.
#[test]
fn the_calling_cpu_flushes_while_the_others_do_or_in_turn() {
    type Flush = fn(&World, &PageTable<Stepped>);
    let of_pages: Flush = |world, table| _ = table.flush(world.on(), one(AT));
    let of_a_batch: Flush = |world, table| {
        let mut batch = UnmapBatch::new();
        world.tlb.defer(&mut batch, table.asid(), one(AT));
        world.tlb.flush_batch(&mut batch, Wait::Spin);
    };
    let of_the_kernel: Flush = |world, _| {
        let range = VmaRange::with_pages(AT, 1).expect("a page");
        world.tlb.flush_kernel_range(range, Wait::Spin);
    };
    for (flush, op, in_turn) in [
        (of_pages, Op::TlbFlushPage, (0, 0)),
        (of_a_batch, Op::TlbFlushAll, (0, 0)),
        (of_the_kernel, Op::TlbFlushPage, (1, 1)),
    ] {
        for (shootdown, expected) in
            [(ShootdownPolicy::Together, (0, 1)), (ShootdownPolicy::InTurn, in_turn)]
        {
            let (world, table) = used_by(2, SmpConfig { shootdown, ..SmpConfig::default() });
            take(&world, &table, AT);
            let first = Rc::new(Cell::new(None));
            let (seen, tlb) = (Rc::clone(&first), Rc::clone(&world.tlb));
            let now = move || (Stepped::cpu().index(), tlb.stats().ipis_sent);
            let flushes = stepped::work_count(op);
            stepped::at_op(op, move || seen.set(Some(now())));
            flush(&world, &table);
            assert_eq!(first.get(), Some(expected), "{shootdown:?} {op:?}");
            let flushes = stepped::work_count(op) - flushes;
            assert_eq!(flushes, 2, "{shootdown:?}: each CPU flushes once");
            assert_eq!(world.tlb.stats().ipis_sent, 1);
            stepped::assert_quiet();
        }
    }
}

#[test]
fn a_cpu_that_is_several_invalidations_behind_flushes_all_unless_it_knows_them() {
    for policy in POLICIES {
        let (world, table) = used_on_all(2, policy);
        take(&world, &table, AT);
        let (mut batch, mut more) = (UnmapBatch::new(), UnmapBatch::new());
        world.tlb.defer(&mut batch, table.asid(), one(AT.offset(9)));
        world.tlb.defer(&mut more, table.asid(), one(AT));
        let all = stepped::work_count(Op::TlbFlushAll);
        let _ = table.flush(world.on(), one(AT.offset(7)));
        let expected = if policy == CallPolicy::Requests { (1, 0) } else { (0, 2) };
        let found = (stepped::tlb_len(1), stepped::work_count(Op::TlbFlushAll) - all);
        assert_eq!(found, expected, "{policy:?}");
    }
}

#[test]
fn idle_cpus_are_called_where_tables_are_freed_but_not_with_requests() {
    for policy in POLICIES {
        let (world, table) = used_on_all(3, policy);
        let switches = stepped::work_count(Op::MmSwitch);
        go_idle(&world, 1);
        let own = stepped::work_count(Op::MmSwitch) - switches;
        assert_eq!(own, u64::from(policy == CallPolicy::Requests), "{policy:?}");
        take(&world, &table, AT);
        let _ = world.tlb.flush_with(table.asid(), one(AT), Tables::Freed, Wait::Sleep);
        let (sent, users) = (world.tlb.stats().ipis_sent, world.tlb.cpus_of(table.asid()));
        match policy {
            CallPolicy::Requests => assert_eq!((sent, users), (1, 3)),
            CallPolicy::Stock | CallPolicy::Posted => assert_eq!((sent, users), (2, 2)),
        }
        // It flushes missed invalidations when it returns from idle.
        stepped::set_cpu(1);
        assert!(table.access(world.on(), AT, MemAccess::Read, |_| ()).is_err(), "{policy:?}");
    }
}

#[test]
fn a_batch_is_flushed_by_one_round_of_interrupts() {
    for policy in POLICIES {
        let (world, table) = used_on_all(3, policy);
        let other = world.table();
        map(&world, &other, AT.get(), page(Pfn::new(9)));
        stepped::set_cpu(2);
        let _ = other.access(world.on(), AT, MemAccess::Read, |_| ());
        stepped::set_cpu(0);
        let mut batch = UnmapBatch::new();
        for (table, at) in [(&table, AT), (&table, AT.offset(1)), (&other, AT)] {
            take(&world, table, at);
            world.tlb.defer(&mut batch, table.asid(), one(at));
        }
        assert!(world.tlb.is_deferred(table.asid()) && !batch.is_empty());
        assert_eq!((lens(3)[0], lens(3)[1], world.tlb.stats().ipis_sent), (2, 2, 0));
        world.tlb.flush_batch(&mut batch, Wait::Sleep);
        assert!(batch.is_empty() && !world.tlb.is_deferred(table.asid()));
        // CPU 2 caches two translations of the first address space, which it does not use now.
        assert_eq!((lens(3), world.tlb.stats().ipis_sent), (vec![0, 0, 2], 2), "{policy:?}");
    }
}

#[test]
fn an_unmap_of_taken_entries_flushes_deferred_invalidations() {
    for policy in POLICIES {
        let (world, table) = used_on_all(2, policy);
        take(&world, &table, AT);
        let mut batch = UnmapBatch::new();
        world.tlb.defer(&mut batch, table.asid(), one(AT));
        // An munmap that finds nothing.
        Gather::new(&table).finish(world.on(), &mut crate::table::common::ignore);
        assert!(lens(2) == [0, 0] || lens(2) == [1, 1], "{policy:?}: {:?}", lens(2));
        assert!(!world.tlb.is_deferred(table.asid()));
        let sent = world.tlb.stats().ipis_sent;
        Gather::new(&table).finish(world.on(), &mut crate::table::common::ignore);
        assert_eq!(world.tlb.stats().ipis_sent, sent, "{policy:?}: once is enough");
    }
}

#[test]
fn the_kernels_own_range_is_flushed_on_all_cpus() {
    for policy in POLICIES {
        let world = World::with(3, policy);
        let known =
            Translation { pfn: Pfn::new(1), size: PageSize::Base, writable: true, dirty: true };
        for cpu in 0..3 {
            stepped::set_cpu(cpu);
            let _off = mmscale_arch::sync::IrqGuard::<Stepped>::new();
            Stepped::tlb_load(Some(Asid::KERNEL));
            Stepped::tlb_fill(Asid::KERNEL, AT, known);
            Stepped::tlb_fill(Asid::KERNEL, AT.offset(20), known);
            Stepped::tlb_fill(Asid::KERNEL, AT.offset(40), known);
            Stepped::tlb_load(None);
        }
        go_idle(&world, 0);
        world.tlb.flush_kernel_range(VmaRange::with_pages(AT, 33).unwrap(), Wait::Spin);
        assert_eq!((lens(3), world.tlb.stats().ipis_sent), (vec![1; 3], 2), "{policy:?}");
        world.tlb.flush_kernel_range(VmaRange::with_pages(AT, 34).unwrap(), Wait::Spin);
        assert_eq!(lens(3), [0; 3], "{policy:?}");
    }
}

#[test]
fn many_callers_of_one_cpu_send_it_one_interrupt_with_requests() {
    let (world, table) = used_on_all(4, CallPolicy::Requests);
    for cpu in 0..3 {
        stepped::set_cpu(cpu);
        let _ = world.tlb.begin(table.asid(), one(AT));
    }
    // Each CPU has reached the three others, but a CPU that was reached already is not reached
    // again.
    let stats = world.tlb.stats();
    assert_eq!((stats.ipis_sent, stats.ipis_elided), (4, 5));
    crate::table::common::interrupt_all(&world.tlb);
    assert_eq!(world.tlb.stats().ipis_sent, 4);
}

#[test]
fn frames_leave_limbo_when_no_cpu_uses_them_and_not_before() {
    let (world, table) = used_on_all(3, CallPolicy::Requests);
    let parked = |pfn| Parked { pfn: Pfn::new(pfn), count: 1 };
    let leave = |how| {
        let mut left = Vec::new();
        world.tlb.leave_limbo(how, |proof, some| {
            assert_eq!(proof.asid(), table.asid());
            left.extend(some.iter().map(|frame| frame.pfn.index()));
        });
        left
    };
    take(&world, &table, AT);
    let begun = world.tlb.begin(table.asid(), one(AT));
    assert!(world.tlb.park(begun, [parked(3), parked(8)].into_iter()));
    stepped::advance(5_000);
    assert_eq!((world.tlb.in_limbo(), leave(Leave::Passed)), (2, vec![]));
    // One goes idle, the other one responds.
    go_idle(&world, 1);
    assert_eq!(leave(Leave::Passed), []);
    crate::table::common::interrupt_all(&world.tlb);
    assert_eq!((leave(Leave::Passed), world.tlb.in_limbo()), (vec![3, 8], 0));
    // A task that is short of memory waits.
    let begun = world.tlb.begin(table.asid(), one(AT));
    assert!(world.tlb.park(begun, [parked(5)].into_iter()));
    assert_eq!((leave(Leave::Passed), leave(Leave::All)), (vec![], vec![5]));
    let stats = world.tlb.stats();
    assert_eq!((stats.frames_in_limbo_max, stats.limbo_age_max_ns), (2, 5_000));
}

#[test]
fn limbo_is_bounded() {
    let (world, table) = used_on_all(2, CallPolicy::Requests);
    let begun = world.tlb.begin(table.asid(), one(AT));
    let frames = |count: usize| (0..count).map(|at| Parked { pfn: Pfn::new(at), count: 1 });
    assert!(world.tlb.park(begun, frames(4000)));
    assert!(!world.tlb.park(begun, frames(97)) && world.tlb.in_limbo() == 4000);
    assert!(world.tlb.park(begun, frames(96)));
    assert_eq!(world.tlb.leave_limbo(Leave::All, |_, _| ()), 4096);
}

#[test]
fn reclaims_part_of_limbo_is_bounded_and_takes_clean_batches_only() {
    let (world, table) = used_on_all(2, CallPolicy::Requests);
    let defer = || {
        let mut batch = UnmapBatch::new();
        world.tlb.defer(&mut batch, table.asid(), one(AT));
        batch
    };
    let pages = [Pfn::new(3); LIMBO_BATCH_PAGES];
    for spoil in [UnmapBatch::note_dirty, UnmapBatch::note_kept] {
        let mut batch = defer();
        spoil(&mut batch);
        assert!(!world.tlb.park_batch(&mut batch, &pages) && !batch.is_empty());
        world.tlb.flush_batch(&mut batch, Wait::Spin);
    }
    for nth in 0..LIMBO_BATCHES {
        assert!(world.tlb.park_batch(&mut defer(), &pages), "{nth}");
    }
    let mut batch = defer();
    assert!(!world.tlb.park_batch(&mut batch, &pages) && !batch.is_empty());
    assert_eq!(world.tlb.in_limbo(), LIMBO_BATCHES * LIMBO_BATCH_PAGES);
    assert_eq!(world.tlb.leave_limbo_batches(Leave::Passed, |_| 1), 0);
    // A flush for another reason completes the deferred invalidations too.
    world.tlb.flush_batch(&mut batch, Wait::Spin);
    assert_eq!(world.tlb.leave_limbo_batches(Leave::Passed, |pages| pages.len() as u32), 1024);
    let stats = world.tlb.stats();
    assert_eq!((stats.frames_in_limbo_max, world.tlb.in_limbo()), (1024, 0));
}

#[test]
fn no_flush_waits_for_a_cpu_that_has_stopped() {
    for policy in POLICIES {
        let (world, table) = used_on_all(2, policy);
        go_idle(&world, 1);
        stepped::set_cpu(1);
        stepped::interrupt(|| assert!(world.tlb.smp().cpu_dying()));
        stepped::set_cpu(0);
        let _ = world.tlb.flush_with(table.asid(), one(AT), Tables::Freed, Wait::Sleep);
        assert_eq!(world.tlb.stats().ipis_sent, 0, "{policy:?}");
        world.tlb.cpu_dead(CpuId::new(1));
        assert_eq!(world.tlb.cpus_of(table.asid()), 1);
    }
}
