//! Steps of tasks and interrupts of this machine.

use super::jobs::{Signal, go};
use crate::Threads;
use crate::config::Failure;
use mmscale_arch::{Cpu as _, CpuId, Ipi, Machine as _, TaskId};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

/// Rounds of one sample.
const TURNS: u64 = 1_000;

fn count_ping(signal: &Signal) {
    signal.ping.0.store(signal.ping.0.load(Relaxed) + 1, Release);
}

/// Measures entry to and exit from an interrupt: one of the CPU to itself, taken at the next poll.
pub(super) fn irq_ns() -> Result<f64, Failure> {
    let signal = go(1, count_ping, |jobs| {
        let signal = Arc::clone(&jobs.signal);
        jobs.start(0, move || {
            for _ in 0..TURNS {
                let start_ns = Threads::now_ns();
                Threads::ipi_send(CpuId::new(0), Ipi::CallFunction);
                Threads::cond_resched();
                signal.took(Threads::now_ns() - start_ns);
            }
        });
    })?;
    assert_eq!(signal.ping.0.load(Relaxed), TURNS, "every interrupt was taken immediately");
    Ok(signal.median_ns())
}

/// Measures two tasks of one CPU that wake each other alternately: from before the wake-up to the
/// first step of the other task.
pub(super) fn wake_and_switch_ns() -> Result<f64, Failure> {
    wake_turns(|signal, other| {
        let woken_ns = signal.pong.0.load(Relaxed);
        if woken_ns != 0 {
            signal.took(Threads::now_ns() - woken_ns);
        }
        signal.pong.0.store(Threads::now_ns(), Relaxed);
        Threads::unpark(other);
    })
}

/// Measures the wake-up without the switch.
pub(super) fn wake_ns() -> Result<f64, Failure> {
    wake_turns(|signal, other| {
        let start_ns = Threads::now_ns();
        Threads::unpark(other);
        signal.took(Threads::now_ns() - start_ns);
    })
}

fn wake_turns(turn: fn(&Signal, TaskId)) -> Result<f64, Failure> {
    let signal = go(
        1,
        |_| (),
        |jobs| {
            let ids: Arc<[OnceLock<TaskId>; 2]> = Arc::default();
            for me in 0..2 {
                let (of, signal) = (Arc::clone(&ids), Arc::clone(&jobs.signal));
                let id = jobs.start(0, move || {
                    let other = *of[1 - me].wait();
                    for _ in 0..TURNS {
                        turn(&signal, other);
                        Threads::park();
                    }
                    Threads::unpark(other);
                });
                let _ = ids[me].set(id);
            }
        },
    )?;
    Ok(signal.median_ns())
}

/// Measures the sender's part of an interrupt to a CPU that takes it at the same time.
pub(super) fn ipi_send_ns() -> Result<f64, Failure> {
    ipi_turns(count_ping, |signal, turn| {
        let start_ns = Threads::now_ns();
        Threads::ipi_send(CpuId::new(1), Ipi::CallFunction);
        signal.took(Threads::now_ns() - start_ns);
        while signal.ping.0.load(Acquire) < turn {
            core::hint::spin_loop();
        }
    })
}

/// Measures from before the send to the handler on the other CPU, which is in a wait loop.
pub(super) fn ipi_ns() -> Result<f64, Failure> {
    fn handler(signal: &Signal) {
        signal.pong.0.store(Threads::now_ns(), Relaxed);
        count_ping(signal);
    }
    ipi_turns(handler, |signal, turn| {
        let start_ns = Threads::now_ns();
        Threads::ipi_send(CpuId::new(1), Ipi::CallFunction);
        while signal.ping.0.load(Acquire) < turn {
            core::hint::spin_loop();
        }
        signal.took(signal.pong.0.load(Relaxed).saturating_sub(start_ns));
    })
}

/// CPU 1 waits in a loop, and CPU 0 runs `turn` repeatedly.
fn ipi_turns(handler: fn(&Signal), turn: fn(&Signal, u64)) -> Result<f64, Failure> {
    let signal = go(2, handler, |jobs| {
        let signal = Arc::clone(&jobs.signal);
        jobs.start(1, move || {
            while signal.ping.0.load(Acquire) < TURNS {
                Threads::relax();
            }
        });
        let signal = Arc::clone(&jobs.signal);
        jobs.start(0, move || (1..=TURNS).for_each(|at| turn(&signal, at)));
    })?;
    Ok(signal.median_ns())
}

/// Measures from before the wake-up of a task on a sleeping CPU to its first step.
pub(super) fn idle_wake_ns() -> Result<f64, Failure> {
    /// Long enough for the CPU to have gone to sleep.
    const REST_NS: u64 = 100_000;
    const WAKES: u64 = 40;
    let signal = go(
        2,
        |_| (),
        |jobs| {
            let sleeper: Arc<OnceLock<TaskId>> = Arc::default();
            let signal = Arc::clone(&jobs.signal);
            let id = jobs.start(1, move || {
                for turn in 1..=WAKES {
                    while signal.ping.0.load(Acquire) < turn {
                        Threads::park();
                    }
                    signal.took(Threads::now_ns().saturating_sub(signal.pong.0.load(Relaxed)));
                }
            });
            let _ = sleeper.set(id);
            let signal = Arc::clone(&jobs.signal);
            jobs.start(0, move || {
                for turn in 1..=WAKES {
                    Threads::user(REST_NS);
                    signal.pong.0.store(Threads::now_ns(), Relaxed);
                    signal.ping.0.store(turn, Release);
                    Threads::unpark(*sleeper.wait());
                }
            });
        },
    )?;
    Ok(signal.median_ns())
}
