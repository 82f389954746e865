//! Functions for players of recorded operations.

use crate::common::{config, run_well};
use mmscale_arch::sync::{Mutex, RwSem, SpinLock};
use mmscale_arch::{Atomic as _, DataLine, LockClass, Machine as _};
use mmscale_sim::profile::Topology;
use mmscale_sim::{HoldScale, Pace, Sim, SimAtomic, SimConfig};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Returns two CPUs of one cache, without jitter: a line takes 25 ns, one in the own cache 1 ns.
fn two_cpus() -> SimConfig {
    let mut config = config(2);
    config.profile.topology = Topology { cpus: 2, smt: 1, cluster: 2, nodes: 1 };
    config.profile.costs.jitter_1024 = 0;
    config
}

/// The job of a CPU, which gets a word and stores what it finds.
type Job<R> = fn(&Rc<SimAtomic<u64>>, &RefCell<Vec<R>>);

/// Runs a job on each CPU. Returns what they found.
fn found<R: 'static>(config: SimConfig, jobs: [Job<R>; 2]) -> Vec<R> {
    let word = Rc::new(SimAtomic::named(0, DataLine::Other));
    let found = Rc::new(RefCell::new(Vec::new()));
    run_well(config, |script| {
        for (cpu, job) in jobs.into_iter().enumerate() {
            let (word, found) = (Rc::clone(&word), Rc::clone(&found));
            script.spawn(cpu, move || job(&word, &found));
        }
    });
    found.take()
}

#[test]
fn instructions_have_two_costs_and_the_scale_of_holds() {
    let mut config = two_cpus();
    config.hold_scale = Some(HoldScale { class: LockClass::Zone, factor_1024: 2048 });
    let times = found(
        config,
        [
            |_, times| {
                let timed = |pace| {
                    let begun = Sim::wait_clock();
                    Sim::execute(1000, pace);
                    times.borrow_mut().push(Sim::wait_clock() - begun);
                };
                timed(Pace::Usual);
                timed(Pace::InHold);
                Sim::scale_hold(true);
                timed(Pace::InHold);
                Sim::scale_hold(false);
                timed(Pace::InHold);
            },
            |_, _| {},
        ],
    );
    assert_eq!(times, [350_000, 200_000, 400_000, 200_000]);
}

/// CPU 1 stores to a line of CPU 0, which reads it while it moves.
#[test]
fn a_store_moves_its_line_and_is_waited_for_later() {
    let times = found(
        two_cpus(),
        [
            |word, times| {
                word.store(1, Relaxed);
                Sim::stall_until(1_010_000);
                let value = word.load_uncharged(Relaxed);
                times.borrow_mut().push((0, Sim::wait_clock() - 1_010_000, value));
                times.borrow_mut().push((0, Sim::fetched().0, Sim::fetched().1));
            },
            |word, times| {
                Sim::stall_until(1_000_000);
                let there_ps = word.store_later(2);
                times.borrow_mut().push((1, there_ps, Sim::wait_clock()));
                word.load_uncharged(Relaxed);
                times.borrow_mut().push((1, Sim::wait_clock(), Sim::fetched().0));
                Sim::stall_until(there_ps);
                Sim::stall_until(1_000_000);
                times.borrow_mut().push((1, Sim::wait_clock(), 0));
            },
        ],
    );
    let of = |cpu| -> Vec<(u64, u64)> {
        times.iter().filter(|time| time.0 == cpu).map(|time| (time.1, time.2)).collect()
    };
    // The line is there 25 ns after the store, and 25 ns later at CPU 0.
    assert_eq!(of(1), [(1_025_000, 1_000_000), (1_000_000, 0), (1_025_000, 0)]);
    assert_eq!(of(0), [(40_000, 2), (1, 40_000)]);
}

/// CPU 0 has each lock for 1 us; CPU 1 requests it in between, and after that.
#[test]
fn a_cpu_knows_whether_it_found_a_lock_taken() {
    type Holds = fn(&dyn Fn());
    let holds: [Holds; 3] = [
        |within| {
            thread_local!(static LOCK: SpinLock<Sim, ()> = SpinLock::new(LockClass::Other, ()));
            LOCK.with(|lock| {
                let _held = lock.lock();
                within();
            });
        },
        |within| {
            thread_local!(static LOCK: RwSem<Sim, ()> = RwSem::new(LockClass::Rwsem, ()));
            LOCK.with(|lock| {
                let _held = lock.write();
                within();
            });
        },
        |within| {
            thread_local!(static LOCK: Mutex<Sim, ()> = Mutex::new(LockClass::Mutex, ()));
            LOCK.with(|lock| {
                let _held = lock.lock();
                within();
            });
        },
    ];
    for hold in holds {
        let taken = Rc::new(RefCell::new(Vec::new()));
        run_well(two_cpus(), |script| {
            let first = Rc::clone(&taken);
            script.spawn(0, move || {
                hold(&|| {
                    first.borrow_mut().push((0, Sim::found_taken()));
                    Sim::stall_until(1_000_000);
                });
            });
            let second = Rc::clone(&taken);
            script.spawn(1, move || {
                for at_ps in [500_000, 900_000_000] {
                    Sim::stall_until(at_ps);
                    hold(&|| second.borrow_mut().push((1, Sim::found_taken())));
                }
            });
        });
        assert_eq!(taken.take(), [(0, false), (1, true), (1, false)]);
    }
}
