//! The choice of the victim.

use super::world::*;
use mmscale_boot::{Boot, on_sim};
use mmscale_kernel::Os;
use mmscale_mm::memcg::GroupId;
use mmscale_mm::oom::{OomPolicy, OomReadPolicy};
use mmscale_mm::pgtable::RssPolicy;
use mmscale_sim::{Policy, SimConfig, sample_profile};
use mmscale_system::{Errno, Exit, MapSpec, PAGE_BYTES, System, ThreadSpec};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// A large process sleeps, and a smaller one needs more memory than there is.
fn the_largest_dies(system: &Os) {
    let large = holder(system, 1, 2000);
    let small = holder(system, 2, 400);
    let grows = grower(system, 3, 1900);
    ends(system, grows, Exit::Returned);
    ends(system, large, Exit::Killed);
    end(system, small);
    let seen = counters(system);
    assert_eq!((seen.kills, seen.group_kills, seen.no_victim), (1, 0, 0), "{seen:?}");
}

#[test]
fn one_is_killed_where_one_is_enough_whatever_keeps_pages() {
    for caches in CACHES {
        for lru in LRU {
            let mut config = config();
            (config.alloc.caches, config.lru) = (caches, lru);
            (0..3).for_each(|seed| {
                sim(seed, &config, the_largest_dies);
            });
        }
    }
}

#[test]
fn swap_is_filled_first() {
    fn program(system: &Os) {
        let large = holder(system, 1, 2500);
        let grows = grower(system, 2, 2400);
        ends(system, grows, Exit::Returned);
        ends(system, large, Exit::Killed);
        let seen = counters(system);
        assert_eq!((seen.kills, seen.no_victim), (1, 0), "{seen:?}");
        assert!(system.inside().swap_counters().writes >= 512);
    }
    for seed in 0..3 {
        sim(seed, &with_swap(config(), 512), program);
    }
    // With swap for all of it no process is killed.
    fn enough(system: &Os) {
        let large = holder(system, 1, 2500);
        let grows = grower(system, 2, 2400);
        ends(system, grows, Exit::Returned);
        end(system, large);
        assert_eq!(counters(system).kills, 0);
    }
    sim(1, &with_swap(config(), 4096), enough);
}

/// The victim is the process that allocates: it is killed in the slow path, and leaves it.
fn who_wants_too_much_dies_of_it(system: &Os) {
    let small = holder(system, 1, 300);
    let hog = start(system, 2, |system: &Os| {
        assert_eq!(grow(system, 2 * u64::from(FRAMES)), Err(Errno::Stopped));
    });
    ends(system, hog, Exit::Killed);
    end(system, small);
    let seen = counters(system);
    assert_eq!((seen.kills, seen.no_victim), (1, 0), "{seen:?}");
}

#[test]
fn a_victim_gets_out_of_its_own_slow_path() {
    for caches in CACHES {
        let mut config = config();
        config.alloc.caches = caches;
        sim(1, &config, who_wants_too_much_dies_of_it);
    }
    sim(2, &with_swap(config(), 256), who_wants_too_much_dies_of_it);
}

#[test]
fn populating_and_threads_die_together() {
    fn program(system: &Os) {
        let hog = start(system, 1, |system: &Os| {
            let mut threads = Vec::new();
            for cpu in 0..system.cpus() {
                let body = |system: &Os| {
                    let spec = MapSpec::populated(u64::from(FRAMES) * PAGE_BYTES);
                    let _ = system.mmap(spec);
                    assert_eq!(system.sleep_ns(FOR_EVER_NS), Err(Errno::Stopped));
                };
                threads.extend(system.spawn(ThreadSpec::on(cpu), Box::new(body)).ok());
            }
            assert_eq!(system.sleep_ns(FOR_EVER_NS), Err(Errno::Stopped));
        });
        ends(system, hog, Exit::Killed);
        assert_eq!(counters(system).kills, 1);
    }
    (0..4).for_each(|seed| {
        sim(seed, &config(), program);
    });
}

