//! Sleeping locks: mutual exclusion, and no lost waiter.

use mmscale_arch::sync::{Completion, Mutex, Osq, RwSem, RwsemPolicy, WaitQueue};
use mmscale_arch::{Atomic, Cpu, LockClass, Machine as _, RawOsq as _, TaskId};
use mmscale_interleave::{Hooks, Model, check, cpu_body, run, set_need_resched};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Lets another CPU run in the middle of a critical section.
fn pause() {
    Model::user(0);
}

/// Lets another CPU run while the calling task does not, so that no task spins for its locks.
fn nap() {
    Model::unpark(Model::current());
    Model::park();
}

#[test]
fn a_mutex_has_one_owner_and_forgets_nobody() {
    check(3000, || {
        let mutex = Arc::new(Mutex::<Model, u32>::new(LockClass::Mutex, 0));
        let body = |_| {
            let mutex = Arc::clone(&mutex);
            cpu_body(move || {
                for turn in 0..2 {
                    let mut value = mutex.lock();
                    let before = *value;
                    if turn == 0 {
                        nap()
                    } else {
                        pause()
                    }
                    *value = before + 1;
                }
            })
        };
        run(3, || (None, (0..3).map(body).collect()));
        assert_eq!(*mutex.try_lock().expect("it is free"), 6);
    });
}

#[test]
fn a_failed_try_changes_nothing() {
    check(2000, || {
        let mutex = Arc::new(Mutex::<Model, u32>::new(LockClass::Mutex, 0));
        let (a, b) = (Arc::clone(&mutex), Arc::clone(&mutex));
        run(2, || {
            let locker = cpu_body(move || {
                *a.lock() += 1;
                *a.lock() += 1;
            });
            let trier = cpu_body(move || {
                if let Some(mut value) = b.try_lock() {
                    pause();
                    *value += 10;
                }
            });
            (None, vec![locker, trier])
        });
        assert!([2, 12].contains(&*mutex.lock()));
    });
}

#[test]
fn a_semaphore_keeps_writers_alone_and_lets_everybody_in() {
    keeps_writers_alone(RwsemPolicy::Stock, 3000);
}

#[test]
fn a_semaphore_whose_first_readers_enter_alone_keeps_writers_alone() {
    keeps_writers_alone(RwsemPolicy::FirstWakes, 2000);
}

#[test]
fn a_semaphore_whose_readers_spin_keeps_writers_alone() {
    keeps_writers_alone(RwsemPolicy::ReadersSpin, 2000);
}

#[test]
fn a_semaphore_without_handoff_keeps_writers_alone() {
    keeps_writers_alone(RwsemPolicy::NoHandoff, 1000);
}

fn keeps_writers_alone(policy: RwsemPolicy, schedules: usize) {
    check(schedules, move || {
        let sem = RwSem::<Model, (u32, u32)>::with_policy(policy, LockClass::Rwsem, (0, 0));
        let sem = Arc::new(sem);
        let writer = |_| {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                let mut pair = sem.write();
                pair.0 += 1;
                nap();
                pair.1 += 1;
            })
        };
        let reader = |_| {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                for turn in 0..2 {
                    let pair = sem.read();
                    let first = pair.0;
                    if turn == 0 {
                        nap()
                    } else {
                        pause()
                    }
                    assert_eq!(first, pair.1, "a writer came in between");
                }
            })
        };
        run(4, || (None, (0..2).map(writer).chain((0..2).map(reader)).collect()));
        assert_eq!(*sem.try_write().expect("it is free"), (2, 2));
    });
}

#[test]
fn tries_on_a_semaphore_never_wait() {
    check(2000, || {
        let sem = Arc::new(RwSem::<Model, u32>::new(LockClass::Rwsem, 0));
        let (a, b, c) = (Arc::clone(&sem), Arc::clone(&sem), Arc::clone(&sem));
        run(3, || {
            let writer = cpu_body(move || *a.write() += 1);
            let reader = cpu_body(move || {
                if let Some(value) = b.try_read() {
                    let first = *value;
                    pause();
                    assert_eq!(first, *value);
                }
            });
            let trier = cpu_body(move || {
                if let Some(mut value) = c.try_write() {
                    *value += 1;
                }
            });
            (None, vec![writer, reader, trier])
        });
        assert!([1, 2].contains(&*sem.read()));
    });
}

