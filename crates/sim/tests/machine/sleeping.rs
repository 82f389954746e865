//! Grace periods, where many tasks want one.

use crate::common::{config, run_well};
use mmscale_arch::{Ipi, Machine as _};
use mmscale_mm::rcu::Rcu;
use mmscale_sim::{Outcome, Policy, Sim, SimConfig};
use std::cell::Cell;
use std::rc::Rc;

const TICK_NS: u64 = 1_000_000;

/// Runs `program` on `cpus` CPUs with a tick each millisecond on CPU 2, under both policies, which
/// agree. Returns the outcome.
fn both(cpus: usize, program: impl Fn(&Rc<crate::common::Script>)) -> Outcome {
    let run = |policy| {
        run_well(SimConfig { policy, ..config(cpus) }, |script| {
            *script.on_timer.borrow_mut() =
                Some(Box::new(|| Sim::timer_arm(Sim::now_ns() + TICK_NS)));
            program(script);
        })
    };
    let (lazy, naive) = (run(Policy::Lazy), run(Policy::Naive));
    assert_eq!((lazy.virtual_ns, lazy.fingerprint), (naive.virtual_ns, naive.fingerprint));
    lazy
}

/// 32 CPUs want a grace period at the same time, and all of them are busy. The first caller gets
/// one, and all others share the next one. Each interrupts a CPU at most once.
#[test]
fn late_callers_of_an_expedited_grace_period_interrupt_no_cpu() {
    const CPUS: usize = 32;
    let heard = Rc::new(Cell::new(0));
    both(CPUS, |script| {
        let rcu = Rc::new(Rcu::<Sim>::new());
        heard.set(0);
        let (count, hears) = (Rc::clone(&heard), Rc::clone(&rcu));
        *script.on_ipi.borrow_mut() = Some(Box::new(move |reason| {
            assert_eq!(reason, Ipi::RcuExpedited);
            count.set(count.get() + 1);
            hears.expedited_ipi();
        }));
        let switches = Rc::clone(&rcu);
        *script.on_switch.borrow_mut() = Some(Box::new(move || switches.context_switch()));
        for cpu in 0..CPUS {
            let rcu = Rc::clone(&rcu);
            script.spawn(cpu, move || {
                Sim::user(100 * cpu as u64);
                rcu.synchronize_expedited();
            });
            // Not idle.
            script.spawn(cpu, || Sim::user(2_000_000));
        }
    });
    let most = 2 * (CPUS as u32 - 1);
    assert!((CPUS as u32 / 2..=most).contains(&heard.get()), "{} interrupts", heard.get());
}