#[test]
fn an_adjustment_changes_the_victim_and_is_inherited() {
    fn program(system: &Os) {
        let large = holder(system, 1, 1800);
        let small = holder(system, 2, 700);
        assert_eq!(system.set_oom_score_adj(small, 1001), Err(Errno::Inval));
        assert_eq!(system.set_oom_score_adj(small, -1001), Err(Errno::Inval));
        assert_eq!(system.set_oom_score_adj(small, 500), Ok(()));
        let grows = start(system, 3, |system: &Os| {
            let me = system.own_process();
            assert_eq!(system.set_oom_score_adj(me, -1000), Ok(()));
            let child = |system: &Os| {
                grow(system, 1700).map(|_| ()).expect("others die for it");
            };
            let child = system.fork(ThreadSpec::on(3), Box::new(child)).expect("there is memory");
            ends(system, child, Exit::Returned);
        });
        ends(system, grows, Exit::Returned);
        ends(system, small, Exit::Killed);
        assert_eq!(system.set_oom_score_adj(small, 0), Err(Errno::Srch));
        end(system, large);
        assert_eq!(counters(system).kills, 1);
    }
    (0..3).for_each(|seed| {
        sim(seed, &config(), program);
    });
}

/// No process may be killed: the allocation fails, and the system continues.
fn nobody_may_die(system: &Os) {
    let safe = holder(system, 1, 800);
    assert_eq!(system.set_oom_score_adj(safe, -1000), Ok(()));
    let grows = start(system, 2, |system: &Os| {
        let me = system.own_process();
        assert_eq!(system.set_oom_score_adj(me, -1000), Ok(()));
        assert_eq!(grow(system, u64::from(FRAMES)), Err(Errno::Nomem));
        // It keeps its memory, and can still end.
    });
    ends(system, grows, Exit::Returned);
    let again = grower(system, 2, 1000);
    ends(system, again, Exit::Returned);
    end(system, safe);
    let seen = counters(system);
    assert_eq!(seen.kills, 0, "{seen:?}");
    assert!(seen.no_victim >= 1);
}

#[test]
fn without_a_victim_the_allocation_fails() {
    sim(1, &config(), nobody_may_die);
    sim(2, &with_swap(config(), 128), nobody_may_die);
    // The first process is never a victim.
    fn first(system: &Os) {
        assert_eq!(grow(system, u64::from(FRAMES)), Err(Errno::Nomem));
        assert_eq!(counters(system).kills, 0);
    }
    sim(1, &config(), first);
    // No process is killed where that was not wanted.
    fn unwanted(system: &Os) {
        let hog = start(system, 1, |system: &Os| {
            assert_eq!(grow(system, u64::from(FRAMES)), Err(Errno::Nomem));
        });
        ends(system, hog, Exit::Returned);
    }
    for policy in [OomPolicy::Fail, OomPolicy::KillInGroup] {
        let mut fails = config();
        fails.oom.policy = policy;
        sim(1, &fails, unwanted);
    }
}

/// Processes of CPU 0 are in group 1, those of CPU 1 in group 2.
fn a_group_dies_alone(system: &Os) {
    let inside = system.inside();
    inside.set_group_limit(GroupId::new(1), Some(900));
    let other = holder(system, 1, 1500);
    let mate = holder(system, 0, 600);
    let grows = grower(system, 0, 500);
    ends(system, grows, Exit::Returned);
    ends(system, mate, Exit::Killed);
    end(system, other);
    let seen = counters(system);
    assert_eq!((seen.kills, seen.group_kills), (0, 1), "{seen:?}");
    assert!(inside.group_usage(GroupId::new(1)) <= 900);
}

