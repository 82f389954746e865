//! Basics of the machine: time, locks, wake-ups, interrupts, timers, idle.

use crate::common::{config, fair, run_script, run_well};
use mmscale_arch::sync::{IrqGuard, SpinLock};
use mmscale_arch::{
    Access, Atomic, Cpu as _, CpuId, DataLine, Ipi, Line, LockClass, Machine as _, Op, Pfn,
    Priority, RawSpin, TaskSpec,
};
use mmscale_sim::{Failure, Policy, Sim, SimAtomic, SimConfig, SimSpin};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn exact(cpus: usize) -> SimConfig {
    let mut config = config(cpus);
    config.profile.costs.jitter_1024 = 0;
    config
}

#[test]
fn work_takes_its_time_on_its_own_cpu_only() {
    let times = Rc::new(RefCell::new(Vec::new()));
    let outcome = run_well(exact(3), |script| {
        for cpu in 0..3_usize {
            let times = Rc::clone(&times);
            script.spawn(cpu, move || {
                Sim::user(1000 * (cpu as u64 + 1));
                times.borrow_mut().push((Sim::cpu().index(), Sim::now_ns()));
            });
        }
    });
    let mut times = times.take();
    times.sort_unstable();
    assert_eq!(times, [(0, 1000), (1, 2000), (2, 3000)]);
    assert!(outcome.virtual_ns >= 3000);
}

#[test]
fn a_lock_excludes_and_counts_waits() {
    const ROUNDS: u32 = 200;
    let outcome = run_well(config(4), |script| {
        let lock = Rc::new(SpinLock::<Sim, u32>::new(LockClass::Zone, 0));
        let inside = Rc::new(Cell::new(false));
        for cpu in 0..4 {
            let (lock, inside) = (Rc::clone(&lock), Rc::clone(&inside));
            script.spawn(cpu, move || {
                for _ in 0..ROUNDS {
                    Sim::user(300);
                    let mut count = lock.lock();
                    assert!(!inside.replace(true));
                    Sim::user(200);
                    *count += 1;
                    inside.set(false);
                }
                if Sim::cpu().index() == 0 {
                    assert!(*lock.lock() >= ROUNDS);
                }
            });
        }
    });
    let row = &outcome.locks[0];
    assert_eq!((row.class.as_str(), row.acquisitions), ("zone", u64::from(4 * ROUNDS) + 1));
    // Four CPUs that each want the lock 40 % of their time: most acquisitions wait.
    assert!(row.contentions > 300, "{row:?}");
    assert!(row.hold_total_ns >= 4 * u64::from(ROUNDS) * 190);
    assert!(row.wait_max_ns < 3 * 600 && row.wait_total_ns > 300 * 100, "{row:?}");
}

/// The first waiter of a queue lock makes no event that `perf lock contention` could count; those
/// behind it do, also while the lock is on its way to the first.
#[test]
fn a_wait_is_queued_if_another_cpu_waits_already() {
    for policy in [Policy::Lazy, Policy::Naive] {
        let arrivals = |starts: &[u64]| {
            let config = SimConfig { policy, ..exact(4) };
            let handoff_ns = config.profile.costs.handoff_fixed_ps / 1000;
            let outcome = run_well(config, |script| {
                let lock = Rc::new(SpinLock::<Sim, ()>::new(LockClass::Zone, ()));
                for (cpu, &start) in starts.iter().enumerate() {
                    let lock = Rc::clone(&lock);
                    script.spawn(cpu, move || {
                        Sim::user(start);
                        let _held = lock.lock();
                        Sim::user(5_000);
                    });
                }
            });
            let row = &outcome.locks[0];
            assert!(row.queued_max_ns <= row.wait_max_ns);
            (row.contentions, row.queued, row.queued_total_ns, handoff_ns)
        };
        let (contended, queued, queued_ns, handoff_ns) = arrivals(&[0, 1_000]);
        assert_eq!((contended, queued, queued_ns), (1, 0, 0), "{policy:?}");
        let (contended, queued, queued_ns, _) = arrivals(&[0, 1_000, 2_000]);
        assert_eq!((contended, queued), (2, 1), "{policy:?}");
        assert!((8_000..9_000).contains(&queued_ns), "{policy:?} {queued_ns}");
        // The third arrives after the release, before the second has the lock.
        let (contended, queued, ..) = arrivals(&[0, 1_000, 5_000 + handoff_ns / 2]);
        assert_eq!((contended, queued), (2, 1), "{policy:?}");
    }
}

