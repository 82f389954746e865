//! The example of `docs/internals/virtual-time.md` and of the engine's module page.

use crate::common::{Script, config, run_well};
use mmscale_arch::{Atomic, Cpu as _, CpuId, Ipi, LockClass, Machine as _, Op, RawSpin};
use mmscale_sim::profile::Topology;
use mmscale_sim::{Outcome, Policy, Sim, SimAtomic, SimConfig, SimSpin, TrailOf};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A seed that gives CPU 0 the lower rank.
const CPU0_FIRST: u64 = 0;

/// Two CPUs with a last-level cache in common, and the costs of the example.
fn two_cpus(seed: u64, policy: Policy) -> SimConfig {
    let mut config = SimConfig { seed, policy, trail: TrailOf::Block(0), ..config(2) };
    config.profile.topology = Topology { cpus: 2, smt: 1, cluster: 2, nodes: 1 };
    let costs = &mut config.profile.costs;
    costs.op_ps[Op::Syscall as usize] = 1_000;
    (costs.line.own_ps, costs.line.cluster_ps) = (5_000, 25_000);
    (costs.lock_ps, costs.unlock_ps, costs.handoff_fixed_ps) = (10_000, 5_000, 60_000);
    (costs.ipi_send_ps, costs.ipi_delivery_ps, costs.irq_ps) = (20_000, 100_000, 50_000);
    costs.jitter_1024 = 0;
    config
}

/// Works for `ns`.
fn work(ns: u32) {
    Sim::work(Op::Syscall, ns);
}

/// Runs the example; returns the steps of both CPUs as they passed on the host, with their times.
fn run_example(config: SimConfig) -> (Outcome, Vec<(&'static str, u64)>) {
    let steps = Rc::new(RefCell::new(Vec::new()));
    let boot = |script: &Rc<Script>| {
        let lock = Rc::new(SimSpin::new(LockClass::Other));
        let flag = Rc::new(SimAtomic::<u32>::new(0));
        let note = |name| {
            let steps = Rc::clone(&steps);
            move || steps.borrow_mut().push((name, Sim::now_ns()))
        };
        let (locked, released, sent) = (note("0 locked"), note("0 released"), note("0 sent"));
        let of_cpu0 = Rc::clone(&lock);
        script.spawn(0, move || {
            work(80);
            of_cpu0.lock();
            locked();
            work(100);
            // SAFETY: it was just locked.
            unsafe { of_cpu0.unlock() };
            released();
            Sim::ipi_send(CpuId::new(1), Ipi::CallFunction);
            sent();
        });
        let (locked, released, loaded) = (note("1 locked"), note("1 released"), note("1 loaded"));
        script.spawn(1, move || {
            work(80);
            let irqs = Sim::irq_save();
            lock.lock();
            locked();
            work(40);
            // SAFETY: it was just locked.
            unsafe { lock.unlock() };
            Sim::irq_restore(irqs);
            released();
            flag.load(Ordering::Relaxed);
            loaded();
        });
        let handled = note("1 handled");
        *script.on_ipi.borrow_mut() = Some(Box::new(move |_| handled()));
    };
    let outcome = run_well(config, boot);
    (outcome, steps.take())
}

#[test]
fn worked_example() {
    let on_host = [
        ("0 locked", 95),
        ("0 released", 200),
        ("0 sent", 220),
        ("1 locked", 285),
        ("1 released", 330),
        ("1 handled", 380),
        ("1 loaded", 385),
    ];
    for policy in [Policy::Lazy, Policy::Naive] {
        let (outcome, steps) = run_example(two_cpus(CPU0_FIRST, policy));
        assert_eq!(steps, on_host, "{policy:?}");
        let row = &outcome.locks[0];
        assert_eq!((row.acquisitions, row.contentions), (2, 1));
        assert_eq!((row.wait_total_ns, row.hold_total_ns), (285 - 80, (200 - 95) + (330 - 285)));
        assert_eq!((outcome.lateness.interrupts, outcome.lateness.max_ns), (1, 330 - 300));
        let turns = outcome.trail.events.iter().map(|event| (event.cpu.index(), event.time_ps));
        let turns: Vec<_> = turns.filter(|(_, time_ps)| (1..=380_000).contains(time_ps)).collect();
        let wanted =
            [(0, 80), (1, 80), (0, 200), (1, 380), (1, 380)].map(|(cpu, ns)| (cpu, ns * 1000));
        assert_eq!(turns, wanted, "{policy:?}: requests, the send, the interrupt and the load");
    }
}

#[test]
fn a_tie_goes_by_the_rank_that_the_seed_draws() {
    // With CPU 1 first, it holds the lock from 95 to 140, and CPU 0 is granted it at 140 + 60 + 25.
    let (cpu0_first, cpu1_first) = ([95, 285], [225, 95]);
    let mut seen = [0, 0];
    for seed in 0..16 {
        let [lazy, naive] = [Policy::Lazy, Policy::Naive].map(|policy| {
            let (_, steps) = run_example(two_cpus(seed, policy));
            ["0 locked", "1 locked"].map(|name| steps.iter().find(|step| step.0 == name).unwrap().1)
        });
        assert_eq!(lazy, naive, "seed {seed}");
        assert!(lazy == cpu0_first || lazy == cpu1_first, "seed {seed}: {lazy:?}");
        seen[usize::from(lazy == cpu1_first)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "one order only: {seen:?}");
}

/// A CPU computes until its timer, is interrupted earlier, and then reaches an operation at exactly
/// the timer's time: the timer's entry in the queue has the CPU's own order word.
#[test]
fn a_running_cpu_does_not_wait_for_the_entry_of_its_own_timer() {
    for policy in [Policy::Lazy, Policy::Naive] {
        let steps = Rc::new(RefCell::new(Vec::new()));
        let out = Rc::clone(&steps);
        run_well(two_cpus(CPU0_FIRST, policy), |script| {
            script.spawn(0, || {
                work(200);
                Sim::ipi_send(CpuId::new(1), Ipi::CallFunction);
            });
            script.spawn(1, || {
                Sim::timer_arm(1000);
                Sim::user(3000);
            });
            let flag = SimAtomic::<u32>::new(0);
            let handled = Rc::clone(&out);
            // It arrives at 300 and is entered by 350: the load is at 1000.
            *script.on_ipi.borrow_mut() = Some(Box::new(move |_| {
                work(650);
                let before_ns = Sim::now_ns();
                flag.load(Ordering::Relaxed);
                handled.borrow_mut().push(("load", before_ns));
            }));
            *script.on_timer.borrow_mut() =
                Some(Box::new(move || out.borrow_mut().push(("timer", Sim::now_ns()))));
        });
        // Interrupts are off in a handler: the timer's follows, after the load and its own entry.
        assert_eq!(steps.take(), [("load", 1000), ("timer", 1000 + 5 + 50)], "{policy:?}");
    }
}
