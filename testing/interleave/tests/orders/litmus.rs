//! The checker's weak memory against the model of `core::sync::atomic`: for each litmus test, an
//! outcome that must be seen, or one that must not.

use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Atomic, Cpu, LockClass, Machine as _, TaskId};
use mmscale_interleave::{Model, Plain, check_weak, cpu_body, run};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex};

/// Schedules of each kind for a litmus test.
const SCHEDULES: usize = 300;

type Word = <Model as Cpu>::AtomicU32;

/// Three places, all 0 at first.
struct Places {
    x: Word,
    y: Word,
    z: Word,
}

/// The steps of a CPU; returns at most 2 digits.
type Steps = fn(&Places) -> u32;

/// All combinations of results that are seen, a CPU each.
fn outcomes(cpus: &'static [Steps]) -> BTreeSet<Vec<u32>> {
    let all = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&all);
    check_weak(SCHEDULES, move || {
        let new = || Word::new(0);
        let places = Arc::new(Places { x: new(), y: new(), z: new() });
        let results = Arc::new(Mutex::new(vec![0; cpus.len()]));
        run(cpus.len(), || {
            let body = |(cpu, steps): (usize, &Steps)| {
                let (places, results, steps) = (Arc::clone(&places), Arc::clone(&results), *steps);
                cpu_body(move || {
                    let result = steps(&places);
                    results.lock().expect("no CPU panics")[cpu] = result;
                })
            };
            (None, cpus.iter().enumerate().map(body).collect())
        });
        let result = results.lock().expect("no CPU panics").clone();
        seen.lock().expect("no schedule panics").insert(result);
    });
    all.lock().expect("no schedule panics").clone()
}

#[track_caller]
fn allowed(cpus: &'static [Steps], outcome: &[u32]) {
    let seen = outcomes(cpus);
    assert!(seen.contains(outcome), "{outcome:?} is allowed, but only {seen:?} are seen");
}

#[track_caller]
fn forbidden(cpus: &'static [Steps], outcome: &[u32]) {
    let seen = outcomes(cpus);
    assert!(seen.len() > 1, "only {seen:?} is seen");
    assert!(!seen.contains(outcome), "{outcome:?} is not allowed, but seen");
}

/// Reads the flag `y`, then the message `x`: 10 is a flag without its message.
macro_rules! receive {
    ($order:expr) => {
        |m| 10 * m.y.load($order) + m.x.load(Relaxed)
    };
}

/// Writes the message `x`, then the flag `y`.
macro_rules! send {
    ($order:expr) => {
        |m| {
            m.x.store(1, Relaxed);
            m.y.store(1, $order);
            0
        }
    };
}

#[test]
fn a_message_needs_a_release_and_an_acquire() {
    allowed(&[send!(Relaxed), receive!(Relaxed)], &[0, 10]);
    allowed(&[send!(Release), receive!(Relaxed)], &[0, 10]);
    allowed(&[send!(Relaxed), receive!(Acquire)], &[0, 10]);
    forbidden(&[send!(Release), receive!(Acquire)], &[0, 10]);
    forbidden(&[send!(SeqCst), receive!(SeqCst)], &[0, 10]);
}

#[test]
fn fences_stand_in_for_the_accesses() {
    const SEND: Steps = |m| {
        m.x.store(1, Relaxed);
        Model::fence(Release);
        m.y.store(1, Relaxed);
        0
    };
    const RECEIVE: Steps = |m| {
        let flag = m.y.load(Relaxed);
        Model::fence(Acquire);
        10 * flag + m.x.load(Relaxed)
    };
    const FENCE_LATE: Steps = |m| {
        m.x.store(1, Relaxed);
        m.y.store(1, Relaxed);
        Model::fence(Release);
        0
    };
    forbidden(&[SEND, RECEIVE], &[0, 10]);
    forbidden(&[SEND, receive!(Acquire)], &[0, 10]);
    forbidden(&[send!(Release), RECEIVE], &[0, 10]);
    allowed(&[FENCE_LATE, RECEIVE], &[0, 10]);
}

/// A read-modify-write continues the release sequence of the last write; a store starts a new one.
#[test]
fn a_release_goes_through_read_modify_writes() {
    const ADD: Steps = |m| m.y.fetch_add(1, Relaxed);
    const OVERWRITE: Steps = |m| {
        if m.y.load(Relaxed) == 1 {
            m.y.store(2, Relaxed);
        }
        0
    };
    const RECEIVE: Steps = |m| 10 * m.y.load(Acquire) + m.x.load(Relaxed);
    forbidden(&[send!(Release), ADD, RECEIVE], &[0, 1, 20]);
    allowed(&[send!(Release), OVERWRITE, RECEIVE], &[0, 0, 20]);
}

/// Each CPU writes its place and looks at the other's.
macro_rules! store_buffer {
    ($write:expr, $between:expr, $read:expr) => {
        &[
            |m| {
                m.x.store(1, $write);
                $between(&m.z);
                m.y.load($read)
            },
            |m| {
                m.y.store(1, $write);
                $between(&m.z);
                m.x.load($read)
            },
        ]
    };
}

#[test]
fn two_cpus_that_look_at_one_another_need_one_order() {
    allowed(store_buffer!(Relaxed, |_: &Word| {}, Relaxed), &[0, 0]);
    allowed(store_buffer!(Release, |_: &Word| {}, Acquire), &[0, 0]);
    allowed(store_buffer!(SeqCst, |_: &Word| {}, Acquire), &[0, 0]);
    allowed(store_buffer!(Relaxed, |_: &Word| Model::fence(AcqRel), Relaxed), &[0, 0]);
    forbidden(store_buffer!(SeqCst, |_: &Word| {}, SeqCst), &[0, 0]);
    forbidden(store_buffer!(Relaxed, |_: &Word| Model::fence(SeqCst), Relaxed), &[0, 0]);
}

