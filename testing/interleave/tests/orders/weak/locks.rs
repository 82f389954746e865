//! Locks: a holder sees what earlier holders wrote.

use mmscale_arch::bare::BareSpin;
use mmscale_arch::sync::{Completion, Mutex, Osq, RwSem};
use mmscale_arch::{Cpu as _, LockClass, Machine as _, RawOsq as _, RawSpin};
use mmscale_interleave::{Model, Plain, check_weak, cpu_body, run, set_need_resched};
use std::sync::Arc;

/// A turn in which the calling task does not run, so that no task spins for its locks.
fn nap() {
    Model::unpark(Model::current());
    Model::park();
}

/// Adds 1, in two steps.
fn add(value: &Plain) {
    let before = value.get();
    Model::user(0);
    value.set(before + 1);
}

/// The `Release` of `unlock` and the `Acquire` of `try_lock`.
#[test]
fn a_spin_lock_carries_what_its_holders_wrote() {
    check_weak(300, || {
        run(3, || {
            let shared = Arc::new((BareSpin::<Model>::new(LockClass::Other), Plain::new(0)));
            let body = |_| {
                let shared = Arc::clone(&shared);
                cpu_body(move || {
                    shared.0.lock();
                    add(&shared.1);
                    // SAFETY: taken above.
                    unsafe { shared.0.unlock() };
                })
            };
            (None, (0..3).map(body).collect())
        });
    });
}

/// The `Release` of `unlock` and of `tail`, and their partners: with CPU 1 that leaves at any time.
#[test]
fn a_queue_of_spinners_carries_what_its_heads_wrote() {
    check_weak(300, || {
        run(4, || {
            let shared = Arc::new((Osq::<Model>::new(), Plain::new(0)));
            let body = |cpu: usize| {
                let shared = Arc::clone(&shared);
                cpu_body(move || {
                    if cpu == 3 {
                        Model::user(0);
                        return set_need_resched(1, true);
                    }
                    Model::preempt_disable();
                    if shared.0.lock() {
                        add(&shared.1);
                        shared.0.unlock();
                    }
                    Model::preempt_enable();
                })
            };
            (None, (0..4).map(body).collect())
        });
    });
}

/// The `Release` of `unlock`, and the `Acquire` of `lock`, `steal` and `take_queued`.
#[test]
fn a_mutex_carries_what_its_owners_wrote() {
    check_weak(400, || {
        let mutex = Arc::new(Mutex::<Model, Plain>::new(LockClass::Mutex, Plain::new(0)));
        let body = |cpu: usize| {
            let mutex = Arc::clone(&mutex);
            cpu_body(move || {
                for turn in 0..2 {
                    let value = mutex.lock();
                    if turn == cpu % 2 {
                        nap();
                    }
                    add(&value);
                }
            })
        };
        run(3, || (None, (0..3).map(body).collect()));
        assert_eq!(mutex.try_lock().expect("it is free").get(), 6);
    });
}

/// `Release` in `write_done` and `read_done`, `Acquire` wherever the semaphore is taken: with tries
/// and with sleep, by writers after readers and readers after writers.
#[test]
fn a_semaphore_carries_what_its_writers_wrote_and_its_readers_read() {
    check_weak(400, || {
        let sem = Arc::new(RwSem::<Model, Plain>::new(LockClass::Rwsem, Plain::new(0)));
        let writer = |tries: bool| {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                let first = if tries { sem.try_write() } else { None };
                let value = first.unwrap_or_else(|| sem.write());
                if !tries {
                    nap();
                }
                add(&value);
                if tries {
                    assert!(value.downgrade().get() > 0);
                }
            })
        };
        let reader = |tries: bool| {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                let first = if tries { sem.try_read() } else { None };
                let value = first.unwrap_or_else(|| sem.read());
                let before = value.get();
                if !tries {
                    nap();
                }
                assert_eq!(value.get(), before);
            })
        };
        run(4, || (None, vec![writer(false), reader(false), writer(true), reader(true)]));
        assert_eq!(sem.try_write().expect("it is free").get(), 2);
    });
}

/// `Release` in `complete` and `Acquire` in `is_done`.
#[test]
fn a_completion_carries_what_was_done() {
    check_weak(300, || {
        run(3, || {
            let shared = Arc::new((Completion::<Model>::new(), Plain::new(0)));
            let (done, waits, asks) = (Arc::clone(&shared), Arc::clone(&shared), shared);
            let complete = cpu_body(move || {
                done.1.set(1);
                done.0.complete();
            });
            let wait = cpu_body(move || {
                waits.0.wait();
                assert_eq!(waits.1.get(), 1);
            });
            let ask = cpu_body(move || {
                if asks.0.is_done() {
                    assert_eq!(asks.1.get(), 1);
                }
            });
            (None, vec![complete, wait, ask])
        });
    });
}