#[test]
fn waiters_get_the_lock_in_the_order_of_arrival() {
    let order = Rc::new(RefCell::new(Vec::new()));
    run_well(exact(5), |script| {
        let lock = Rc::new(SimSpin::new(LockClass::Other));
        for (cpu, start) in [(0, 0), (1, 400), (2, 100), (3, 300), (4, 200)] {
            let (lock, order) = (Rc::clone(&lock), Rc::clone(&order));
            script.spawn(cpu, move || {
                Sim::user(start);
                lock.lock();
                order.borrow_mut().push(cpu);
                Sim::user(5000);
                // SAFETY: it was just locked.
                unsafe { lock.unlock() };
            });
        }
    });
    assert_eq!(order.take(), [0, 2, 4, 3, 1]);
}

#[test]
fn try_lock_fails_until_the_release_in_virtual_time() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    run_well(exact(2), |script| {
        let lock = Rc::new(SimSpin::new(LockClass::Other));
        let mine = Rc::clone(&lock);
        script.spawn(0, move || {
            mine.lock();
            Sim::user(400);
            // SAFETY: it was just locked. On the host this happens before the other CPU runs.
            unsafe { mine.unlock() };
        });
        let out = Rc::clone(&seen);
        script.spawn(1, move || {
            for wait in [200, 400] {
                Sim::user(wait);
                out.borrow_mut().push((lock.is_locked(), lock.try_lock()));
            }
            // SAFETY: the second try took it.
            unsafe { lock.unlock() };
        });
    });
    assert_eq!(seen.take(), [(true, false), (false, true)]);
}

#[test]
fn data_under_a_lock_is_its_holders_until_the_release_in_virtual_time() {
    let frame = Line::Frame(Pfn::new(3));
    // CPUs 0 and 1 are on one node, 2 and 3 on the other.
    let costs = |waiters: [usize; 2], held_ns, after_ns| {
        let costs = Rc::new(Cell::new((0, 0)));
        let out = Rc::clone(&costs);
        run_well(exact(4), |script| {
            let lock = Rc::new(SpinLock::<Sim, ()>::new(LockClass::Other, ()));
            for (cpu, arrival_ns) in [(0, 0), (waiters[0], 100), (waiters[1], 150)] {
                let lock = Rc::clone(&lock);
                script.spawn(cpu, move || {
                    Sim::user(arrival_ns);
                    let _held = lock.lock_irqsave();
                    Sim::touch(frame, Access::Write);
                    // On the host, all of this happens before CPU 3 runs.
                    Sim::user(held_ns);
                });
            }
            script.spawn(3, move || {
                Sim::user(after_ns);
                assert!(lock.try_lock().is_none());
                let tried_ns = Sim::now_ns();
                Sim::touch(frame, Access::Peek);
                out.set((tried_ns - after_ns, Sim::now_ns() - tried_ns));
            });
        });
        costs.get()
    };
    // The line is with the first holder, and not with CPU 2, which is near CPU 3.
    for waiters in [[1, 2], [2, 1]] {
        assert_eq!(costs(waiters, 400, 200), (130, 130), "{waiters:?}");
        // Then it is with the second holder.
        let second = if waiters[0] == 1 { 130 } else { 8 };
        assert_eq!(costs(waiters, 400, 800), (second, second), "{waiters:?}");
    }
}

