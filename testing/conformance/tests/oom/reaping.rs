//! Victims that do not end by themselves.

use super::world::*;
use mmscale_kernel::Os;
use mmscale_system::{Backing, Errno, Exit, MapSpec, PAGE_BYTES, Share, System};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

const SECOND_NS: u64 = 1_000_000_000;
/// The memory is gone, and the fault ends the process.
const REAPED: Result<u64, Errno> = Err(Errno::Stopped);

/// Starts a process with `pages` pages that computes for `ns`, and notices nothing meanwhile. It
/// expects `after` in its memory then.
fn stubborn(
    system: &Os,
    pages: u64,
    ns: u64,
    after: Result<u64, Errno>,
) -> mmscale_system::ProcessId {
    let done = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&done);
    let process = start(system, 1, move |system: &Os| {
        let at = grow(system, pages).expect("there is memory for it");
        told.store(1, SeqCst);
        let _ = system.compute_ns(ns);
        assert_eq!(system.read(at), after);
        assert_eq!(system.sleep_ns(1), Err(Errno::Stopped));
    });
    while done.load(SeqCst) == 0 {
        assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
    }
    process
}

#[test]
fn a_victim_that_does_not_end_is_reaped_after_two_seconds() {
    fn program(system: &Os) {
        let victim = stubborn(system, 2400, 5 * SECOND_NS, REAPED);
        let bystander = holder(system, 2, 300);
        let before = system.clock_ns();
        let grows = grower(system, 3, 2000);
        ends(system, grows, Exit::Returned);
        let took = system.clock_ns() - before;
        assert!((2 * SECOND_NS..2 * SECOND_NS + SECOND_NS / 5).contains(&took), "{took} ns");
        ends(system, victim, Exit::Killed);
        end(system, bystander);
        let seen = counters(system);
        assert_eq!((seen.kills, seen.reaped, seen.given_up), (1, 1, 0), "{seen:?}");
    }
    for caches in CACHES {
        for lru in LRU {
            let mut config = config();
            (config.alloc.caches, config.lru) = (caches, lru);
            sim(1, &config, program);
        }
    }
    sim(2, &with_swap(config(), 256), program);
}

#[test]
fn a_victim_that_ends_in_time_is_not_reaped() {
    fn program(system: &Os) {
        let victim = stubborn(system, 2400, SECOND_NS, Ok(1));
        let grows = grower(system, 3, 2000);
        ends(system, grows, Exit::Returned);
        ends(system, victim, Exit::Killed);
        assert_eq!(system.sleep_ns(3 * SECOND_NS), Ok(()));
        let seen = counters(system);
        assert_eq!((seen.kills, seen.reaped, seen.given_up), (1, 0, 0), "{seen:?}");
    }
    (0..3).for_each(|seed| {
        sim(seed, &config(), program);
    });
}

/// The memory reaped from a victim that keeps computing is not enough: the next victim is killed,
/// too.
#[test]
fn a_reaped_victim_is_not_waited_for_again() {
    fn program(system: &Os) {
        let first = stubborn(system, 1700, 8 * SECOND_NS, REAPED);
        let second = holder(system, 2, 1300);
        let grows = start(system, 3, |system: &Os| {
            let me = system.own_process();
            assert_eq!(system.set_oom_score_adj(me, -1000), Ok(()));
            grow(system, 3400).map(|_| ()).expect("two die for it");
        });
        ends(system, grows, Exit::Returned);
        ends(system, second, Exit::Killed);
        assert!(system.clock_ns() < 4 * SECOND_NS);
        ends(system, first, Exit::Killed);
        let seen = counters(system);
        assert_eq!((seen.kills, seen.reaped), (2, 1), "{seen:?}");
    }
    (0..3).for_each(|seed| {
        sim(seed, &config(), program);
    });
}

/// Memory that other processes share is not reaped from a victim.
#[test]
fn shared_mappings_of_files_are_not_reaped() {
    const SHARED: u64 = 300;
    fn program(system: &Os) {
        let done = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&done);
        let victim = start(system, 1, move |system: &Os| {
            let file = system.file(SHARED * PAGE_BYTES, Backing::Memory).expect("there is memory");
            let shared = MapSpec::new(SHARED * PAGE_BYTES).of(file, 0, Share::Shared);
            let shared = system.mmap(shared).expect("there is room");
            for page in 0..SHARED {
                assert_eq!(system.write(shared.page(page), 7), Ok(()));
            }
            let own = grow(system, 2000).expect("there is memory for it");
            told.store(1, SeqCst);
            let _ = system.compute_ns(5 * SECOND_NS);
            // An access to a page that is present is no call.
            assert_eq!(system.read(shared), Ok(7));
            assert_eq!(system.read(own), REAPED);
        });
        while done.load(SeqCst) == 0 {
            assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
        }
        let grows = grower(system, 3, 2000);
        ends(system, grows, Exit::Returned);
        assert_eq!(counters(system).reaped, 1);
        ends(system, victim, Exit::Killed);
    }
    for caches in CACHES {
        let mut config = config();
        config.alloc.caches = caches;
        sim(1, &config, program);
    }
}