/// A fence on one side and sequentially consistent accesses on the other are enough; a fence on one
/// side alone is not, nor are read-modify-writes of other places.
#[test]
fn only_fences_order_what_is_not_sequentially_consistent() {
    const FENCED: Steps = |m| {
        m.x.store(1, Relaxed);
        Model::fence(SeqCst);
        m.y.load(Relaxed)
    };
    const ACCESSES: Steps = |m| {
        m.y.swap(1, SeqCst);
        m.x.load(SeqCst)
    };
    const UNFENCED: Steps = |m| {
        m.y.store(1, Relaxed);
        m.x.load(Relaxed)
    };
    forbidden(&[FENCED, ACCESSES], &[0, 0]);
    allowed(&[FENCED, UNFENCED], &[0, 0]);
    const BY_X: Steps = |m| {
        m.x.store(1, Release);
        m.z.load(SeqCst);
        m.y.load(Acquire)
    };
    const BY_Y: Steps = |m| {
        m.y.swap(1, SeqCst);
        m.x.load(Acquire)
    };
    allowed(&[BY_X, BY_Y], &[0, 0]);
}

#[test]
fn nothing_older_is_read_than_was_read_or_known_before() {
    const TWICE: Steps = |m| 10 * m.x.load(Relaxed) + m.x.load(Relaxed);
    const ONCE: Steps = |m| {
        m.x.store(1, Relaxed);
        0
    };
    forbidden(&[ONCE, TWICE], &[0, 10]);
    // What a CPU has read itself, relaxed or not, comes with its release.
    const PASS_ON: Steps = |m| {
        let seen = m.x.load(Relaxed);
        m.y.store(1, Release);
        seen
    };
    const RECEIVE: Steps = |m| 10 * m.y.load(Acquire) + m.x.load(Relaxed);
    forbidden(&[ONCE, PASS_ON, RECEIVE], &[0, 1, 10]);
}

/// Two CPUs write to places of their own, and two read both places in opposite orders.
#[test]
fn independent_writes_are_seen_in_one_order_if_all_is_sequentially_consistent() {
    macro_rules! independent {
        ($write:expr, $between:expr, $read:expr) => {
            &[
                |m| {
                    m.x.store(1, $write);
                    0
                },
                |m| {
                    m.y.store(1, $write);
                    0
                },
                |m| {
                    let first = m.x.load($read);
                    $between();
                    10 * first + m.y.load($read)
                },
                |m| {
                    let first = m.y.load($read);
                    $between();
                    10 * first + m.x.load($read)
                },
            ]
        };
    }
    allowed(independent!(Release, || {}, Acquire), &[0, 0, 10, 10]);
    forbidden(independent!(SeqCst, || {}, SeqCst), &[0, 0, 10, 10]);
    forbidden(independent!(Relaxed, || Model::fence(SeqCst), Relaxed), &[0, 0, 10, 10]);
}

#[test]
fn a_lock_carries_what_was_written() {
    check_weak(SCHEDULES, || {
        run(2, || {
            let lock = SpinLock::<Model, _>::new(LockClass::Other, 0);
            let shared = Arc::new((lock, Plain::new(0)));
            let body = |_| {
                let shared = Arc::clone(&shared);
                cpu_body(move || {
                    let mut count = shared.0.lock();
                    shared.1.set(shared.1.get() + 1);
                    *count += 1;
                    assert_eq!(shared.1.get(), *count);
                })
            };
            (None, (0..2).map(body).collect())
        });
    });
}

/// Without that the task could read the old value and sleep for good.
#[test]
fn a_task_that_is_woken_sees_why() {
    check_weak(SCHEDULES, || {
        run(2, || {
            let flag = Arc::new(Word::new(0));
            let waits = Arc::clone(&flag);
            let waker = cpu_body(move || {
                flag.store(1, Relaxed);
                Model::unpark(TaskId::new(1));
            });
            let waiter = cpu_body(move || {
                while waits.load(Relaxed) == 0 {
                    Model::park();
                }
            });
            (None, vec![waker, waiter])
        });
    });
}

fn race(first: fn(&Places, &Plain), second: fn(&Places, &Plain)) {
    check_weak(SCHEDULES, move || {
        run(2, || {
            let new = || Word::new(0);
            let places = Places { x: new(), y: new(), z: new() };
            let shared = Arc::new((places, Plain::new(0)));
            let other = Arc::clone(&shared);
            let bodies = vec![
                cpu_body(move || first(&shared.0, &shared.1)),
                cpu_body(move || second(&other.0, &other.1)),
            ];
            (None, bodies)
        });
    });
}

#[test]
#[should_panic(expected = "data race: read before a write")]
fn a_plain_read_that_is_not_ordered_is_found() {
    let write = |m: &Places, plain: &Plain| {
        plain.set(1);
        m.x.store(1, Relaxed);
    };
    race(write, |m, plain| {
        if m.x.load(Acquire) == 1 {
            plain.get();
        }
    });
}

#[test]
#[should_panic(expected = "data race: written while it is read")]
fn a_plain_write_after_a_relaxed_count_of_readers_is_found() {
    let read = |m: &Places, plain: &Plain| {
        plain.get();
        m.x.fetch_add(1, Relaxed);
    };
    race(read, |m, plain| {
        if m.x.load(Acquire) == 1 {
            plain.set(1);
        }
    });
}
