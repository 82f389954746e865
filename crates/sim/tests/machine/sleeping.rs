//! Sleeping locks and grace periods, where many tasks want one.

use crate::common::{config, fair, run_well};
use mmscale_arch::sync::{Mutex, RwSem};
use mmscale_arch::{Cpu as _, Func, Ipi, LockClass, Machine as _, Priority, Span, TaskSpec};
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

/// The owner computes for 20 ms, CPU 1 spins for it, and CPU 2 spins behind CPU 1. A task waits for
/// CPU 2: it runs when the spinner's time slice has ended.
/// Returns when. `make` makes a function that holds a lock for some ns.
fn time_of_the_third_task<L: Fn(u64) + Clone + 'static>(make: impl Fn() -> L) -> u64 {
    let ran_ns = Rc::new(Cell::new(0));
    both(3, |script| {
        let lock = make();
        for cpu in 0..3_u64 {
            let lock = lock.clone();
            script.spawn(cpu as usize, move || {
                if cpu == 2 {
                    Sim::timer_arm(TICK_NS);
                }
                Sim::user(10_000 * cpu);
                lock(if cpu == 0 { 20_000_000 } else { 1_000 });
            });
        }
        let ran_ns = Rc::clone(&ran_ns);
        script.spawn(2, move || ran_ns.set(Sim::now_ns()));
    });
    ran_ns.get()
}

#[test]
fn a_spinner_behind_another_leaves_for_a_task_that_waits_for_its_cpu() {
    let of_mutex = time_of_the_third_task(|| {
        let mutex = Rc::new(Mutex::<Sim, ()>::new(LockClass::Mutex, ()));
        move |ns| {
            let _held = mutex.lock();
            Sim::user(ns);
        }
    });
    let of_sem = time_of_the_third_task(|| {
        let sem = Rc::new(RwSem::<Sim, ()>::new(LockClass::Rwsem, ()));
        move |ns| {
            let _held = sem.write();
            Sim::user(ns);
        }
    });
    // The slice is 2.8 ms.
    for ran_ns in [of_mutex, of_sem] {
        assert!((2_800_000..4_200_000).contains(&ran_ns), "ran at {ran_ns} ns");
    }
}

/// A fair task on CPU 0 wakes a more urgent one every 20 us. A second fair task waits for that CPU:
/// it gets it when the slice of the first one, 2.8 ms, has ended.
#[test]
fn a_time_slice_ends_although_urgent_tasks_interrupt_it() {
    let ran_ns = Rc::new(Cell::new(0));
    both(3, |script| {
        let spec = TaskSpec { priority: Priority::RealTime(1), ..fair(0) };
        let urgent = script.spawn_as(spec, || (0..1_000).for_each(|_| Sim::park()));
        script.spawn(0, move || {
            for _ in 0..1_000 {
                Sim::timer_arm(Sim::now_ns() + 10_000);
                Sim::unpark(urgent);
                Sim::user(20_000);
            }
        });
        let ran_ns = Rc::clone(&ran_ns);
        script.spawn(0, move || ran_ns.set(Sim::now_ns()));
    });
    let ran_ns = ran_ns.get();
    // The slice, and the time of the urgent task in between.
    assert!((2_800_000..4_200_000).contains(&ran_ns), "ran at {ran_ns} ns");
}

/// Three writers of a semaphore hold it for a ms each, and then for reading. The waits and holds
/// are in the rows, by path.
#[test]
fn waits_and_holds_of_sleeping_locks_have_rows() {
    let outcome = both(3, |script| {
        let sem = Rc::new(RwSem::<Sim, ()>::new(LockClass::MmapLock, ()));
        for cpu in 0..3_usize {
            let sem = Rc::clone(&sem);
            script.spawn(cpu, move || {
                Sim::user(100_000 * cpu as u64);
                let _span = Span::<Sim>::enter(if cpu == 0 { Func::DupMmap } else { Func::DoMmap });
                let held = sem.write();
                Sim::user(1_000_000);
                let _held = held.downgrade();
                Sim::user(10_000);
            });
        }
    });
    let row = |site: &str| {
        let rows = outcome.locks.iter();
        let mut rows = rows.filter(|row| row.class == "mmap_lock" && row.passes_through(site));
        rows.next().expect("a row").clone()
    };
    let (first, others) = (row("dup_mmap"), row("do_mmap"));
    assert!(first.sleeps && others.sleeps);
    assert_eq!((first.acquisitions, first.contentions, first.wait_max_ns), (1, 0, 0));
    assert_eq!((others.acquisitions, others.contentions), (2, 2));
    // A downgraded lock is one hold.
    assert!((1_010_000..1_050_000).contains(&first.hold_total_ns), "{first:?}");
    assert!((2_020_000..2_100_000).contains(&others.hold_total_ns), "{others:?}");
    // The second waits for 910 us, the third for twice as long as a hold, less 200 us.
    assert!((1_750_000..1_950_000).contains(&others.wait_max_ns), "{others:?}");
    assert!((2_650_000..2_850_000).contains(&others.wait_total_ns), "{others:?}");
}

/// Two real-time tasks of one priority share CPU 0, which has a tick: the second one runs when the
/// first one ends.
#[test]
fn a_real_time_task_runs_until_it_blocks() {
    let ran_ns = Rc::new(Cell::new(0));
    both(3, |script| {
        let spec = TaskSpec { priority: Priority::RealTime(1), ..fair(0) };
        script.spawn_as(spec, || {
            Sim::timer_arm(TICK_NS);
            Sim::user(10_000_000);
        });
        let ran_ns = Rc::clone(&ran_ns);
        script.spawn_as(spec, move || ran_ns.set(Sim::now_ns()));
    });
    assert!(ran_ns.get() >= 10_000_000, "ran at {} ns", ran_ns.get());
}

/// A writer is preempted by a more urgent one on its CPU, at any step of taking and of releasing
/// the semaphore. The urgent one never spins for the writer that it keeps from running.
#[test]
fn an_urgent_writer_does_not_spin_for_one_that_it_preempted() {
    for woken_ns in (0..4_000).step_by(20) {
        run_well(config(2), |script| {
            let sem = Rc::new(RwSem::<Sim, u32>::new(LockClass::Rwsem, 0));
            let (slow, urgent) = (Rc::clone(&sem), Rc::clone(&sem));
            let spec = TaskSpec { priority: Priority::RealTime(1), ..fair(1) };
            let waits = script.spawn_as(spec, move || {
                Sim::park();
                *urgent.write() += 1;
            });
            script.spawn(1, move || {
                Sim::user(2_000);
                let mut value = slow.write();
                Sim::user(500);
                *value += 1;
                drop(value);
                Sim::user(2_000);
            });
            script.spawn(0, move || {
                Sim::user(500 + woken_ns);
                Sim::unpark(waits);
            });
        });
    }
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
