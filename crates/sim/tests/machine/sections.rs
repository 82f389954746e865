//! Sections without preemption: their length, their path, and their waits.

use crate::common::{config, fair, run_script, run_well};
use mmscale_arch::sync::{IrqGuard, PreemptGuard, SpinLock};
use mmscale_arch::{
    Atomic, Cpu as _, CpuId, Func, Ipi, LockClass, Machine as _, Op, Priority, Span, TaskSpec,
};
use mmscale_sim::{
    CpuSections, Disturbance, Faults, Gaps, Lengths, Noise, Sim, SimAtomic, SimConfig, Waited,
    Windows,
};
use std::cell::Cell;
use std::rc::Rc;

/// A machine without jitter, with one window of 1 ms.
fn watched(cpus: usize) -> SimConfig {
    let mut config = config(cpus);
    config.profile.costs.jitter_1024 = 0;
    config.sections = Some(Windows { from_ns: 0, window_ns: 1_000_000, count: 1 });
    config
}

/// The switch at the end of a task, which is a section too.
const SWITCH_NS: u64 = 800;

/// Works in operations of 20 ns each.
fn work_us(us: u32) {
    Sim::work(Op::Syscall, us * 50);
}

/// Returns the sections of CPU 0 while one task runs on it.
fn sections_of(config: SimConfig, body: impl FnOnce() + 'static) -> CpuSections {
    let outcome = run_well(config, |script| _ = script.spawn(0, body));
    outcome.sections.into_iter().next().expect("they were asked for")
}

fn longest(sections: &CpuSections) -> u64 {
    sections.longest.first().map_or(0, |section| section.ns)
}

#[test]
fn a_section_lasts_from_the_first_guard_to_the_end_of_the_last() {
    let seen = sections_of(watched(1), || {
        work_us(300);
        let outer = PreemptGuard::<Sim>::new();
        work_us(10);
        let inner = IrqGuard::<Sim>::new();
        work_us(10);
        drop(outer);
        work_us(5);
        drop(inner);
        work_us(300);
        drop(IrqGuard::<Sim>::new());
    });
    assert_eq!(longest(&seen), 25_000);
    assert_eq!(seen.window_max_ns, [25_000]);
    assert_eq!((seen.longest[0].begin_ns / 1000, seen.longest[0].waits.len()), (300, 0));
    assert_eq!(seen.buckets[14], 1, "16,384 ns and more");
}

#[test]
fn a_section_reports_the_lock_it_waited_for_and_the_path() {
    let lock = Rc::new(SpinLock::<Sim, ()>::new(LockClass::Zone, ()));
    let outcome = run_well(watched(2), |script| {
        let held = Rc::clone(&lock);
        script.spawn(0, move || {
            let _held = held.lock();
            work_us(100);
        });
        script.spawn(1, move || {
            work_us(20);
            let _span = Span::<Sim>::enter(Func::RmqueueBulk);
            drop(lock.lock());
        });
    });
    let [waited, held] = [1, 0].map(|cpu| outcome.sections[cpu].longest[0].clone());
    assert_eq!(held.waits, []);
    assert_eq!(waited.path.last().map(String::as_str), Some("rmqueue_bulk"));
    let (what, ns) = waited.waits[0];
    assert_eq!(what, Waited::Lock(LockClass::Zone));
    assert!((79_000..82_000).contains(&ns) && waited.ns >= ns, "{waited:?}");
}

#[test]
fn a_section_reports_its_waits_in_loops() {
    let flag = Rc::new(SimAtomic::<u32>::new(0));
    let outcome = run_well(watched(2), |script| {
        let set = Rc::clone(&flag);
        script.spawn(0, move || {
            work_us(200);
            set.store(1, std::sync::atomic::Ordering::SeqCst);
        });
        let wait = move |atomic: bool| {
            let _span = Span::<Sim>::enter(Func::FlushTlbMmRange);
            let guard = atomic.then(PreemptGuard::<Sim>::new);
            while flag.load(std::sync::atomic::Ordering::SeqCst) == 0 {
                Sim::relax();
            }
            drop(guard);
        };
        script.spawn(1, move || wait(true));
    });
    let seen = &outcome.sections[1];
    assert_eq!(seen.longest[0].waits[0].0, Waited::Loop);
    assert!(seen.longest[0].waits[0].1 > 150_000, "{:?}", seen.longest[0]);
    let [row] = &seen.loops[..] else { panic!("one loop: {:?}", seen.loops) };
    assert_eq!((row.sections, row.max_ns), (1, row.total_ns));
    assert_eq!(row.path.last().map(String::as_str), Some("flush_tlb_mm_range"));
    assert!(row.max_ns > 150_000);
}

#[test]
fn a_loop_that_others_can_interrupt_is_no_section() {
    let seen = sections_of(watched(1), || (0..1000).for_each(|_| Sim::relax()));
    assert!(longest(&seen) <= SWITCH_NS && seen.loops.is_empty(), "{:?}", seen.longest);
}

fn every(period_ns: u64, ns: u64) -> Option<Disturbance> {
    Some(Disturbance { period_ns, gaps: Gaps::Around, lengths: Lengths::Of([ns; 8]) })
}