#[test]
fn a_group_at_its_limit_kills_its_own() {
    for lru in LRU {
        let mut config = config();
        (config.lru, config.groups) = (lru, 3);
        for seed in 0..3 {
            sim(seed, &config, a_group_dies_alone);
            sim(seed, &with_swap(config.clone(), 100), a_group_dies_alone);
        }
        config.oom.policy = OomPolicy::KillInGroup;
        sim(3, &config, a_group_dies_alone);
    }
}

#[test]
fn a_fork_kills_for_its_tables_or_dies_itself() {
    /// Touches a page in each of `regions` stretches of 2 MiB: a fork needs as many tables.
    fn spread(system: &Os, regions: u64) -> Result<(), Errno> {
        for _ in 0..regions {
            let at = system.mmap(MapSpec::new(512 * PAGE_BYTES))?;
            system.write(at, 7)?;
        }
        Ok(())
    }
    fn others(system: &Os) {
        let large = holder(system, 1, 1600);
        let forks = start(system, 2, |system: &Os| {
            spread(system, 500).expect("there is memory");
            let left = available(system).saturating_sub(200);
            grow(system, left).expect("there is memory");
            let me = system.own_process();
            assert_eq!(system.set_oom_score_adj(me, -1000), Ok(()));
            let child = system.fork(ThreadSpec::on(3), Box::new(|_| {}));
            ends(system, child.expect("others die for it"), Exit::Returned);
        });
        ends(system, forks, Exit::Returned);
        ends(system, large, Exit::Killed);
        assert_eq!(counters(system).kills, 1);
    }
    fn itself(system: &Os) {
        let forks = start(system, 2, |system: &Os| {
            spread(system, 1500).expect("there is memory");
            let child = system.fork(ThreadSpec::on(3), Box::new(|_| {}));
            assert!(matches!(child, Err(Errno::Intr | Errno::Nomem)), "{child:?}");
            assert_eq!(system.sleep_ns(1), Err(Errno::Stopped));
        });
        ends(system, forks, Exit::Killed);
        assert_eq!(counters(system).kills, 1);
    }
    for seed in 0..3 {
        sim(seed, &config(), others);
        sim(seed, &config(), itself);
    }
}

/// A process that was killed by another one is waited for.
#[test]
fn the_dying_are_waited_for() {
    fn program(system: &Os) {
        let large = holder(system, 1, 2400);
        let bystander = holder(system, 2, 300);
        let grows = start(system, 3, move |system: &Os| {
            let left = available(system).saturating_sub(100);
            grow(system, left).expect("there is memory");
            assert_eq!(system.kill(large), Ok(()));
            grow(system, 1500).map(|_| ()).expect("it is dying");
        });
        ends(system, grows, Exit::Returned);
        ends(system, large, Exit::Killed);
        end(system, bystander);
        assert_eq!(counters(system).kills, 0);
    }
    for caches in CACHES {
        let mut config = config();
        config.alloc.caches = caches;
        (0..4).for_each(|seed| {
            sim(seed, &config, program);
        });
    }
}

#[test]
fn lazy_is_naive() {
    let config = with_swap(config(), 256);
    for program in [the_largest_dies, who_wants_too_much_dies_of_it] {
        let lazy = sim_with(5, 4, Policy::Lazy, &config, program);
        assert_eq!(lazy, sim_with(5, 4, Policy::Naive, &config, program));
    }
}

#[test]
fn the_same_on_real_threads() {
    threads(&config(), the_largest_dies);
    threads(&config(), who_wants_too_much_dies_of_it);
    threads(&config(), nobody_may_die);
    let mut groups = config();
    groups.groups = 3;
    threads(&groups, a_group_dies_alone);
}

/// The CPUs of the machine, so that a CPU gathers 128 pages before it adds them to a count.
const WIDE: usize = 64;

