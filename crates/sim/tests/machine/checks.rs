//! Planted bugs, and the checkers that catch them.

use crate::common::{Script, config, run_script};
use mmscale_arch::sync::{IrqGuard, PreemptGuard, SpinLock};
use mmscale_arch::{Cpu as _, CpuId, Func, Ipi, LockClass, Machine as _, RawSpin, Span};
use mmscale_sim::{Checks, Failure, Rule, Sim, SimConfig, SimSpin, Violation};
use std::cell::Cell;
use std::rc::Rc;

fn lock(class: LockClass) -> SpinLock<Sim, ()> {
    SpinLock::new(class, ())
}

/// The violations of a program of one task on CPU 0.
fn violations(body: impl FnOnce() + 'static) -> Vec<Violation> {
    let outcome = run_script(config(2), |script| {
        script.spawn(0, body);
    });
    assert_eq!(outcome.failure, None);
    outcome.violations
}

#[track_caller]
fn only(violations: &[Violation], rule: Rule, text: &str) {
    let [violation] = violations else { panic!("one violation, not {violations:?}") };
    assert_eq!(violation.rule, rule);
    assert!(violation.to_string().contains(text), "{violation}");
}

#[test]
fn a_lock_taken_against_the_order_is_named_with_its_path() {
    let seen = violations(|| {
        let (zone, pcp) = (lock(LockClass::Zone), lock(LockClass::Pcp));
        drop((pcp.lock(), zone.lock()));
        let _span = Span::<Sim>::enter(Func::DrainPages);
        let _zone = zone.lock();
        drop(pcp.lock());
    });
    only(&seen, Rule::LockOrder, "takes a pcp lock under a zone lock (cpu0 at ");
    assert_eq!(seen[0].location.path, ["drain_pages"]);
}

#[test]
fn two_locks_of_one_class_are_against_the_order() {
    let seen = violations(|| {
        let (a, b) = (lock(LockClass::Zone), lock(LockClass::Zone));
        let _a = a.lock();
        drop(b.try_lock()); // A try cannot deadlock.
        drop(b.lock());
    });
    only(&seen, Rule::LockOrder, "takes a zone lock under a zone lock");
    let seen = violations(|| {
        let (a, b) = (lock(LockClass::Other), lock(LockClass::Other));
        drop((a.lock(), b.lock()));
    });
    assert_eq!(seen, []);
}

#[test]
fn a_class_taken_in_interrupts_and_with_interrupts_on_is_named() {
    for safe in [true, false] {
        let outcome = run_script(config(1), |script| {
            let zone = Rc::new(lock(LockClass::Zone));
            let mine = Rc::clone(&zone);
            *script.on_timer.borrow_mut() = Some(Box::new(move || drop(zone.lock())));
            script.spawn(0, move || {
                Sim::timer_arm(1_000);
                Sim::user(5_000);
                if safe { drop(mine.lock_irqsave()) } else { drop(mine.lock()) }
            });
        });
        if safe {
            assert_eq!(outcome.violations, []);
        } else {
            let text = "a zone lock is waited for in interrupts and taken with interrupts on";
            only(&outcome.violations, Rule::InterruptSafety, text);
        }
    }
}

/// The interrupt comes at another moment. It could come while the task holds its lock.
#[test]
fn a_lock_that_comes_after_one_of_interrupts_is_never_taken_with_interrupts_on() {
    let run = |task: LockClass, irqs_off: bool, task_first: bool| {
        let outcome = run_script(config(1), |script| {
            let zone = lock(LockClass::Zone);
            *script.on_timer.borrow_mut() = Some(Box::new(move || drop(zone.lock())));
            script.spawn(0, move || {
                let mine = lock(task);
                let take = || if irqs_off { drop(mine.lock_irqsave()) } else { drop(mine.lock()) };
                if task_first {
                    take();
                }
                Sim::timer_arm(Sim::now_ns() + 1_000);
                Sim::user(5_000);
                if !task_first {
                    take();
                }
            });
        });
        outcome.violations
    };
    for first in [true, false] {
        let text = "interrupts wait for a zone lock, and a rstat lock, which comes after it, is \
                    taken with interrupts on";
        only(&run(LockClass::Rstat, false, first), Rule::InterruptSafety, text);
        for (task, irqs_off) in
            [(LockClass::Rstat, true), (LockClass::Pcp, false), (LockClass::Other, false)]
        {
            assert_eq!(run(task, irqs_off, first), [], "{task:?}");
        }
    }
}

/// An interrupt that only tries a lock never waits for the task that it interrupted. A task that
/// got the lock by trying holds it like any other.
#[test]
fn a_try_counts_in_tasks_and_not_in_interrupts() {
    for (try_in_interrupt, expected) in [(true, 0), (false, 1)] {
        let outcome = run_script(config(1), |script| {
            let zone = Rc::new(lock(LockClass::Zone));
            let mine = Rc::clone(&zone);
            *script.on_timer.borrow_mut() = Some(Box::new(move || {
                if try_in_interrupt { drop(zone.try_lock()) } else { drop(zone.lock()) }
            }));
            script.spawn(0, move || {
                Sim::timer_arm(1_000);
                Sim::user(5_000);
                drop(mine.try_lock());
            });
        });
        assert_eq!(outcome.violations.len(), expected, "{:?}", outcome.violations);
    }
}

