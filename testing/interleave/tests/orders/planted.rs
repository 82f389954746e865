//! Bugs planted on purpose: the checker must find them.

use super::calls::Planted::{EarlyCompletion, UnclosedQueue};
use super::tlb::Flush;
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Atomic, Cpu, LockClass, Machine as _, TaskId};
use mmscale_interleave::{Model, check, cpu_body, run};
use mmscale_mm::rcu::Speed;
use mmscale_mm::smp::{CallPolicy, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// A completion whose waiter checks first and joins the queue afterwards, without another check.
struct Forgetful {
    done: <Model as Cpu>::AtomicU32,
    waiters: SpinLock<Model, Vec<TaskId>>,
}

impl Forgetful {
    fn wait(&self) {
        if self.done.load(SeqCst) == 0 {
            self.waiters.lock_irqsave().push(Model::current());
            Model::park();
        }
    }
    fn complete(&self) {
        self.done.store(1, SeqCst);
        self.waiters.lock_irqsave().drain(..).for_each(Model::unpark);
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_wake_up_is_found() {
    check(3000, || {
        run(2, || {
            let waiters = SpinLock::new(LockClass::WaitQueue, Vec::new());
            let a = Arc::new(Forgetful { done: Atomic::new(0), waiters });
            let b = Arc::clone(&a);
            (None, vec![cpu_body(move || a.wait()), cpu_body(move || b.complete())])
        });
    });
}

#[test]
#[should_panic(expected = "used after it was freed")]
fn a_reader_without_a_guard_is_found() {
    check(4000, || super::rcu::scenario(Speed::Expedited, false));
}

#[test]
#[should_panic(expected = "used after it was freed")]
fn a_frame_freed_without_a_flush_is_found() {
    check(1500, || super::tlb::scenario(Flush::Never, CallPolicy::Stock));
}

#[test]
#[should_panic(expected = "used after it was freed")]
fn a_frame_that_leaves_limbo_early_is_found() {
    check(1500, || super::tlb::scenario(Flush::Early, CallPolicy::Requests));
}

#[test]
#[should_panic(expected = "is over")]
fn a_call_that_is_over_before_it_ran_is_found() {
    check(100, || super::calls::scenario(CallPolicy::Posted, Wait::Spin, EarlyCompletion, false));
}

#[test]
#[should_panic(expected = "an interrupt reaches a CPU that has stopped")]
fn a_cpu_that_stops_with_calls_queued_is_found() {
    check(1000, || super::calls::scenario(CallPolicy::Requests, Wait::No, UnclosedQueue, true));
}

/// A pending bit that is read and set in two steps.
#[test]
#[should_panic(expected = "both own it")]
fn a_bit_taken_in_two_steps_is_found() {
    check(3000, || {
        run(2, || {
            let pending = Arc::new(<Model as Cpu>::AtomicU32::new(0));
            let owners = Arc::new(<Model as Cpu>::AtomicU32::new(0));
            let body = |_| {
                let (pending, owners) = (Arc::clone(&pending), Arc::clone(&owners));
                cpu_body(move || {
                    if pending.load(SeqCst) == 0 {
                        pending.store(1, SeqCst);
                        assert_eq!(owners.fetch_add(1, SeqCst), 0, "both own it");
                    }
                })
            };
            (None, (0..2).map(body).collect())
        });
    });
}