/// A reader that holds it may wait for another reader.
#[test]
fn a_reader_is_not_left_behind_readers() {
    for downgrades in [false, true] {
        check(4000, move || {
            let sem = Arc::new(RwSem::<Model, u32>::new(LockClass::Rwsem, 0));
            let met = Arc::new(Completion::<Model>::new());
            let (a, b, met_a, met_b) =
                (Arc::clone(&sem), Arc::clone(&sem), Arc::clone(&met), Arc::clone(&met));
            run(2, || {
                let writer = cpu_body(move || {
                    let mut value = a.write();
                    *value += 1;
                    let held = if downgrades {
                        value.downgrade()
                    } else {
                        drop(value);
                        a.read()
                    };
                    met_a.wait();
                    assert_eq!(*held, 1);
                });
                let reader = cpu_body(move || {
                    assert!(*b.read() <= 1);
                    met_b.complete();
                });
                (None, vec![writer, reader])
            });
        });
    }
}

#[test]
fn who_spins_for_readers_or_for_a_writer_is_no_more_than_they_are() {
    check(4000, || {
        let sem = Arc::new(RwSem::<Model, (u32, u32)>::new(LockClass::Rwsem, (0, 0)));
        let writer = |_| {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                let mut pair = sem.write();
                pair.0 += 1;
                nap();
                pair.1 += 1;
            })
        };
        let reader = |_| {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                for due in [true, false] {
                    let soon = sem.try_read_once(|| due);
                    assert!(due || soon.is_none(), "it was not due");
                    let pair = soon.unwrap_or_else(|| sem.read());
                    let first = pair.0;
                    pause();
                    assert_eq!(first, pair.1, "a writer came in between");
                }
            })
        };
        run(4, || (None, (0..2).map(writer).chain((0..2).map(reader)).collect()));
        assert_eq!(*sem.try_write().expect("it is free"), (2, 2));
    });
}

#[test]
fn a_reader_that_gives_up_keeps_nobody_waiting() {
    a_reader_gives_up(RwsemPolicy::Stock, 4000);
}

#[test]
fn a_reader_that_gives_up_and_is_not_first_keeps_nobody_waiting() {
    a_reader_gives_up(RwsemPolicy::FirstWakes, 2000);
}

#[test]
fn a_spinning_reader_that_gives_up_keeps_nobody_waiting() {
    a_reader_gives_up(RwsemPolicy::ReadersSpin, 2000);
}

fn a_reader_gives_up(policy: RwsemPolicy, schedules: usize) {
    check(schedules, move || {
        let sem = Arc::new(RwSem::<Model, u32>::with_policy(policy, LockClass::Rwsem, 0));
        let writer = |_| {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                let mut value = sem.write();
                nap();
                *value += 1;
            })
        };
        let quitter = {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                for _ in 0..2 {
                    if let Some(value) = sem.read_unless(|| true) {
                        let first = *value;
                        pause();
                        assert_eq!(first, *value, "a writer came in between");
                    }
                }
            })
        };
        let reader = {
            let sem = Arc::clone(&sem);
            cpu_body(move || assert!(*sem.read() <= 2))
        };
        run(4, || (None, (0..2).map(writer).chain([quitter, reader]).collect()));
        assert_eq!(*sem.try_write().expect("it is free"), 2);
    });
}

/// CPUs 1 and 2 must switch tasks at any time, and leave the queue then; CPU 0 waits.
#[test]
fn a_queue_of_spinners_has_one_head_and_loses_no_cpu() {
    check(2000, || {
        run(4, || {
            let queue = Arc::new(Osq::<Model>::new());
            let heads = Arc::new(<Model as Cpu>::AtomicU32::new(0));
            let spinner = |cpu| {
                let (queue, heads) = (Arc::clone(&queue), Arc::clone(&heads));
                cpu_body(move || {
                    for _ in 0..2 {
                        Model::preempt_disable();
                        let at_head = queue.lock();
                        if at_head {
                            assert_eq!(heads.fetch_add(1, Ordering::SeqCst), 0, "two heads");
                            pause();
                            heads.fetch_sub(1, Ordering::SeqCst);
                            queue.unlock();
                        }
                        Model::preempt_enable();
                        assert!(at_head || cpu != 0, "it had no reason to leave");
                        set_need_resched(cpu, false);
                    }
                })
            };
            let presses = cpu_body(|| {
                for cpu in [1, 2, 1, 2] {
                    pause();
                    set_need_resched(cpu, true);
                }
            });
            (None, (0..3).map(spinner).chain([presses]).collect())
        });
    });
}

/// Fails if a task is woken while the semaphore is held: none of them can go on.
struct Undisturbed {
    sem: RwSem<Model, ()>,
    /// 0: not taken yet, 1: held, 2: the other tasks sleep, so that it can be released.
    phase: <Model as Cpu>::AtomicU32,
}

impl Hooks for Undisturbed {
    fn unpark(&self, _: TaskId) {
        assert_ne!(self.phase.load(Ordering::SeqCst), 1, "a task is woken that cannot go on");
    }
}

impl Undisturbed {
    fn until_held(&self) {
        while self.phase.load(Ordering::SeqCst) == 0 {
            Model::relax();
        }
    }
}