/// A task checks a condition, then joins the queue of waiters, and does not check again.
#[test]
fn a_lost_wake_up_ends_in_a_deadlock_that_names_the_sleeper() {
    let run = |looks_again: bool| {
        run_script(config(2), |script| {
            let done = Rc::new(Cell::new(false));
            let queue = Rc::new(SpinLock::<Sim, Vec<_>>::new(LockClass::WaitQueue, Vec::new()));
            let (mine, waiters) = (Rc::clone(&done), Rc::clone(&queue));
            script.spawn(0, move || {
                if !mine.get() {
                    Sim::user(10_000); // The other task has finished and has woken all.
                    waiters.lock_irqsave().push(Sim::current());
                    if !(looks_again && mine.get()) {
                        Sim::park();
                    }
                }
            });
            script.spawn(1, move || {
                Sim::user(5_000);
                done.set(true);
                queue.lock_irqsave().drain(..).for_each(Sim::unpark);
            });
        })
    };
    assert_eq!(run(true).failure, None);
    let text = run(false).failure.expect("it sleeps for ever").to_string();
    assert!(text.contains("deadlock") && text.contains("is parked on cpu0"), "{text}");
}

#[test]
fn sleeping_while_atomic_is_named() {
    type Plant = fn(&Script);
    let plants: [(&str, Plant); 3] = [
        ("with preemption off", |script| {
            script.spawn(0, || {
                let _off = PreemptGuard::<Sim>::new();
                Sim::unpark(Sim::current());
                Sim::park();
            });
        }),
        ("with interrupts off", |script| {
            script.spawn(0, || {
                let _off = IrqGuard::<Sim>::new();
                Sim::unpark(Sim::current());
                Sim::park();
            });
        }),
        ("in an interrupt", |script| {
            *script.on_timer.borrow_mut() = Some(Box::new(|| {
                Sim::unpark(Sim::current());
                Sim::park();
            }));
            script.spawn(0, || {
                Sim::timer_arm(1_000);
                Sim::user(5_000);
            });
        }),
    ];
    for (text, plant) in plants {
        let outcome = run_script(config(1), |script| plant(script));
        only(&outcome.violations, Rule::SleepWhileAtomic, text);
    }
}

#[test]
fn unbalanced_guards_are_named() {
    let seen = violations(Sim::preempt_disable);
    only(&seen, Rule::Balance, "a task ends with a preemption count of 1");
    let seen = violations(|| _ = Sim::irq_save());
    only(&seen, Rule::Balance, "a task ends with interrupts off");
    let outcome = run_script(config(1), |script| {
        *script.on_timer.borrow_mut() = Some(Box::new(Sim::preempt_disable));
        script.spawn(0, || {
            Sim::timer_arm(1_000);
            Sim::user(5_000);
        });
    });
    only(
        &outcome.violations,
        Rule::Balance,
        "an interrupt leaves the preemption count at 1, not 0",
    );
}

#[test]
fn releasing_a_foreign_lock_is_named_and_changes_nothing() {
    let outcome = run_script(config(2), |script| {
        let lock = Rc::new(SimSpin::new(LockClass::Zone));
        let other = Rc::clone(&lock);
        script.spawn(0, move || {
            lock.lock();
            Sim::user(10_000);
            assert!(lock.is_locked());
            // SAFETY: this CPU holds it; the attempt of the other CPU had no effect.
            unsafe { lock.unlock() };
        });
        script.spawn(1, move || {
            Sim::user(5_000);
            // SAFETY: a planted bug; the engine refuses.
            unsafe { other.unlock() };
        });
    });
    assert_eq!(outcome.failure, None);
    only(&outcome.violations, Rule::UnlockOwner, "releases a zone lock that cpu0 holds");
}

#[test]
fn an_interrupt_to_an_offline_cpu_is_named() {
    let seen = violations(|| {
        assert_eq!(Sim::cpu_offline(CpuId::new(1)), Ok(()));
        Sim::ipi_send(CpuId::new(1), Ipi::CallFunction);
    });
    only(&seen, Rule::OfflineIpi, "sends an interrupt to cpu1, which is offline");
}

#[test]
fn locks_taken_crosswise_end_in_a_deadlock_that_names_both() {
    let outcome = run_script(config(2), |script| {
        let locks = [Rc::new(lock(LockClass::Other)), Rc::new(lock(LockClass::Other))];
        for cpu in 0..2 {
            let (first, second) = (Rc::clone(&locks[cpu]), Rc::clone(&locks[1 - cpu]));
            script.spawn(cpu, move || {
                let _first = first.lock();
                Sim::user(5_000);
                drop(second.lock());
            });
        }
    });
    let text = outcome.failure.expect("both wait for ever").to_string();
    assert!(text.contains("spins for other lock 1, held by cpu"), "{text}");
    assert!(text.contains("spins for other lock 2, held by cpu"), "{text}");
}

#[test]
fn taking_a_lock_twice_is_a_deadlock() {
    let outcome = run_script(config(2), |script| {
        script.spawn(0, || {
            let lock = lock(LockClass::Zone);
            let _held = lock.lock();
            drop(lock.lock());
        });
    });
    let Some(Failure::Deadlock { waiting, .. }) = outcome.failure else { panic!("no deadlock") };
    assert!(waiting[0].contains("takes a zone lock that this CPU holds already"), "{waiting:?}");
}

#[test]
fn checkers_that_are_off_say_nothing_and_change_no_result() {
    let run = |checks| {
        run_script(SimConfig { checks, ..config(2) }, |script| {
            script.spawn(0, || {
                let (zone, pcp) = (lock(LockClass::Zone), lock(LockClass::Pcp));
                let _zone = zone.lock();
                drop(pcp.lock());
            });
        })
    };
    let (on, off) = (run(Checks::On), run(Checks::Off));
    assert_eq!((on.violations.len(), off.violations.len()), (1, 0));
    assert_eq!(on.fingerprint, off.fingerprint);
}