#[test]
fn stolen_time_counts_within_a_section_only_and_a_handler_always() {
    let with = |noise, off: bool| {
        sections_of(SimConfig { noise, ..watched(1) }, move || {
            let guard = off.then(PreemptGuard::<Sim>::new);
            work_us(100);
            drop(guard);
        })
    };
    let stolen = Noise { stolen: every(60_000, 40_000), irq_off: None };
    let handler = Noise { stolen: None, irq_off: every(60_000, 40_000) };
    assert!(longest(&with(stolen, false)) <= SWITCH_NS, "stolen time is invisible");
    let within = with(stolen, true);
    assert!(
        within.longest[0].waits.iter().any(|&(what, ns)| what == Waited::Stolen && ns >= 40_000)
    );
    assert!(longest(&within) >= 140_000);
    let alone = with(handler, false);
    assert_eq!(alone.longest[0].waits[0].0, Waited::Handler);
    assert_eq!(longest(&alone), 40_300, "with the entry and the exit of an interrupt");
}

#[test]
fn an_idle_cpu_is_in_no_section_and_an_interrupt_in_it_is() {
    let outcome = run_well(watched(2), |script| {
        *script.on_ipi.borrow_mut() = Some(Box::new(|_| work_us(30)));
        script.spawn(0, || {
            work_us(500);
            Sim::ipi_send(CpuId::new(1), Ipi::CallFunction);
            work_us(100);
        });
    });
    let idle = &outcome.sections[1];
    // The exit from idle, the interrupt and its work.
    assert!((30_000..35_000).contains(&longest(idle)), "{:?}", idle.longest);
}

#[test]
fn looking_at_sections_changes_nothing_else() {
    let run = |sections| {
        let config = SimConfig { sections, ..watched(3) };
        let lock = Rc::new(SpinLock::<Sim, ()>::new(LockClass::Zone, ()));
        let outcome = run_well(config, |script| {
            for cpu in 0..3 {
                let lock = Rc::clone(&lock);
                script.spawn(cpu, move || {
                    for _ in 0..50 {
                        let _held = lock.lock_irqsave();
                        work_us(2);
                    }
                    Sim::relax();
                });
            }
        });
        (outcome.virtual_ns, outcome.events, outcome.locks, outcome.sections.len())
    };
    let (on, off) = (run(watched(3).sections), run(None));
    assert_eq!((on.0, on.1, &on.2), (off.0, off.1, &off.2));
    assert_eq!((on.3, off.3), (3, 0));
}

/// Returns the delay of a real-time task that an interrupt wakes while a fair task computes.
fn latency_ns(off: bool) -> u64 {
    let latency = Rc::new(Cell::new(0));
    let out = Rc::clone(&latency);
    run_well(watched(2), |script| {
        let urgent = TaskSpec { priority: Priority::RealTime(99), ..fair(0) };
        let woken_ns = Rc::new(Cell::new(0));
        let at = Rc::clone(&woken_ns);
        let urgent = script.spawn_as(urgent, move || {
            Sim::park();
            out.set(Sim::now_ns() - at.get());
        });
        script.spawn(0, move || {
            let guard = off.then(PreemptGuard::<Sim>::new);
            work_us(400);
            drop(guard);
        });
        script.spawn(1, move || {
            work_us(100);
            woken_ns.set(Sim::now_ns());
            Sim::unpark(urgent);
        });
    });
    latency.get()
}

#[test]
fn the_most_urgent_task_waits_for_the_end_of_a_section() {
    assert!(latency_ns(false) < 10_000, "{}", latency_ns(false));
    assert!(latency_ns(true) > 290_000, "{}", latency_ns(true));
}

#[test]
fn an_interrupt_waits_until_a_long_window_ends() {
    let arrived = Rc::new(Cell::new(0));
    let out = Rc::clone(&arrived);
    let noise = Noise { stolen: every(1_000_000_000, 1), irq_off: every(200_000, 5_000_000) };
    let outcome = run_script(SimConfig { noise, ..watched(2) }, |script| {
        *script.on_ipi.borrow_mut() = Some(Box::new(move |_| out.set(Sim::now_ns())));
        // By then CPU 1 is in its first handler, which began at 100 to 300 us.
        script.spawn(0, || {
            let _off = IrqGuard::<Sim>::new();
            work_us(400);
            Sim::ipi_send(CpuId::new(1), Ipi::CallFunction);
        });
        script.spawn(1, || Sim::user(400_000));
    });
    assert_eq!(outcome.failure, None);
    assert!(arrived.get() > 5_100_000, "{}", arrived.get());
    assert!(outcome.lateness.max_ns > 4_600_000);
}

#[test]
fn a_target_that_never_answers_ends_the_run_and_is_named() {
    let faults = Faults { lost_ipi_1024: 1024, ..Faults::default() };
    let answered = Rc::new(SimAtomic::<u32>::new(0));
    let config = SimConfig { faults, limit_ns: 2_000_000, ..watched(2) };
    let outcome = run_script(config, |script| {
        let answer = Rc::clone(&answered);
        *script.on_ipi.borrow_mut() =
            Some(Box::new(move |_| answer.store(1, std::sync::atomic::Ordering::SeqCst)));
        script.spawn(1, || Sim::user(100_000_000));
        script.spawn(0, move || {
            let _span = Span::<Sim>::enter(Func::FlushTlbMmRange);
            let _guard = PreemptGuard::<Sim>::new();
            Sim::ipi_send(CpuId::new(1), Ipi::CallFunction);
            while answered.load(std::sync::atomic::Ordering::SeqCst) == 0 {
                Sim::relax();
            }
        });
    });
    let failure = outcome.failure.expect("the target does not answer").to_string();
    let what = "flush_tlb_mm_range: runs with preemption off";
    assert!(failure.contains("still running after") && failure.contains(what), "{failure}");
}