#[test]
fn a_reader_that_joins_the_queue_wakes_no_writer_while_another_holds_the_semaphore() {
    check(300, || {
        run(4, || {
            let (sem, phase) = (RwSem::new(LockClass::Rwsem, ()), Atomic::new(0));
            let all = Arc::new(Undisturbed { sem, phase });
            let body = |f: fn(&Undisturbed)| {
                let all = Arc::clone(&all);
                cpu_body(move || f(&all))
            };
            let bodies = vec![
                body(|all| {
                    let guard = all.sem.write();
                    all.phase.store(1, Ordering::SeqCst);
                    while all.phase.load(Ordering::SeqCst) == 1 {
                        Model::park();
                    }
                    drop(guard);
                }),
                body(|all| {
                    all.until_held();
                    drop(all.sem.write());
                }),
                body(|all| {
                    all.until_held();
                    drop(all.sem.read());
                }),
                body(|all| {
                    all.until_held();
                    while (0..3).any(|cpu| Model::is_running(TaskId::new(cpu))) {
                        Model::relax();
                    }
                    all.phase.store(2, Ordering::SeqCst);
                    Model::unpark(TaskId::new(0));
                }),
            ];
            (Some(all as Arc<dyn Hooks>), bodies)
        });
    });
}

/// Readers steal a semaphore from a writer that waits. Once it is promised to the writer, the next
/// one to hold it is the writer.
#[test]
fn a_promised_semaphore_goes_to_the_writer_that_waits() {
    check(3000, || {
        let sem = Arc::new(RwSem::<Model, u32>::new(LockClass::Rwsem, 0));
        let writer = {
            let sem = Arc::clone(&sem);
            cpu_body(move || *sem.write() += 1)
        };
        let reader = |_| {
            let sem = Arc::clone(&sem);
            cpu_body(move || {
                for _ in 0..4 {
                    let promised = sem.is_promised();
                    let value = sem.read();
                    assert!(!promised || *value == 1, "a reader came first");
                    nap();
                    // Time passes.
                    (0..3).for_each(|_| _ = Model::now_ns());
                }
            })
        };
        run(3, || (None, core::iter::once(writer).chain((0..2).map(reader)).collect()));
        assert_eq!(*sem.try_read().expect("it is free"), 1);
    });
}

/// Writers that never wait take a semaphore again and again, and a reader waits. Once it is
/// promised to the reader, the next one to hold it is the reader.
#[test]
fn a_promised_semaphore_goes_to_the_reader_that_waits() {
    check(3000, || {
        let sem = Arc::new(RwSem::<Model, u32>::new(LockClass::Rwsem, 0));
        let read = Arc::new(<Model as Cpu>::AtomicU32::new(0));
        let writer = |_| {
            let (sem, read) = (Arc::clone(&sem), Arc::clone(&read));
            cpu_body(move || {
                for _ in 0..4 {
                    let promised = sem.is_promised();
                    if let Some(mut value) = sem.try_write() {
                        let first = promised && read.load(Ordering::SeqCst) == 0;
                        assert!(!first, "a writer came first");
                        *value += 1;
                        pause();
                    }
                    (0..3).for_each(|_| _ = Model::now_ns());
                }
            })
        };
        let reader = {
            let (sem, read) = (Arc::clone(&sem), Arc::clone(&read));
            cpu_body(move || {
                let value = sem.read();
                read.store(1, Ordering::SeqCst);
                assert!(*value <= 8);
            })
        };
        run(3, || (None, (0..2).map(writer).chain([reader]).collect()));
        assert!(sem.try_write().is_some(), "it is free");
    });
}

#[test]
fn a_completion_wakes_all_who_wait_and_all_who_come_later() {
    check(3000, || {
        let done = Arc::new(Completion::<Model>::new());
        let waiter = |_| {
            let done = Arc::clone(&done);
            cpu_body(move || done.wait())
        };
        let completer = Arc::clone(&done);
        run(3, || {
            let mut bodies: Vec<_> = (0..2).map(waiter).collect();
            bodies.push(cpu_body(move || completer.complete()));
            (None, bodies)
        });
        assert!(done.is_done());
    });
}

#[test]
fn a_wake_is_not_lost_between_the_look_and_the_sleep() {
    check(3000, || {
        let queue = Arc::new(WaitQueue::<Model>::new());
        let level = Arc::new(<Model as Cpu>::AtomicU32::new(0));
        let (q, l) = (Arc::clone(&queue), Arc::clone(&level));
        run(2, || {
            let waiter = cpu_body(move || queue.wait_until(|| level.load(Ordering::SeqCst) == 2));
            let waker = cpu_body(move || {
                for value in 1..=2 {
                    l.store(value, Ordering::SeqCst);
                    q.wake_all();
                }
            });
            (None, vec![waiter, waker])
        });
    });
}
