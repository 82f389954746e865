//! Threads that run random operations on one address space at the same time.

use super::process::{Disk, Thread, new_space};
use crate::calls::POLICIES;
use crate::lru::world::{ALL, GROUP, World, config, well_with};
use mmscale_arch::{CpuId, Machine as _};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::space::{HugePages, RetryPolicy, VmaLockPolicy};
use mmscale_mm::swap::SwapCounters;
use mmscale_sim::{Faults, Outcome, Policy, Sim, SimConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const CPUS: usize = 8;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
struct Setting {
    seed: u64,
    lru: LruPolicy,
    policy: Policy,
    /// Frames of each of the two nodes.
    frames: u32,
    alloc_fail_1024: u32,
    /// Requests to the swap device that fail.
    io_fail_1024: u32,
    /// The limit on the pages of both processes together.
    limit_pages: Option<u64>,
    /// The first CPU of those that go offline and come back.
    coming_and_going: usize,
    steps: usize,
}

/// Observations of a run.
struct Found {
    outcome: Outcome,
    swap: SwapCounters,
    /// How often a CPU went offline.
    left: u32,
    /// The most frames that were in limbo.
    limbo: u64,
}

fn swarm(setting: Setting) -> Found {
    let Setting { seed, lru, policy, frames, alloc_fail_1024, io_fail_1024, steps, .. } = setting;
    let faults = Faults { alloc_fail_1024, io_fail_1024, ..Faults::default() };
    let mut config = SimConfig { policy, faults, ..config(CPUS, seed) };
    if seed % 4 == 1 {
        config.profile.costs.tlb_broadcast_ps = 400_000;
        // Half of them broadcast for three address spaces only.
        config.profile.tlb_broadcast_spaces = if seed % 8 == 5 { 3 } else { 0 };
    }
    let change = move |config: &mut mmscale_mm::mm::MmConfig| {
        config.map = MemoryMap::nodes(2, frames);
        config.swap.pages = 2000;
        config.smp.policy = POLICIES[seed as usize % POLICIES.len()];
        config.space.retry = RetryPolicy::ALL[seed as usize % RetryPolicy::ALL.len()];
        config.space.vma_locks = VmaLockPolicy::ALL[seed as usize / 3 % VmaLockPolicy::ALL.len()];
        config.space.huge =
            if seed.is_multiple_of(3) { HugePages::Always } else { HugePages::Advised };
    };
    let disk = if io_fail_1024 > 0 { Disk::Failing } else { Disk::Sound };
    let found = Rc::new(Cell::new(None));
    let told = Rc::clone(&found);
    let (outcome, _) = well_with(config, lru, change, move |world| {
        world.memory().groups.set_limit(GROUP, setting.limit_pages);
        let spaces = [new_space(world), new_space(world)];
        for cpu in 0..CPUS {
            let space = Arc::clone(&spaces[cpu % 2]);
            world.spawn(cpu, move |world| {
                let tag = 1 + cpu as u64 % 2;
                let thread = Thread::new(world, &space, tag, cpu as u64).seeded(seed);
                thread.with(disk).run(steps);
            });
        }
        let left = come_and_go(world, setting.coming_and_going);
        world.wait_for_others();
        let on = world.mm.mm_ref();
        let audit = on.verify().unwrap_or_else(|why| panic!("the address spaces: {why}"));
        assert_eq!(audit.spaces, 2);
        on.swap.verify(on.memory, audit.swapped.into_iter()).expect("swap adds up");
        let scanned = on.reclaim.counters().freed;
        let short = frames <= 1000 || setting.limit_pages.is_some();
        assert!(!short || scanned > 0, "memory was not short: {:?}", on.reclaim.counters());
        let usage = on.memory.groups.usage(GROUP);
        assert!(setting.limit_pages.is_none_or(|limit| usage <= limit), "{usage} pages charged");
        on.memory.verify().unwrap_or_else(|why| panic!("the LRU: {why}"));
        for space in spaces {
            space.exit(on);
        }
        assert_eq!(on.verify().expect("nothing is left").spaces, 0);
        let limbo = world.mm.call_stats().frames_in_limbo_max;
        told.set(Some((on.swap.counters(), left, limbo)));
    });
    let (swap, left, limbo) = found.take().expect("it came to its end");
    Found { outcome, swap, left, limbo }
}

/// Takes CPUs from `first` upwards offline and back, one after the other, while other programs run.
fn come_and_go(world: &World, first: usize) -> u32 {
    let mut times = 0;
    while first < CPUS && world.left() > 1 {
        let cpu = CpuId::new(first + times as usize % (CPUS - first));
        Sim::cpu_offline(cpu).expect("it is online");
        world.mm.sleep_ns(30_000);
        Sim::cpu_online(cpu).expect("it is offline");
        world.mm.sleep_ns(20_000);
        times += 1;
    }
    times
}

const PLAIN: Setting = Setting {
    seed: 0,
    lru: LruPolicy::Stock,
    policy: Policy::Lazy,
    frames: 1 << 14,
    alloc_fail_1024: 0,
    io_fail_1024: 0,
    limit_pages: None,
    coming_and_going: CPUS,
    steps: 60,
};

#[test]
fn a_swarm_of_threads_leaves_all_in_order() {
    for lru in ALL {
        for seed in 0..15 {
            swarm(Setting { seed, lru, ..PLAIN });
        }
    }
}

/// Seed 103 found a CPU that used translations before it had applied the invalidations of the time
/// when it ran another address space; seed 0, in all of these, a huge page that appeared before a
/// collapse.
#[test]
fn so_it_does_when_allocations_fail() {
    for lru in ALL {
        for seed in 100..115 {
            swarm(Setting { seed, lru, alloc_fail_1024: 20, ..PLAIN });
        }
    }
}

#[test]
fn so_it_does_when_memory_is_short() {
    let mut limbo = 0;
    for lru in ALL {
        for seed in 200..220 {
            limbo += swarm(Setting { seed, lru, frames: 700, steps: 120, ..PLAIN }).limbo;
        }
    }
    assert!(limbo > 20, "{limbo} pages of reclaim have been in limbo");
}

/// A page that the device cannot write stays in memory. The read of one that it cannot read reports
/// an error and succeeds later. Each thread reads only what it wrote.
#[test]
fn so_it_does_when_the_swap_device_fails() {
    let (mut reads, mut writes) = (0, 0);
    for lru in ALL {
        for seed in 400..410 {
            let setting = Setting { seed, lru, frames: 700, steps: 120, ..PLAIN };
            let found = swarm(Setting { io_fail_1024: 100, ..setting });
            reads += found.swap.read_errors;
            writes += found.swap.write_errors;
        }
    }
    assert!(reads > 100 && writes > 100, "{reads} reads and {writes} writes have failed");
}

#[test]
fn so_it_does_at_the_limit_of_a_memory_group() {
    for lru in ALL {
        for seed in 500..510 {
            swarm(Setting { seed, lru, limit_pages: Some(400), steps: 120, ..PLAIN });
            let alloc_fail_1024 = 10;
            let setting = Setting { seed, lru, alloc_fail_1024, steps: 60, ..PLAIN };
            swarm(Setting { limit_pages: Some(300), io_fail_1024: 50, ..setting });
        }
    }
}

#[test]
fn so_it_does_while_cpus_leave_and_come_back() {
    let mut left = 0;
    for lru in ALL {
        for seed in 600..610 {
            let frames = if seed % 2 == 0 { 700 } else { 1 << 14 };
            let setting = Setting { seed, lru, frames, steps: 100, ..PLAIN };
            left += swarm(Setting { coming_and_going: 3, ..setting }).left;
        }
    }
    assert!(left > 300, "a CPU has left {left} times");
}

#[test]
fn address_spaces_are_the_same_under_both_engine_policies() {
    for lru in ALL {
        for seed in 300..302 {
            let setting = Setting { seed, lru, steps: 30, alloc_fail_1024: 5, ..PLAIN };
            let lazy = swarm(setting).outcome;
            let naive = swarm(Setting { policy: Policy::Naive, ..setting }).outcome;
            assert_eq!(lazy.locks, naive.locks, "{lru:?}, seed {seed}");
            assert_eq!(lazy.fingerprint, naive.fingerprint, "{lru:?}, seed {seed}");
        }
    }
}
