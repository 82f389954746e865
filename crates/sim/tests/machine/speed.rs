//! The time of operations by the clock of a CPU, and of handoffs by the distance of two.

use crate::common::{config, run_well};
use mmscale_arch::{Cpu as _, LockClass, Machine as _, Op, Order, Pfn, RawSpin};
use mmscale_sim::profile::Clock;
use mmscale_sim::{Sim, SimConfig, SimSpin};
use std::cell::Cell;
use std::rc::Rc;

fn exact(cpus: usize) -> SimConfig {
    let mut config = config(cpus);
    config.profile.costs.jitter_1024 = 0;
    config
}

/// Returns when CPU `to` gets a lock that CPU 0 holds until 5 us, in ns.
fn granted(handoff_lines_1024: u32, to: usize) -> u64 {
    let mut config = exact(16);
    config.profile.costs.handoff_lines_1024 = handoff_lines_1024;
    let at_ns = Rc::new(Cell::new(0));
    run_well(config, |script| {
        let lock = Rc::new(SimSpin::new(LockClass::Other));
        for (cpu, start) in [(0, 0), (to, 1000)] {
            let (lock, at_ns) = (Rc::clone(&lock), Rc::clone(&at_ns));
            script.spawn(cpu, move || {
                Sim::user(start);
                lock.lock();
                if cpu != 0 {
                    at_ns.set(Sim::now_ns());
                }
                Sim::user(5000);
                // SAFETY: it was just locked.
                unsafe { lock.unlock() };
            });
        }
    });
    at_ns.get()
}

#[test]
fn a_handoff_has_as_many_ways_of_a_line_as_the_profile_says() {
    let line = exact(16).profile.costs.line;
    for (to, line_ps) in [(1, line.smt_ps), (2, line.cluster_ps), (15, line.remote_ps)] {
        let (one, three) = (granted(1024, to), granted(3 * 1024, to));
        assert_eq!(three - one, 2 * line_ps / 1000, "to CPU {to}");
    }
}

/// Returns the time of 1000 operations, and of clearing a page, on a CPU that has left idle.
fn worked(clock: Clock) -> [u64; 2] {
    let mut config = exact(2);
    config.profile.topology.nodes = 1;
    config.profile.clock = clock;
    let found = Rc::new(Cell::new([0; 2]));
    let seen = Rc::clone(&found);
    run_well(config, |script| {
        let at = Rc::clone(&seen);
        let task = script.spawn(1, move || {
            Sim::park();
            let begun_ns = Sim::now_ns();
            Sim::work(Op::BuddyStep, 1000);
            let worked_ns = Sim::now_ns();
            Sim::clear_block(Pfn::new(0), Order::ZERO);
            at.set([worked_ns - begun_ns, Sim::now_ns() - worked_ns]);
        });
        script.spawn(0, move || {
            Sim::user(50_000);
            Sim::unpark(task);
        });
    });
    found.get()
}

#[test]
fn operations_follow_the_clock_and_memory_does_not() {
    let twice = Clock {
        reference_mhz: 2000.0,
        one_core_mhz: 4000.0,
        half_cores_mhz: 4000.0,
        all_cores_mhz: 4000.0,
        ..Clock::default()
    };
    let ([slow, clear], [fast, same]) = (worked(Clock::default()), worked(twice));
    assert_eq!((slow, clear), (2 * fast, same));
    // CPU 0 is the other thread of the core. It computes or idles; then it does not spin.
    let shared = Clock { smt_work_1024: 2048, smt_spin_1024: 1024, ..Clock::default() };
    assert!(worked(shared)[0] >= slow);
}
