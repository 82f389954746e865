//! Free memory that is in LRU batches: no process is killed before it is found.

use super::world::*;
use mmscale_kernel::Os;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::Drains;
use mmscale_sim::Policy;
use mmscale_system::{Errno, ProcessId, System, ThreadSpec};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

const CPUS: usize = 8;
/// Fewer than an LRU batch holds.
const PAGES: u64 = 25;
/// Pages in the batches of all CPUs, or most of them.
const HELD: u64 = CPUS as u64 * PAGES;

/// Starts a process that gets [`PAGES`] pages on each CPU, all of which are in LRU batches then,
/// and ends or sleeps.
fn scattered(system: &Os, ends: bool) -> ProcessId {
    let done = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&done);
    let process = start(system, 1, move |system: &Os| {
        for cpu in 0..system.cpus() {
            let body = |system: &Os| {
                grow(system, PAGES).map(|_| ()).expect("there is memory for it");
            };
            let thread = system.spawn(ThreadSpec::on(cpu), Box::new(body)).expect("a thread");
            assert_eq!(system.join(thread), Ok(()));
        }
        told.store(1, SeqCst);
        if !ends {
            assert_eq!(system.sleep_ns(FOR_EVER_NS), Err(Errno::Stopped));
        }
    });
    while done.load(SeqCst) == 0 {
        assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
    }
    process
}

/// A process that is never killed takes all visible memory, and half of what batches hold.
fn take_more_than_is_seen(system: &Os) -> Result<(), Errno> {
    let got = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&got);
    let grows = start(system, 2, move |system: &Os| {
        let me = system.own_process();
        assert_eq!(system.set_oom_score_adj(me, -1000), Ok(()));
        match grow(system, available(system) + HELD / 2) {
            Ok(_) => told.store(1, SeqCst),
            Err(why) => assert_eq!(why, Errno::Nomem),
        }
    });
    system.wait(grows).map(|_| ())?;
    if got.load(SeqCst) == 1 { Ok(()) } else { Err(Errno::Nomem) }
}

/// A process that ended by itself has left pages in the batches; another could be killed
/// needlessly.
fn left_behind(system: &Os) -> (u64, Result<(), Errno>) {
    let decoy = holder(system, 0, 20);
    let gone = scattered(system, true);
    assert!(system.wait(gone).is_ok());
    let got = take_more_than_is_seen(system);
    let _ = system.kill(decoy);
    assert!(system.wait(decoy).is_ok());
    (counters(system).kills, got)
}

/// A victim leaves pages in the batches; a second one could be killed needlessly.
fn victims(system: &Os) -> (u64, Result<(), Errno>) {
    let decoy = holder(system, 0, 20);
    let victim = scattered(system, false);
    assert_eq!(system.set_oom_score_adj(victim, 500), Ok(()));
    let got = take_more_than_is_seen(system);
    for process in [victim, decoy] {
        let _ = system.kill(process);
        assert!(system.wait(process).is_ok());
    }
    (counters(system).kills, got)
}

fn on(seed: u64, config: &MmConfig, program: fn(&Os)) {
    sim_with(seed, CPUS, Policy::Lazy, config, program);
}

fn kinds() -> impl Iterator<Item = MmConfig> {
    CACHES.into_iter().flat_map(|caches| {
        LRU.into_iter().map(move |lru| {
            let mut config = config();
            (config.alloc.caches, config.lru) = (caches, lru);
            config
        })
    })
}

#[test]
fn pages_in_batches_are_found_before_a_process_is_killed() {
    fn program(system: &Os) {
        assert_eq!(left_behind(system), (0, Ok(())));
        assert!(counters(system).drained >= 1);
    }
    // With `Lazy`, unused folios do not stay in batches: all free memory is visible.
    let holding = kinds().filter(|config| config.lru != LruPolicy::Lazy);
    holding.for_each(|config| on(1, &config, program));
}

#[test]
fn a_victims_memory_is_found_before_the_next_is_killed() {
    fn program(system: &Os) {
        assert_eq!(victims(system), (1, Ok(())));
    }
    kinds().for_each(|config| on(2, &config, program));
}

/// The results of the tests above on a machine that does not drain before it kills.
#[test]
fn without_a_look_everywhere_others_die_for_nothing() {
    fn behind(system: &Os) {
        assert!(left_behind(system).0 >= 1);
    }
    fn second(system: &Os) {
        assert_eq!(victims(system).0, 2);
    }
    let mut config = config();
    config.oom.drains = Drains::None;
    on(1, &config, behind);
    on(2, &config, second);
}
