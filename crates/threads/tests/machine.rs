//! The machine keeps its contract: locks exclude, no wake-up is lost, timers are not early,
//! interrupts arrive only where they are on, runs end without leftovers.
//!
//! Time limits are only guards against hangs.

mod common;
mod paging;
mod swap;

use common::{Kernel, config, go, run, task};
use mmscale_arch::sync::{IrqGuard, PreemptGuard, SpinLock};
use mmscale_arch::{
    Cpu as _, CpuId, CpuMask, HotplugError, Ipi, LockClass, Machine as _, Priority, TlbEvent,
    random,
};
use mmscale_arch::{Order, Pfn, Probe, TaskId, Trace};
use mmscale_threads::{Failure, Threads, ThreadsConfig};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

fn cpu(index: usize) -> CpuId {
    CpuId::new(index)
}

#[test]
fn a_spin_lock_lets_one_in_at_a_time() {
    const TURNS: u64 = 20_000;
    for cpus in [2, 4] {
        let sum = OnceLock::new();
        let outcome = go(cpus, |kernel| {
            let lock = Arc::new(SpinLock::<Threads, [u64; 2]>::new(LockClass::Zone, [0; 2]));
            let _ = sum.set(Arc::clone(&lock));
            for at in 0..cpus {
                let lock = Arc::clone(&lock);
                task(kernel, at, move || {
                    for turn in 0..TURNS {
                        let mut both = if turn % 2 == 0 {
                            lock.lock()
                        } else {
                            lock.try_lock().unwrap_or_else(|| lock.lock())
                        };
                        assert_eq!(both[0], both[1]);
                        both[0] += 1;
                        core::hint::spin_loop();
                        both[1] += 1;
                    }
                });
            }
        });
        assert_eq!(outcome.failure, None);
        let mut lock = Arc::into_inner(sum.into_inner().unwrap()).unwrap();
        assert_eq!(*lock.get_mut(), [TURNS * cpus as u64; 2]);
        let row = outcome.locks.iter().find(|row| row.class == "zone").unwrap();
        assert_eq!((row.acquisitions, &*row.path), (TURNS * cpus as u64, &["root".to_owned()][..]));
        assert!(row.contentions <= row.acquisitions && row.wait_max_ns <= row.wait_total_ns);
    }
}

#[test]
fn policies_draw_from_the_seed_of_the_run() {
    for seed in [0, 7] {
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let config = ThreadsConfig { seed, ..config(2) };
        let outcome = run(&config, |kernel| {
            for at in 0..2 {
                let drawn = Arc::clone(&drawn);
                task(kernel, at, move || {
                    drawn.lock().unwrap().push((at, Threads::random_u64(3)));
                });
            }
        });
        assert_eq!(outcome.failure, None);
        let mut drawn = drawn.lock().unwrap().clone();
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 1].map(|at| (at, random(seed, cpu(at), 3))));
    }
}

#[test]
fn parks_and_unparks_take_turns() {
    const TURNS: usize = 2_000;
    for other in [0, 1] {
        let ids: Arc<[OnceLock<TaskId>; 2]> = Arc::default();
        let turn = Arc::new(AtomicUsize::new(0));
        let outcome = go(2, |kernel| {
            for me in 0..2 {
                let (ids_of, turn) = (Arc::clone(&ids), Arc::clone(&turn));
                let id = task(kernel, me * other, move || {
                    while turn.load(SeqCst) < TURNS {
                        if turn.load(SeqCst) % 2 == me {
                            turn.fetch_add(1, SeqCst);
                            Threads::unpark(*ids_of[1 - me].wait());
                        } else {
                            Threads::park();
                        }
                    }
                    Threads::unpark(*ids_of[1 - me].wait());
                });
                ids[me].set(id).unwrap();
            }
        });
        assert_eq!(outcome.failure, None);
        assert_eq!(turn.load(SeqCst), TURNS);
    }
}

