//! Pages of reclaim and addresses of the kernel that wait until no CPU has a translation of them.

use crate::calls::{POLICIES, seeds};
use crate::paging::{World, machine, range};
use mmscale_arch::{Atomic, Cpu, Ipi, Machine as _, Order, PageSize, Pfn, Vpn};
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::smp::{BroadcastPolicy, CallPolicy, GatherPolicy, ShootdownPolicy, SmpConfig};
use mmscale_mm::tlb::{Extent, Leave, UnmapBatch};
use mmscale_mm::vmap::{Purge, Vmap};
use mmscale_sim::{Outcome, Policy, Rule, Sim, SimConfig, random_u64};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use crate::common::run_script;

const REQUESTS: SmpConfig = SmpConfig {
    policy: CallPolicy::Requests,
    broadcast: BroadcastPolicy::Stock,
    shootdown: ShootdownPolicy::Together,
    gather: GatherPolicy::Stock,
    timeout_ns: 5_000_000_000,
};

/// CPU 0 puts a page in use into limbo as reclaim does, and frees it when it leaves, or early.
fn parcel(early: bool) -> Outcome {
    run_script(machine(2, false), move |script| {
        let world = World::with(script, 1 << 14, REQUESTS);
        world.take_while_used(script, move |world, table, ptes, pfn| {
            let mut batch = UnmapBatch::new();
            world.tlb.defer(&mut batch, table.asid(), Extent::Range(range(9, 1), PageSize::Base));
            drop(ptes);
            assert!(world.tlb.park_batch(&mut batch, &[pfn]), "there is room");
            if early {
                world.frames.free_pages(pfn, Order::ZERO);
                return;
            }
            let free = |pages: &[Pfn]| {
                pages.iter().for_each(|&pfn| world.frames.free_pages(pfn, Order::ZERO));
                pages.len() as u32
            };
            assert_eq!(world.tlb.leave_limbo_batches(Leave::Passed, free), 0, "CPU 1 uses it");
            assert_eq!(world.tlb.leave_limbo_batches(Leave::All, free), 1);
            assert!(world.tlb.stats().limbo_age_max_ns > 30_000);
        });
    })
}

#[test]
fn a_page_that_reclaim_frees_early_is_caught_and_one_that_waits_is_not() {
    let outcome = parcel(false);
    assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
    let found = parcel(true).violations;
    assert!(found.iter().any(|found| found.rule == Rule::StaleTranslation), "{found:?}");
}

/// The answer of CPUs to a request to invalidate translations of the kernel's range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Forget,
    /// They answer without invalidating: a bug.
    Nothing,
}

/// Every CPU maps frames for the kernel, lets all CPUs use them, and unmaps them. Each read returns
/// the number that was written for the address. There are few addresses, so they are reused soon.
fn vmap_crowd(smp: SmpConfig, config: SimConfig, told: Told, rounds: u32) -> Outcome {
    const CPUS: usize = 6;
    const SHARED: usize = 2 * CPUS;
    run_script(config, move |script| {
        let world = World::with(script, 1 << 14, smp);
        if told == Told::Nothing {
            let deaf = Rc::clone(&world);
            *script.on_ipi.borrow_mut() = Some(Box::new(move |reason| {
                assert_eq!(reason, Ipi::CallFunction);
                deaf.tlb.smp().interrupt(&|_| ());
            }));
        }
        let vmap = Rc::new(RefCell::new(None::<Rc<Vmap<Sim>>>));
        // By slot: the page that is mapped there, plus one, and the number of its users.
        let slots: Rc<Vec<[<Sim as Cpu>::AtomicU64; 2]>> =
            Rc::new((0..SHARED).map(|_| [Atomic::new(0), Atomic::new(0)]).collect());
        for cpu in 0..CPUS {
            let (world, made, slots) = (Rc::clone(&world), Rc::clone(&vmap), Rc::clone(&slots));
            script.spawn(cpu, move || {
                if cpu == 0 {
                    let new = Vmap::with(world.on(), range(1 << 30, 40), 16);
                    *made.borrow_mut() = Some(Rc::new(new.expect("there is memory")));
                    world.made.store(1, SeqCst);
                }
                while world.made.load(SeqCst) == 0 {
                    Sim::relax();
                }
                let vmap = made.borrow().clone().expect("it is made");
                world.busy.fetch_add(1, SeqCst);
                for _ in 0..rounds {
                    one_round(&world, &vmap, &slots, cpu);
                }
                if world.busy.fetch_sub(1, SeqCst) == 1 {
                    assert!(vmap.stats().purges > 3, "{:?}", vmap.stats());
                    vmap.destroy(world.on());
                    assert_eq!(world.frames.verify().expect("frames add up").held, 0);
                }
            });
        }
    })
}

/// One mapping: made, announced to all CPUs, used by all, withdrawn, unmapped.
fn one_round(world: &World, vmap: &Vmap<Sim>, slots: &[[<Sim as Cpu>::AtomicU64; 2]], cpu: usize) {
    let frames: Vec<Pfn> = (0..1 + random_u64() % 3).map(|_| world.frame()).collect();
    let at = vmap.map(world.on(), &frames).expect("there are addresses");
    for (page, &pfn) in (at.start().get()..).zip(&frames) {
        Sim::write_stamp(pfn, page);
    }
    let [mapped, users] = &slots[2 * cpu];
    mapped.store(at.start().get() + 1, SeqCst);
    for _ in 0..4 {
        let [mapped, users] = &slots[2 * (random_u64() as usize % (slots.len() / 2))];
        users.fetch_add(1, SeqCst);
        if let Some(page) = mapped.load(SeqCst).checked_sub(1) {
            let look = |pfn| Sim::read_stamp(pfn);
            let read = vmap.access(world.on(), Vpn::new(page), MemAccess::Read, look);
            assert_eq!(read, Ok(page), "another mapping's frame");
        }
        users.fetch_sub(1, SeqCst);
        Sim::user(random_u64() % 3_000);
    }
    mapped.store(0, SeqCst);
    while users.load(SeqCst) != 0 {
        Sim::relax();
    }
    if vmap.unmap(world.on(), at) == Purge::Needed {
        vmap.purge(world.on());
    }
    frames.iter().for_each(|&pfn| world.frames.free_pages(pfn, Order::ZERO));
}

#[test]
fn addresses_of_the_kernel_come_back_when_no_cpu_translates_them_to_what_was_there() {
    for policy in POLICIES {
        for seed in seeds(6) {
            let smp = SmpConfig { policy, ..SmpConfig::default() };
            let config = SimConfig { seed, ..machine(6, seed % 3 == 2) };
            let outcome = vmap_crowd(smp, config, Told::Forget, 20);
            assert_eq!((outcome.failure, outcome.violations), (None, vec![]), "{policy:?} {seed}");
        }
    }
    let with = |policy| {
        let config = SimConfig { policy, ..machine(6, false) };
        vmap_crowd(REQUESTS, config, Told::Forget, 10).fingerprint
    };
    assert_eq!(with(Policy::Lazy), with(Policy::Naive));
}

#[test]
fn addresses_that_come_back_while_a_cpu_translates_them_are_caught() {
    for policy in POLICIES {
        let smp = SmpConfig { policy, ..SmpConfig::default() };
        let outcome = vmap_crowd(smp, machine(6, false), Told::Nothing, 20);
        let stale = |found: &mmscale_sim::Violation| found.rule == Rule::StaleTranslation;
        let seen = outcome.violations.iter().any(stale) || outcome.failure.is_some();
        assert!(seen, "{policy:?}: {:?}", outcome.violations);
    }
}
