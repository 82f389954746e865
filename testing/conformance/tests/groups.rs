//! Memory groups: each process's pages are charged to its group, and nothing is left at the end.

use crate::oom::world::{
    FOR_EVER_NS, LRU, PAUSE_NS, config, end, ends, grow, sim, sim_with, threads, with_swap,
};
use mmscale_kernel::Os;
use mmscale_mm::memcg::{CHARGE_BATCH, GroupId};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomPolicy;
use mmscale_sim::Policy;
use mmscale_system::{Addr, Errno, Exit, PAGE_BYTES, ProcessId, System, ThreadSpec};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

const PAGES: u64 = 300;

/// Two groups, three levels below the root.
fn groups() -> MmConfig {
    let mut config = config();
    (config.groups, config.group_depth) = (3, 3);
    config
}

fn usage(system: &Os, group: usize) -> u64 {
    system.inside().group_usage(GroupId::new(group))
}

/// Checks that a group is charged for `pages` pages, and what CPUs have in stock.
#[track_caller]
fn has(system: &Os, group: usize, pages: u64) {
    let stocks = u64::from(CHARGE_BATCH) * system.cpus() as u64;
    let charged = usage(system, group);
    assert!((pages..=pages + stocks).contains(&charged), "group {group}: {charged} for {pages}");
}

/// Starts a process in a group that runs `first`, and then sleeps until it is killed. Returns when
/// `first` has.
fn resident(system: &Os, spec: ThreadSpec, first: impl FnOnce(&Os) + Send + 'static) -> ProcessId {
    let done = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&done);
    let body = Box::new(move |system: &Os| {
        first(system);
        told.store(1, SeqCst);
        assert_eq!(system.sleep_ns(FOR_EVER_NS), Err(Errno::Stopped));
    });
    let process = system.process(spec, body).expect("there is memory for a process");
    wait_for(system, &done);
    process
}

/// Sleeps until a value is no longer 0.
fn wait_for(system: &Os, value: &AtomicU64) {
    while value.load(SeqCst) == 0 {
        assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
    }
}

/// Writes to [`PAGES`] pages in group 1; a child writes to them too, in the group `into` or in that
/// of its parent. Calls `check` while both are there.
fn with_family(system: &Os, into: Option<usize>, check: impl FnOnce()) {
    let [ready, over] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let (told, ends_now) = (Arc::clone(&ready), Arc::clone(&over));
    let child = move |system: &Os, at: Addr| {
        for page in 0..PAGES {
            system.write(at.page(page), 7).expect("there is memory");
        }
        told.store(1, SeqCst);
        wait_for(system, &ends_now);
    };
    let parent = Box::new(move |system: &Os| {
        let at = grow(system, PAGES).expect("there is memory");
        let spec = ThreadSpec { group: into, ..ThreadSpec::on(0) };
        let body = Box::new(move |system: &Os| child(system, at));
        let child = system.fork(spec, body).expect("there is memory");
        ends(system, child, Exit::Returned);
    });
    let spec = ThreadSpec::on(system.cpus() - 1).in_group(1);
    let parent = system.process(spec, parent).expect("there is memory for a process");
    wait_for(system, &ready);
    check();
    over.store(1, SeqCst);
    ends(system, parent, Exit::Returned);
}

fn pages_are_charged_to_the_group_of_their_process(system: &Os) {
    let wrong = system.process(ThreadSpec::on(0).in_group(3), Box::new(|_| {}));
    assert_eq!(wrong.err(), Some(Errno::Inval), "there are two groups and the root");
    let wrong = system.fork(ThreadSpec::on(0).in_group(3), Box::new(|_| {}));
    assert_eq!(wrong.err(), Some(Errno::Inval));
    // A fork stays in the group of its parent, if it is not started in another one.
    with_family(system, None, || {
        has(system, 1, 2 * PAGES);
        has(system, 2, 0);
    });
    with_family(system, Some(2), || {
        has(system, 1, PAGES);
        has(system, 2, PAGES);
        has(system, 0, 2 * PAGES);
    });
    // The root is not charged for its own pages.
    let before = usage(system, 0);
    let own = resident(system, ThreadSpec::on(0).in_group(0), |system| {
        grow(system, PAGES).expect("there is memory");
    });
    assert!(usage(system, 0) <= before);
    end(system, own);
}

#[test]
fn pages_are_charged_to_a_group_and_uncharged() {
    for lru in LRU {
        let mut config = groups();
        config.lru = lru;
        (0..3).for_each(|seed| {
            sim(seed, &config, pages_are_charged_to_the_group_of_their_process);
        });
    }
    let program = pages_are_charged_to_the_group_of_their_process;
    let lazy = sim_with(5, 4, Policy::Lazy, &groups(), program);
    assert_eq!(lazy, sim_with(5, 4, Policy::Naive, &groups(), program));
    threads(&groups(), program);
}

/// A process of a limited group writes to three times as many pages: the group's own pages go to
/// swap, and those of another group stay.
fn a_full_group_reclaims_its_own(system: &Os) {
    let limit = 2 * PAGES;
    system.inside().set_group_limit(GroupId::new(1), Some(limit));
    let other = resident(system, ThreadSpec::on(0).in_group(2), |system| {
        grow(system, PAGES).expect("there is memory");
    });
    let before = usage(system, 2);
    let body = Box::new(move |system: &Os| {
        let at: Addr = grow(system, 3 * limit).expect("swap has room");
        assert!(usage(system, 1) <= limit);
        crate::oom::world::check(system, at, 3 * limit);
        assert_eq!(system.munmap(at, 3 * limit * PAGE_BYTES), Ok(()));
    });
    let grows = system.process(ThreadSpec::on(1).in_group(1), body).expect("there is memory");
    ends(system, grows, Exit::Returned);
    assert!(system.inside().swap_counters().writes >= 2 * limit);
    assert_eq!(usage(system, 2), before);
    end(system, other);
}

#[test]
fn a_group_at_its_limit_reclaims_its_own_pages() {
    let mut config = with_swap(groups(), 4096);
    config.oom.policy = OomPolicy::Fail;
    for seed in 0..3 {
        sim(seed, &config, a_full_group_reclaims_its_own);
    }
    threads(&config, a_full_group_reclaims_its_own);
}

/// Without swap nothing can be reclaimed: the call fails, and the other group does not notice.
fn a_full_group_fails_alone(system: &Os) {
    system.inside().set_group_limit(GroupId::new(1), Some(PAGES));
    let body = |expected| {
        Box::new(move |system: &Os| {
            assert_eq!(grow(system, 2 * PAGES).err(), expected);
        })
    };
    let start = |group, expected| {
        let spec = ThreadSpec::on(1).in_group(group);
        system.process(spec, body(expected)).expect("there is memory")
    };
    ends(system, start(1, Some(Errno::Nomem)), Exit::Returned);
    ends(system, start(2, None), Exit::Returned);
}

#[test]
fn a_full_group_without_swap_fails() {
    let mut config = groups();
    config.oom.policy = OomPolicy::Fail;
    sim(1, &config, a_full_group_fails_alone);
    threads(&config, a_full_group_fails_alone);
}