#[test]
fn interrupts_arrive_only_where_they_are_let_in() {
    let arrived = Arc::new(AtomicU32::new(0));
    let (masked, let_in) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let outcome = go(2, |kernel| {
        let seen = Arc::clone(&arrived);
        kernel.on_ipi(move |reason| {
            assert!(Threads::in_interrupt() && reason == Ipi::CallFunction);
            assert_eq!(Threads::cpu(), cpu(1));
            seen.fetch_add(1, SeqCst);
        });
        let (seen, ready, sent) = (Arc::clone(&arrived), Arc::clone(&masked), Arc::clone(&let_in));
        task(kernel, 1, move || {
            let guard = IrqGuard::<Threads>::new();
            ready.store(true, SeqCst);
            while !sent.load(SeqCst) {
                Threads::relax();
            }
            // Certainly sent, but interrupts are off.
            assert_eq!(seen.load(SeqCst), 0);
            drop(guard);
            assert_eq!(seen.load(SeqCst), 1);
            // With only preemption off they arrive.
            let _guard = PreemptGuard::<Threads>::new();
            sent.store(false, SeqCst);
            while seen.load(SeqCst) < 2 {
                Threads::relax();
            }
        });
        let (ready, sent) = (Arc::clone(&masked), Arc::clone(&let_in));
        task(kernel, 0, move || {
            while !ready.load(SeqCst) {
                Threads::relax();
            }
            Threads::ipi_send(cpu(1), Ipi::CallFunction);
            sent.store(true, SeqCst);
            while sent.load(SeqCst) {
                Threads::relax();
            }
            Threads::ipi_send(cpu(1), Ipi::CallFunction);
        });
    });
    assert_eq!(outcome.failure, None);
    assert_eq!(arrived.load(SeqCst), 2);
}

#[test]
fn an_idle_cpu_takes_interrupts_after_its_idle_exit() {
    let arrived = Arc::new(AtomicU32::new(0));
    let log = Arc::new(Mutex::new(Vec::new()));
    let outcome = go(2, |kernel| {
        let (seen, order) = (Arc::clone(&arrived), Arc::clone(&log));
        kernel.on_ipi(move |_| {
            order.lock().unwrap().push("ipi");
            seen.fetch_add(1, SeqCst);
        });
        let order = Arc::clone(&log);
        kernel.on_idle(move |what| {
            if Threads::cpu() == cpu(1) {
                order.lock().unwrap().push(what);
            }
        });
        let seen = Arc::clone(&arrived);
        task(kernel, 0, move || {
            for turn in 1..=50 {
                Threads::ipi_send(cpu(1), Ipi::RcuExpedited);
                while seen.load(SeqCst) < turn {
                    Threads::relax();
                }
            }
        });
    });
    assert_eq!(outcome.failure, None);
    let log = log.lock().unwrap();
    assert_eq!(log.iter().filter(|what| **what == "ipi").count(), 50);
    for (before, what) in log.iter().zip(&log[1..]) {
        assert!(*what != "ipi" || *before == "exit", "an interrupt after `{before}`");
    }
}

#[test]
fn timers_go_off_and_never_early() {
    let fired = Arc::new(Mutex::new(Vec::new()));
    let deadlines = Arc::new(Mutex::new(Vec::new()));
    let outcome = go(2, |kernel| {
        let me: Arc<OnceLock<TaskId>> = Arc::default();
        let (times, waiter) = (Arc::clone(&fired), Arc::clone(&me));
        kernel.on_timer(move || {
            times.lock().unwrap().push(Threads::now_ns());
            Threads::unpark(*waiter.wait());
        });
        let (times, due) = (Arc::clone(&fired), Arc::clone(&deadlines));
        let id = task(kernel, 1, move || {
            for turn in 0..20 {
                let deadline_ns = Threads::now_ns() + 50_000 * turn;
                due.lock().unwrap().push(deadline_ns);
                Threads::timer_arm(deadline_ns);
                while times.lock().unwrap().len() <= turn as usize {
                    // Half of them in idle, half while busy.
                    if turn % 2 == 0 { Threads::park() } else { Threads::user(1_000) }
                }
            }
            // A cancelled timer never expires; one that is armed again expires once.
            Threads::timer_arm(Threads::now_ns() + 10_000);
            Threads::timer_cancel();
            Threads::user(100_000);
        });
        me.set(id).unwrap();
    });
    assert_eq!(outcome.failure, None);
    let (fired, deadlines) = (fired.lock().unwrap(), deadlines.lock().unwrap());
    assert_eq!(fired.len(), deadlines.len());
    for (fired_ns, due_ns) in fired.iter().zip(&*deadlines) {
        assert!(fired_ns >= due_ns, "due at {due_ns}, went off at {fired_ns}");
    }
}

