//! The stacks of tasks: reused from per-CPU caches, freed after a grace period, and freed when a
//! CPU goes offline or memory is short. Every run ends with all frames free.

use crate::oom::world::{self, start};
use mmscale_arch::{CpuId, Probe};
use mmscale_boot::{Boot, on_sim};
use mmscale_kernel::Os;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::smp::CallPolicy;
use mmscale_mm::stack::{StackConfig, StackStats};
use mmscale_sim::{Policy, SimConfig, sample_profile};
use mmscale_system::{Errno, Exit, System, ThreadSpec};

const MS: u64 = 1_000_000;
/// Threads that exist at a time on a CPU: more than its cache holds.
const BURST: u64 = 6;
const ROUNDS: u64 = 12;

/// A machine where few addresses may wait for a flush, so that flushes occur.
fn config(policy: CallPolicy) -> MmConfig {
    let mut config = world::config();
    config.smp.policy = policy;
    config.stacks = StackConfig::Mapped { lazy_max_pages: Some(64) };
    config
}

fn stats(system: &Os) -> StackStats {
    system.inside().stack_stats()
}

/// Makes threads on the CPU `cpu`, and waits for their ends; returns how many could be made.
fn burst(system: &Os, cpu: usize) -> u64 {
    let spawn = |_| system.spawn(ThreadSpec::on(cpu), Box::new(|_| {}));
    let all: Vec<_> = (0..BURST).map(spawn).collect();
    let mut made = 0;
    for thread in all {
        match thread {
            Ok(thread) => {
                assert_eq!(system.join(thread), Ok(()));
                made += 1;
            }
            Err(why) => assert_eq!(why, Errno::Nomem),
        }
    }
    made
}

/// A process on each CPU repeatedly makes threads there.
fn churn(system: &Os) {
    let cpus = system.cpus();
    let body = |cpu| {
        move |system: &Os| {
            for _ in 0..ROUNDS {
                assert_eq!(burst(system, cpu), BURST, "there is memory");
                assert_eq!(system.sleep_ns(5 * MS), Ok(()));
            }
        }
    };
    let all: Vec<_> = (0..cpus).map(|cpu| start(system, cpu, body(cpu))).collect();
    all.into_iter().for_each(|one| assert_eq!(system.wait(one), Ok(Exit::Returned)));
    let stats = stats(system);
    assert_eq!(stats.given, cpus as u64 * (1 + ROUNDS * BURST));
    assert!(stats.reused >= cpus as u64 * (ROUNDS - 1), "{stats:?}");
    assert!(stats.freed > 0 && stats.reused + stats.freed < stats.given, "{stats:?}");
    let range = system.inside().kernel_range_stats();
    assert!(range.purges > 0 && range.lazy_pages_max > 64, "{range:?}");
}

#[test]
fn stacks_are_reused_and_what_caches_have_no_room_for_is_purged() {
    for policy in CallPolicy::ALL {
        let run = |schedule| world::sim_with(5, 4, schedule, &config(policy), churn);
        assert_eq!(run(Policy::Lazy), run(Policy::Naive), "{policy:?}");
        world::threads(&config(policy), churn);
    }
}

/// CPU 3 goes offline with stacks in its cache, and others that wait for a grace period.
fn unplug(system: &Os) {
    for round in 0..6 {
        assert_eq!(burst(system, 3), BURST, "there is memory");
        if round % 2 == 0 {
            assert_eq!(system.sleep_ns(20 * MS), Ok(()));
        }
        let freed = stats(system).freed;
        assert_eq!(system.cpu_offline(3), Ok(()));
        assert!(stats(system).freed >= freed + 2, "its cache is freed with it");
        assert_eq!(system.cpu_online(3), Ok(()));
    }
    assert_eq!(stats(system).given, 6 * BURST);
    let range = system.inside().kernel_range_stats();
    assert!(range.purges > 0, "{range:?}");
}

#[test]
fn the_cache_of_a_cpu_that_leaves_is_freed() {
    for policy in CallPolicy::ALL {
        world::sim(9, &config(policy), unplug);
    }
}

/// Threads, processes and forks on all CPUs, of which some cannot be made.
fn starved(system: &Os) {
    let (mut made, mut refused) = (0, 0);
    for round in 0..60 {
        made += burst(system, round % 4);
        let (spec, nothing) = (ThreadSpec::on(round % 4), Box::new(|_: &Os| {}));
        let child = match round % 2 {
            0 => system.process(spec, nothing),
            _ => system.fork(spec, nothing),
        };
        match child {
            Ok(child) => assert_eq!(system.wait(child), Ok(Exit::Returned)),
            Err(why) => {
                assert_eq!(why, Errno::Nomem);
                refused += 1;
            }
        }
    }
    let stats = stats(system);
    assert!(made > 100 && made < 60 * BURST, "{made} threads");
    assert!((1..60).contains(&refused), "{refused} processes refused");
    assert!(stats.given >= made + 60 - refused, "{stats:?}");
}

#[test]
fn a_task_for_which_memory_fails_is_refused_and_nothing_is_lost() {
    let deaf = |_: CpuId| -> Box<dyn Probe> { Box::new(()) };
    for seed in 1..4 {
        let mut machine = SimConfig { seed, ..SimConfig::new(sample_profile(4), 4) };
        machine.limit_ns = 60_000 * MS;
        machine.faults.alloc_fail_1024 = 200;
        let boot = Boot::checked(&config(CallPolicy::Stock), starved);
        let outcome = on_sim(machine, &mut { deaf }, boot);
        assert_eq!((outcome.failure, outcome.violations), (None, vec![]), "seed {seed}");
    }
}
