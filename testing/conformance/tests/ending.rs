//! The end of a run while the swap device still writes, and interrupts of the device while tasks
//! start and end.

use crate::oom::world::{self, LRU, PAUSE_NS, ends, grow, sim_on, start};
use mmscale_kernel::Os;
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::mm::MmConfig;
use mmscale_sim::{Policy, Sim, SimConfig, sample_profile};
use mmscale_system::{Advice, Exit, PAGE_BYTES, System};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

const CPUS: usize = 8;
/// Pages of a process: many batches of folios that interrupts move on their lists.
const PAGES: u64 = 400;

fn config(lru: usize) -> MmConfig {
    MmConfig { lru: LRU[lru], ..world::with_swap(world::config(), 1 << 12) }
}

/// A device with room for all writes, of which one ends each us, on one CPU or another.
fn slow_device(seed: u64, policy: Policy) -> SimConfig {
    let mut profile = sample_profile(CPUS);
    profile.swap.bytes_per_us = 4096;
    profile.swap.depth = CPUS * PAGES as usize;
    SimConfig { seed, policy, ..SimConfig::new(profile, CPUS) }
}

/// Each CPU has a process that writes its memory to the device, and ends without waiting for that.
fn leave_writes(system: &Os) {
    let body = |system: &Os| {
        let at = grow(system, PAGES).expect("there is memory");
        assert_eq!(system.madvise(at, PAGES * PAGE_BYTES, Advice::PageOut), Ok(()));
    };
    let all: Vec<_> = (0..CPUS).map(|cpu| start(system, cpu, body)).collect();
    all.into_iter().for_each(|one| ends(system, one, Exit::Returned));
    let folios = system.mm::<Sim>().memory().folios;
    let writing = folios.iter().filter(|(_, word)| word.has(FolioFlags::WRITEBACK)).count();
    assert!(writing > 100, "{writing} folios are under writeback");
}

/// A process on another CPU has begun to compute when the caller waits for idle CPUs.
fn wait_for_a_busy_cpu(system: &Os) {
    let [begun, done] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (tell_begun, tell_done) = (Arc::clone(&begun), Arc::clone(&done));
    let process = start(system, 1, move |system: &Os| {
        tell_begun.store(true, SeqCst);
        assert_eq!(system.compute_ns(20 * PAUSE_NS), Ok(()));
        tell_done.store(true, SeqCst);
    });
    while !begun.load(SeqCst) {
        assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
    }
    system.inside().wait_for_idle();
    assert!(done.load(SeqCst), "a CPU that computes is not idle");
    ends(system, process, Exit::Returned);
}

#[test]
fn a_cpu_is_waited_for_until_it_is_idle() {
    world::sim(1, &world::config(), wait_for_a_busy_cpu);
    world::threads(&world::config(), wait_for_a_busy_cpu);
}

/// Without the wait, one run in four fails: interrupts move folios while their lists are checked.
#[test]
fn the_checks_of_a_run_wait_for_its_writes() {
    for (seed, lru) in (0..4).flat_map(|seed| (0..LRU.len()).map(move |lru| (seed, lru))) {
        let run = |policy| sim_on(slow_device(seed, policy), &config(lru), leave_writes);
        assert_eq!(run(Policy::Lazy), run(Policy::Naive), "seed {seed}, {:?}", LRU[lru]);
    }
}