#[test]
fn real_time_runs_first_and_fair_tasks_take_turns() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let spinning = Arc::new(AtomicU32::new(0));
    let outcome = go(1, |kernel| {
        for (name, priority) in [
            ("fair", Priority::Fair),
            ("low", Priority::RealTime(1)),
            ("high", Priority::RealTime(9)),
        ] {
            let order = Arc::clone(&order);
            kernel.spawn(cpu(0), priority, move || order.lock().unwrap().push(name));
        }
        // Each waits for the other to have run: without slices this would never end.
        for _ in 0..2 {
            let spinning = Arc::clone(&spinning);
            task(kernel, 0, move || {
                spinning.fetch_add(1, SeqCst);
                while spinning.load(SeqCst) < 2 {
                    Threads::cond_resched();
                }
            });
        }
    });
    assert_eq!(outcome.failure, None);
    assert_eq!(*order.lock().unwrap(), ["high", "low", "fair"]);
}

#[test]
fn a_real_time_task_takes_the_cpu_when_preemption_comes_back() {
    let ran = Arc::new(AtomicBool::new(false));
    let outcome = go(1, |kernel| {
        let (ran, inner) = (Arc::clone(&ran), Arc::clone(kernel));
        task(kernel, 0, move || {
            let guard = PreemptGuard::<Threads>::new();
            let flag = Arc::clone(&ran);
            inner.spawn(cpu(0), Priority::RealTime(1), move || flag.store(true, SeqCst));
            Threads::cond_resched();
            assert!(!ran.load(SeqCst), "preempted with preemption off");
            drop(guard);
            assert!(ran.load(SeqCst), "not preempted with preemption on");
        });
    });
    assert_eq!(outcome.failure, None);
}

#[test]
fn many_tasks_return_and_their_stacks_are_used_again() {
    let count = Arc::new(AtomicU64::new(0));
    let outcome = go(2, |kernel| {
        let (inner, count) = (Arc::clone(kernel), Arc::clone(&count));
        task(kernel, 0, move || {
            for at in 0..3_000 {
                let count = Arc::clone(&count);
                task(&inner, at % 2, move || {
                    count.fetch_add(1, SeqCst);
                });
                if at % 64 == 0 {
                    Threads::user(1_000);
                }
            }
        });
    });
    assert_eq!(outcome.failure, None);
    assert_eq!(count.load(SeqCst), 3_000);
}

#[test]
fn a_panic_ends_the_run_and_is_located() {
    let outcome = go(2, |kernel| {
        task(kernel, 0, Threads::park);
        task(kernel, 1, || {
            let _guard = IrqGuard::<Threads>::new();
            panic!("the {} broke", "test");
        });
        task(kernel, 0, || {
            loop {
                Threads::relax();
            }
        });
    });
    let message = "the test broke".to_owned();
    assert_eq!(outcome.failure, Some(Failure::Panic { cpu: cpu(1), message }));
    assert_eq!(outcome.probes.len(), 2);
}

#[test]
fn a_panic_in_an_idle_interrupt_or_in_the_boot_ends_the_run_too() {
    let outcome = go(2, |kernel| {
        kernel.on_ipi(|_| panic!("in the handler"));
        task(kernel, 0, || {
            Threads::ipi_send(cpu(1), Ipi::CallFunction);
            Threads::park();
        });
    });
    let message = "in the handler".to_owned();
    assert_eq!(outcome.failure, Some(Failure::Panic { cpu: cpu(1), message }));
    let outcome = go(2, |_| panic!("in the boot"));
    let message = "in the boot".to_owned();
    assert_eq!(outcome.failure, Some(Failure::Panic { cpu: cpu(0), message }));
}

#[test]
fn sleeping_while_atomic_is_refused() {
    let outcome = go(1, |kernel| {
        task(kernel, 0, || {
            let _guard = PreemptGuard::<Threads>::new();
            Threads::park();
        });
    });
    let Some(Failure::Panic { message, .. }) = outcome.failure else { panic!("not refused") };
    assert!(message.contains("park with preemption or interrupts off"), "{message}");
    let outcome = go(1, |kernel| {
        task(kernel, 0, Threads::preempt_disable);
    });
    assert!(matches!(outcome.failure, Some(Failure::Panic { .. })));
}

/// A probe that calls the machine.
struct Echo;