/// One process has gathered 960 pages, less than a batch on each of eight CPUs. Four others have
/// 700 pages on one CPU each, of which five batches are counted. Returns whether the one was
/// killed.
fn is_spread_process_killed(system: &Os) -> bool {
    let many: Vec<_> = (1..5).map(|cpu| holder(system, cpu, 700)).collect();
    let written = Arc::new(AtomicU64::new(0));
    let woken = Arc::new(AtomicU64::new(0));
    let (tell, wake) = (Arc::clone(&written), Arc::clone(&woken));
    let spread = start(system, 8, move |system: &Os| {
        let at = system.mmap(MapSpec::new(960 * PAGE_BYTES)).expect("it has room");
        let thread = |of: u64| {
            let tell = Arc::clone(&tell);
            let body = move |system: &Os| {
                let write = |page| system.write(at.page(of * 120 + page), 1);
                (0..120).for_each(|page| write(page).expect("there is memory"));
                tell.fetch_add(1, SeqCst);
            };
            system.spawn(ThreadSpec::on(8 + of as usize), Box::new(body)).expect("the CPU exists")
        };
        let threads: Vec<_> = (0..8).map(thread).collect();
        threads.into_iter().for_each(|thread| system.join(thread).expect("one waiter"));
        assert_eq!(system.sleep_ns(FOR_EVER_NS), Err(Errno::Stopped));
        wake.store(1, SeqCst);
    });
    while written.load(SeqCst) < 8 {
        assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
    }
    let grows = grower(system, 20, 300);
    ends(system, grows, Exit::Returned);
    assert_eq!(counters(system).kills, 1);
    let killed = woken.load(SeqCst) == 1;
    many.into_iter().chain([spread]).for_each(|process| end(system, process));
    killed
}

#[test]
fn the_largest_by_the_sums_of_all_cpus_dies_if_they_are_read() {
    let run = |read, rss, program| {
        let mut config = config();
        (config.oom.read, config.space.rss) = (read, rss);
        sim_with(1, WIDE, Policy::Lazy, &config, program);
    };
    run(OomReadPolicy::Stock, RssPolicy::Cpus, |system| assert!(!is_spread_process_killed(system)));
    for rss in [RssPolicy::Cpus, RssPolicy::Tree, RssPolicy::Single, RssPolicy::Merged] {
        run(OomReadPolicy::Sums, rss, |system| assert!(is_spread_process_killed(system)));
    }
}

/// The CPU time of an OOM kill with a choice among 200 processes on 8 CPUs, in ns.
fn choice_ns(read: OomReadPolicy, rss: RssPolicy) -> u64 {
    const CPUS: usize = 8;
    let mut config = config();
    (config.oom.read, config.space.rss) = (read, rss);
    let program = |system: &Os| {
        let few: Vec<_> = (0..200).map(|at| holder(system, at % CPUS, 1)).collect();
        let large = holder(system, 1, 1600);
        let grows = grower(system, 2, 1400);
        ends(system, grows, Exit::Returned);
        ends(system, large, Exit::Killed);
        assert_eq!(counters(system).kills, 1);
        few.into_iter().for_each(|process| end(system, process));
    };
    let machine = SimConfig::new(sample_profile(CPUS), CPUS);
    let outcome = on_sim(machine, &mut deaf, Boot::checked(&config, program));
    assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
    let below = outcome.calls.iter().filter(|row| row.below("out_of_memory").is_some());
    below.map(|row| row.self_ns).sum()
}

/// The total of a tree is wrong by at most 256 pages on 8 CPUs, so only the largest may be the
/// victim.
#[test]
fn a_tree_of_sums_saves_nearly_all_of_the_reads() {
    let stock = choice_ns(OomReadPolicy::Stock, RssPolicy::Cpus);
    let sums = choice_ns(OomReadPolicy::Sums, RssPolicy::Cpus);
    let tree = choice_ns(OomReadPolicy::Sums, RssPolicy::Tree);
    let more = |of: u64| of.saturating_sub(stock);
    assert!(more(sums) > 50_000 && more(tree) < more(sums) / 4, "{stock} {sums} {tree}");
}