#[test]
fn atomics_are_exact_and_cost_the_way_between_cpus() {
    let total = Rc::new(SimAtomic::<u64>::new(0));
    let count = Rc::clone(&total);
    let alone = Rc::new(Cell::new(0));
    let time = Rc::clone(&alone);
    run_well(exact(1), |script| {
        let count = SimAtomic::<u64>::new(0);
        script.spawn(0, move || {
            (0..100).for_each(|_| _ = count.fetch_add(1, Ordering::Relaxed));
            time.set(Sim::now_ns());
        });
    });
    let outcome = run_well(exact(4), |script| {
        for cpu in 0..4 {
            let count = Rc::clone(&count);
            script.spawn(cpu, move || {
                (0..100).for_each(|_| _ = count.fetch_add(1, Ordering::Relaxed));
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 400);
    assert!(outcome.virtual_ns > 8 * alone.get(), "four CPUs pass the line round");
}

#[test]
fn park_and_unpark_hand_a_token_over() {
    let log = Rc::new(RefCell::new(Vec::new()));
    run_well(exact(2), |script| {
        let (a, b) = (Rc::clone(&log), Rc::clone(&log));
        let sleeper = script.spawn(0, move || {
            Sim::park();
            a.borrow_mut().push(("woken", Sim::now_ns()));
            Sim::user(10_000);
            Sim::park(); // The token is there already.
            a.borrow_mut().push(("again", Sim::now_ns()));
        });
        script.spawn(1, move || {
            Sim::user(50_000);
            b.borrow_mut().push(("wakes", Sim::now_ns()));
            Sim::unpark(sleeper);
            Sim::user(6_000);
            Sim::unpark(sleeper);
        });
    });
    let log = log.take();
    let (wakes, woken, again) = (log[0].1, log[1].1, log[2].1);
    assert_eq!((log[0].0, log[1].0, log[2].0), ("wakes", "woken", "again"));
    // wake 300 + idle exit 2000 + switch 800 ns.
    assert!((wakes + 3_000..wakes + 4_000).contains(&woken), "{log:?}");
    assert!((woken + 10_000..woken + 10_500).contains(&again), "{log:?}");
}

#[test]
fn transfers_are_counted_by_what_the_line_holds() {
    let words = Rc::new([
        SimAtomic::<u64>::named(0, DataLine::TlbGen),
        SimAtomic::named(0, LockClass::MmapLock),
        SimAtomic::new(0),
    ]);
    let outcome = run_well(exact(2), |script| {
        for cpu in 0..2 {
            let words = Rc::clone(&words);
            script.spawn(cpu, move || {
                let times = [10, 20, 0].map(|times| if cpu == 0 { times } else { times / 2 });
                for (word, times) in words.iter().zip(times) {
                    for _ in 0..times {
                        word.fetch_add(1, Ordering::Relaxed);
                        Sim::user(1000);
                    }
                }
                Sim::touch(Line::LruLists(7), Access::Write);
                Sim::touch(Line::LruLists(7), Access::Write);
            });
        }
    });
    let found: Vec<_> = outcome.lines.iter().map(|row| (&*row.line, row.moves)).collect();
    let [("mmap_lock", mmap_lock), ("lruvec->lists", 1), ("tlb_gen", tlb_gen)] = found[..] else {
        panic!("{found:?}")
    };
    // Each CPU takes the line from the other one, until one of them is through.
    assert!([tlb_gen, mmap_lock].iter().all(|moves| (9..=12).contains(moves)), "{found:?}");
    assert!(outcome.lines.iter().all(|row| row.wait_ns >= 8 * row.moves), "{:?}", outcome.lines);
}

/// Returns how long a CPU that was idle for each of these times takes from a wake-up to its task.
fn wakes_after(config: SimConfig, idle_us: &'static [u64]) -> Vec<u64> {
    let took = Rc::new(RefCell::new(Vec::new()));
    run_well(config, |script| {
        let (from, log) = (Rc::new(Cell::new(0)), Rc::clone(&took));
        let sent = Rc::clone(&from);
        let sleeper = script.spawn(0, move || {
            for _ in idle_us {
                Sim::park();
                log.borrow_mut().push(Sim::now_ns() - sent.get());
            }
        });
        script.spawn(1, move || {
            for idle_us in idle_us {
                Sim::user(idle_us * 1000);
                from.set(Sim::now_ns());
                Sim::unpark(sleeper);
            }
        });
    });
    took.take()
}

#[test]
fn a_cpu_that_was_idle_for_long_leaves_a_deep_state() {
    let mut config = exact(2);
    config.profile.costs.idle_deep_exit_ps = 133_000_000;
    config.profile.costs.idle_deep_after_ps = 600_000_000;
    let took = wakes_after(config, &[590, 620, 1000, 400]);
    // wake 300 + idle exit 2000 or 133,000 + switch 800 ns. The third time counts from its wake-up.
    let shallow = |ns: u64| (3_000..4_000).contains(&ns);
    let deep = |ns: u64| (134_000..135_000).contains(&ns);
    assert!(shallow(took[0]) && deep(took[1]) && deep(took[2]) && shallow(took[3]), "{took:?}");
}

#[test]
fn exits_from_idle_are_drawn_around_their_median() {
    let mut config = exact(2);
    config.profile.costs.idle_spread_1024 = 1024;
    let took = wakes_after(config.clone(), &[100; 200]);
    // The median is 2000 ns, and 1100 ns for the rest.
    let below = |ns| took.iter().filter(|&&took| took < ns).count();
    assert!(below(2_700) < 100 && below(3_500) > 100, "{took:?}");
    assert!(below(2_000) > 10 && below(7_000) < 195, "{took:?}");
    config.profile.costs.idle_spread_1024 = 0;
    let equal = wakes_after(config, &[100; 20]);
    assert!(equal.iter().all(|&ns| ns == equal[0]), "{equal:?}");
}

#[test]
fn a_real_time_task_preempts_a_fair_one_on_another_cpu_but_not_under_a_lock() {
    let woken_at = Rc::new(Cell::new(0));
    run_well(exact(2), |script| {
        let at = Rc::clone(&woken_at);
        let spec = TaskSpec { priority: Priority::RealTime(50), ..fair(0) };
        let urgent = script.spawn_as(spec, move || {
            Sim::park();
            at.set(Sim::now_ns());
        });
        let lock = Rc::new(SpinLock::<Sim, ()>::new(LockClass::Other, ()));
        let mine = Rc::clone(&lock);
        script.spawn(0, move || {
            Sim::user(10_000);
            let held = mine.lock();
            Sim::user(40_000);
            drop(held);
            Sim::user(100_000);
        });
        script.spawn(1, move || {
            Sim::user(20_000);
            Sim::unpark(urgent);
        });
    });
    let at = woken_at.get();
    assert!((50_000..55_000).contains(&at), "after the lock at 50 us, long before 150 us: {at}");
}

#[test]
fn interrupts_wait_while_they_are_off() {
    let arrived = Rc::new(RefCell::new(Vec::new()));
    let outcome = run_well(exact(2), |script| {
        let log = Rc::clone(&arrived);
        *script.on_ipi.borrow_mut() = Some(Box::new(move |reason| {
            assert!(Sim::in_interrupt());
            log.borrow_mut().push((Sim::cpu().index(), reason, Sim::now_ns()));
        }));
        script.spawn(0, || {
            let off = IrqGuard::<Sim>::new();
            Sim::user(30_000);
            drop(off);
            Sim::user(30_000);
        });
        script.spawn(1, || {
            Sim::user(10_000);
            Sim::ipi_send(CpuId::new(0), Ipi::CallFunction);
            Sim::ipi_send(CpuId::new(0), Ipi::CallFunction);
            Sim::user(30_000);
            Sim::ipi_send(CpuId::new(0), Ipi::RcuExpedited);
        });
    });
    // The first two merge and wait until 30 us. The last arrives 0.9 us after 40.3 us, with 0.3 us
    // of entry.
    let expected = [(0, Ipi::CallFunction, 30_300), (0, Ipi::RcuExpedited, 41_500)];
    assert_eq!(arrived.take(), expected);
    assert_eq!(outcome.lateness.interrupts, 2);
    assert!((19_000..20_000).contains(&outcome.lateness.max_ns), "{:?}", outcome.lateness);
}

#[test]
fn a_spinning_cpu_takes_interrupts_if_they_are_on() {
    for off in [false, true] {
        let at = Rc::new(Cell::new(0));
        run_well(exact(3), |script| {
            let time = Rc::clone(&at);
            *script.on_ipi.borrow_mut() = Some(Box::new(move |_| time.set(Sim::now_ns())));
            let lock = Rc::new(SpinLock::<Sim, ()>::new(LockClass::Other, ()));
            let (a, b) = (Rc::clone(&lock), lock);
            script.spawn(0, move || {
                let held = a.lock();
                Sim::user(100_000);
                drop(held);
            });
            script.spawn(1, move || {
                Sim::user(1_000);
                let guard = off.then(IrqGuard::<Sim>::new);
                drop(b.lock());
                drop(guard);
            });
            script.spawn(2, || {
                Sim::user(20_000);
                Sim::ipi_send(CpuId::new(1), Ipi::CallFunction);
            });
        });
        let expected = if off { 100_000..101_000 } else { 21_000..22_000 };
        assert!(expected.contains(&at.get()), "off: {off}, at {}", at.get());
    }
}

#[test]
fn timers_go_off_on_time_in_long_work_and_in_idle() {
    let fired = Rc::new(RefCell::new(Vec::new()));
    run_well(exact(2), |script| {
        let log = Rc::clone(&fired);
        *script.on_timer.borrow_mut() =
            Some(Box::new(move || log.borrow_mut().push((Sim::cpu().index(), Sim::now_ns()))));
        script.spawn(0, || {
            Sim::timer_arm(20_000);
            Sim::user(50_000);
            Sim::timer_arm(60_000);
            Sim::timer_cancel();
            Sim::user(50_000);
        });
        script.spawn(1, || Sim::timer_arm(33_000));
    });
    // The entry takes 0.3 us; an idle CPU needs 2 us more.
    assert_eq!(fired.take(), [(0, 20_300), (1, 35_300)]);
}

#[test]
fn idle_callbacks_frame_every_rest() {
    let log = Rc::new(RefCell::new(Vec::new()));
    run_well(exact(1), |script| {
        let note = |what: &'static str| {
            let log = Rc::clone(&log);
            Box::new(move || log.borrow_mut().push(what))
        };
        *script.on_idle_enter.borrow_mut() = Some(note("enter"));
        *script.on_idle_exit.borrow_mut() = Some(note("exit"));
        let sleeper = Rc::new(Cell::new(None));
        let (timer, whom) = (note("timer"), Rc::clone(&sleeper));
        *script.on_timer.borrow_mut() = Some(Box::new(move || {
            timer();
            if let Some(task) = whom.take() {
                Sim::unpark(task);
            }
        }));
        let task = note("task");
        sleeper.set(Some(script.spawn(0, move || {
            Sim::timer_arm(10_000);
            Sim::park();
            task();
        })));
    });
    assert_eq!(log.take(), ["enter", "exit", "timer", "task", "enter"]);
}

#[test]
fn fair_tasks_share_a_cpu_in_time_slices() {
    let done = Rc::new(RefCell::new(Vec::new()));
    run_well(exact(1), |script| {
        *script.on_timer.borrow_mut() =
            Some(Box::new(|| Sim::timer_arm(Sim::now_ns() + 1_000_000)));
        for task in 0..2 {
            let done = Rc::clone(&done);
            script.spawn(0, move || {
                Sim::timer_arm(Sim::now_ns() + 1_000_000);
                Sim::user(10_000_000);
                done.borrow_mut().push((task, Sim::now_ns()));
            });
        }
    });
    let done = done.take();
    assert!(done[0].1 > 15_000_000, "the first did not run to its end alone: {done:?}");
}

#[test]
fn a_lost_wake_up_is_named() {
    let outcome = run_script(config(2), |script| {
        script.spawn(1, || {
            Sim::user(500);
            Sim::park();
        });
    });
    let failure = outcome.failure.expect("no task wakes it").to_string();
    assert!(failure.contains("deadlock") && failure.contains("is parked on cpu1"), "{failure}");
}

#[test]
fn an_interrupt_ends_one_long_operation_too() {
    let flag = Arc::new(AtomicBool::new(true));
    let mut stopped = SimConfig { interrupt: Some(flag), limit_ns: u64::MAX / 4, ..config(1) };
    // 10 s of virtual time in one step, with a checkpoint every 500 ns.
    stopped.profile.costs.op_ps[Op::Syscall as usize] = 10_000_000_000_000;
    let outcome = run_script(stopped, |script| {
        script.spawn(0, || Sim::work(Op::Syscall, 1));
    });
    let Some(Failure::Interrupted { time_ns }) = outcome.failure else {
        panic!("{:?}", outcome.failure);
    };
    assert!(time_ns < 10_000_000, "it went on for {time_ns} ns of virtual time");
}

#[test]
fn an_endless_task_meets_the_limit_and_an_interrupted_run_ends() {
    for off in [false, true] {
        let outcome = run_script(config(2), |script| {
            script.spawn(0, move || {
                let _guard = off.then(IrqGuard::<Sim>::new);
                loop {
                    Sim::user(1000);
                }
            });
        });
        assert!(matches!(outcome.failure, Some(Failure::Limit { limit_ns: 100_000_000, .. })));
    }
    let flag = Arc::new(AtomicBool::new(true));
    let stopped = SimConfig { interrupt: Some(flag), ..config(1) };
    let outcome = run_script(stopped, |script| {
        script.spawn(0, || {
            loop {
                Sim::relax();
            }
        });
    });
    assert!(matches!(outcome.failure, Some(Failure::Interrupted { .. })));
}

#[test]
fn a_panic_is_reported_with_its_place_and_guards_unwind() {
    let dropped = Rc::new(Cell::new(0));
    let outcome = run_script(config(2), |script| {
        let lock = Rc::new(SpinLock::<Sim, ()>::new(LockClass::Zone, ()));
        for cpu in 0..2 {
            let (lock, dropped) = (Rc::clone(&lock), Rc::clone(&dropped));
            script.spawn(cpu, move || {
                let guard = lock.lock_irqsave();
                Sim::user(1000);
                let _span = mmscale_arch::Span::<Sim>::enter(mmscale_arch::Func::Program);
                struct Count(Rc<Cell<u32>>);
                impl Drop for Count {
                    fn drop(&mut self) {
                        Sim::relax();
                        self.0.set(self.0.get() + 1);
                    }
                }
                let _count = Count(dropped);
                assert!(Sim::now_ns() < 500, "planted");
                drop(guard);
            });
        }
    });
    let Some(Failure::Panic { message, location }) = outcome.failure else { panic!("no panic") };
    assert_eq!((message.as_str(), location.path), ("planted", vec!["program".to_owned()]));
    assert_eq!(dropped.get(), 1, "the one that waited for the lock never came that far");
}