impl Probe for Echo {
    fn event(&mut self, _: u64, event: &Trace) {
        Threads::trace(*event);
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[test]
fn a_probe_that_traces_is_refused() {
    let boot = || {
        let kernel = Arc::new(Kernel::default());
        task(&kernel, 0, || {
            Threads::trace(Trace::Tlb(TlbEvent::Flush { pages: 1, interrupted: 0 }))
        });
        kernel
    };
    let outcome = mmscale_threads::run(&config(1), |_| Box::new(Echo), boot);
    let Some(Failure::Panic { message, .. }) = outcome.failure else { panic!("not refused") };
    assert!(message.contains("it may not trace"), "{message}");
}

#[test]
fn a_lost_wake_up_is_found() {
    let outcome = go(2, |kernel| {
        task(kernel, 1, Threads::park);
    });
    assert!(matches!(outcome.failure, Some(Failure::Deadlock { tasks: 1, .. })));
}

#[test]
fn a_run_stops_at_its_limit_or_when_interrupted() {
    let busy = |kernel: &Arc<Kernel>| {
        task(kernel, 0, || {
            loop {
                drop(PreemptGuard::<Threads>::new());
            }
        });
    };
    let mut limited = config(2);
    limited.limit_ns = 30_000_000;
    let outcome = common::run(&limited, busy);
    assert_eq!(outcome.failure, Some(Failure::Limit { limit_ns: 30_000_000, tasks: 1 }));
    let mut interrupted = config(2);
    interrupted.interrupt = Some(Arc::new(AtomicBool::new(true)));
    let outcome = common::run(&interrupted, busy);
    assert!(matches!(outcome.failure, Some(Failure::Interrupted { .. })));
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    for cpus in [0, 5000] {
        let failure = go(cpus, |_| ()).failure.unwrap();
        assert!(failure.to_string().contains(&format!("{cpus} CPUs: it has between 1 and 4096")));
    }
}

#[test]
fn frames_are_real_memory() {
    let outcome = go(1, |kernel| {
        task(kernel, 0, || {
            let (first, order) = (Pfn::new(8), Order::new(3).unwrap());
            (0..8).for_each(|page| Threads::write_stamp(first.offset(page), 40 + page as u64));
            assert_eq!(Threads::read_stamp(Pfn::new(15)), 47);
            Threads::clear_block(first, order);
            assert!((0..8).all(|page| Threads::read_stamp(first.offset(page)) == 0));
        });
    });
    assert_eq!(outcome.failure, None);
}

#[test]
fn cpus_go_and_come_back_and_lose_nothing() {
    const ROUNDS: usize = 20;
    let (steps, count) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
    let outcome = go(3, |kernel| {
        let log = Arc::clone(&steps);
        kernel.on_hotplug(move |what, cpu| log.lock().unwrap().push((what, cpu.index())));
        let count = Arc::clone(&count);
        for at in 0..3 {
            let count = Arc::clone(&count);
            task(kernel, at, move || {
                for _ in 0..2_000 {
                    Threads::user(500);
                    count.fetch_add(1, SeqCst);
                }
            });
        }
        task(kernel, 1, || {
            let mut mask = CpuMask::EMPTY;
            for _ in 0..ROUNDS {
                assert_eq!(Threads::cpu_offline(cpu(1)), Ok(()));
                assert!(!Threads::is_online(cpu(1)) && Threads::cpu() != cpu(1));
                assert_eq!(Threads::cpu_offline(cpu(1)), Err(HotplugError::NotNow));
                Threads::online(&mut mask);
                assert_eq!(mask.count(), 2);
                assert_eq!(Threads::cpu_online(cpu(1)), Ok(()));
                assert!(Threads::is_online(cpu(1)));
            }
            assert_eq!(Threads::cpu_offline(cpu(7)), Err(HotplugError::NoSuchCpu));
            assert_eq!(Threads::cpu_online(cpu(0)), Err(HotplugError::NotNow));
            assert_eq!(Threads::cpu_offline(cpu(0)), Ok(()));
            assert_eq!(Threads::cpu_offline(cpu(2)), Ok(()));
            assert_eq!(Threads::cpu_offline(cpu(1)), Err(HotplugError::LastCpu));
        });
    });
    assert_eq!(outcome.failure, None);
    assert_eq!(count.load(SeqCst), 6_000);
    let steps = steps.lock().unwrap();
    let round = [("prepare", 1), ("dead", 1), ("online", 1)];
    assert!(steps[..3 * ROUNDS].chunks(3).all(|steps| steps == round), "{steps:?}");
    assert_eq!(steps[3 * ROUNDS..], [("prepare", 0), ("dead", 0), ("prepare", 2), ("dead", 2)]);
}
