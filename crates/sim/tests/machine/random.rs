//! Random numbers for policies: functions of seed, CPU and counter, without cost or turn.

use crate::common::{config, run_well};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Cpu, CpuId, LockClass, Machine, random};
use mmscale_sim::{Outcome, Policy, Sim};
use std::cell::RefCell;
use std::rc::Rc;

const CPUS: usize = 3;
const NUMBERS: u64 = 50;

/// Runs CPUs that contend for a lock and, if `draws`, draw a number under it and after it. Returns
/// the numbers of each CPU.
fn drawn(seed: u64, policy: Policy, draws: bool) -> (Vec<Vec<u64>>, Outcome) {
    let numbers = Rc::new(RefCell::new(vec![Vec::new(); CPUS]));
    let mut config = config(CPUS);
    (config.seed, config.policy) = (seed, policy);
    let outcome = run_well(config, |script| {
        let lock = Rc::new(SpinLock::<Sim, ()>::new(LockClass::Zone, ()));
        for cpu in 0..CPUS {
            let (lock, numbers) = (Rc::clone(&lock), Rc::clone(&numbers));
            script.spawn(cpu, move || {
                let mut own = Vec::new();
                let mut draw = |counter| {
                    if draws {
                        own.push(Sim::random_u64(counter));
                    }
                };
                for round in 0..NUMBERS / 2 {
                    let held = lock.lock();
                    draw(2 * round);
                    drop(held);
                    draw(2 * round + 1);
                    Sim::user(100);
                }
                numbers.borrow_mut()[cpu] = own;
            });
        }
    });
    (numbers.take(), outcome)
}

#[test]
fn numbers_are_those_of_seed_cpu_and_counter_under_both_schedules() {
    for seed in [0, 1, 7] {
        let lazy = drawn(seed, Policy::Lazy, true).0;
        for (cpu, numbers) in lazy.iter().enumerate() {
            let stream = |counter| random(seed, CpuId::new(cpu), counter);
            assert_eq!(*numbers, (0..NUMBERS).map(stream).collect::<Vec<_>>(), "cpu{cpu}");
        }
        assert_eq!(lazy, drawn(seed, Policy::Lazy, true).0, "the same run again");
        assert_eq!(lazy, drawn(seed, Policy::Naive, true).0);
    }
}

#[test]
fn other_cpus_and_other_seeds_have_other_numbers() {
    let [one, other] = [1, 2].map(|seed| drawn(seed, Policy::Lazy, true).0);
    let mut all: Vec<u64> = one.into_iter().chain(other).flatten().collect();
    let count = all.len();
    assert_eq!(count as u64, 2 * CPUS as u64 * NUMBERS);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

/// A run that draws equals one that does not, to the last bit: time, events and the state of the
/// machine's own generators.
#[test]
fn drawing_changes_nothing_else() {
    for policy in [Policy::Lazy, Policy::Naive] {
        let [with, without] = [true, false].map(|draws| drawn(5, policy, draws).1);
        let of = |outcome: &Outcome| (outcome.virtual_ns, outcome.events, outcome.fingerprint);
        assert_eq!(of(&with), of(&without), "{policy:?}");
    }
}
