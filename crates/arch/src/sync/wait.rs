//! Wait queues and completions: tasks sleep until another task or an interrupt wakes them.
//!
//! A waker first makes the condition true, then takes the queue's lock and wakes. A waiter first
//! joins the queue under its lock, then checks the condition, then parks:
//!
//! ```text
//! waker                        waiter
//! condition = true             lock; push; unlock
//! lock; pop; unpark; unlock    check the condition; park if it is false
//! ```
//!
//! If the waker takes the lock last, it finds the waiter. If the waiter takes it last, it sees the
//! condition. So a wake-up is never lost. `park` may return early; every wait is a loop.
//!
//! Lock order: a queue's lock (class WaitQueue, interrupts off) is innermost; wake-ups are sent
//! under it.

use super::SpinLock;
use crate::{Atomic, LockClass, Machine, TaskId};
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering;

/// Waiters for which a new queue reserves memory.
const RESERVED: usize = 4;

/// Tasks that wait for a condition. The storage grows only when there are more waiters than ever.
pub struct WaitQueue<A: Machine> {
    waiters: SpinLock<A, VecDeque<TaskId>>,
}

impl<A: Machine> WaitQueue<A> {
    /// A queue without waiters.
    #[expect(clippy::new_without_default, reason = "a queue is made on purpose")]
    pub fn new() -> Self {
        let waiters = VecDeque::with_capacity(RESERVED);
        Self { waiters: SpinLock::new(LockClass::WaitQueue, waiters) }
    }

    /// Sleeps until `condition` returns true. Code that makes it true calls a `wake` function
    /// afterwards. `condition` is called without the queue's lock.
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        if condition() {
            return;
        }
        let me = A::current();
        loop {
            {
                let mut waiters = self.waiters.lock_irqsave();
                if !waiters.contains(&me) {
                    waiters.push_back(me);
                }
            }
            if condition() {
                self.waiters.lock_irqsave().retain(|task| *task != me);
                return;
            }
            A::park();
        }
    }

    /// Wakes the task that has waited longest. It checks its condition again.
    ///
    /// Correct only if all waiters wait for the same condition and each wakes the next one when it
    /// does not use the wake-up; otherwise use [`WaitQueue::wake_all`].
    pub fn wake_one(&self) {
        let first = self.waiters.lock_irqsave().pop_front();
        if let Some(task) = first {
            A::unpark(task);
        }
    }

    /// Wakes all waiters. They check their conditions again.
    pub fn wake_all(&self) {
        self.waiters.lock_irqsave().drain(..).for_each(A::unpark);
    }
}

/// An event that happens once, and the tasks that wait for it.
pub struct Completion<A: Machine> {
    done: A::AtomicU32,
    waiters: WaitQueue<A>,
}

impl<A: Machine> Completion<A> {
    /// Creates a completion that is not done.
    #[expect(clippy::new_without_default, reason = "a completion is made on purpose")]
    pub fn new() -> Self {
        Self { done: A::AtomicU32::new(0), waiters: WaitQueue::new() }
    }
    /// Marks it done: every waiter returns, and every later wait returns immediately.
    pub fn complete(&self) {
        // Pairs with the `Acquire` in `is_done`.
        self.done.store(1, Ordering::Release);
        self.waiters.wake_all();
    }
    /// Whether it is done.
    pub fn is_done(&self) -> bool {
        // Pairs with the `Release` in `complete`: the waiter sees what was done before it.
        self.done.load(Ordering::Acquire) != 0
    }
    /// Marks it not done, for the next use. The caller guarantees that no task waits.
    pub fn reset(&self) {
        // No partner: no task waits, and the caller orders this before the next `complete`.
        self.done.store(0, Ordering::Release);
    }
    /// Sleeps until it is done.
    pub fn wait(&self) {
        self.waiters.wait_until(|| self.is_done());
    }
    /// Sleeps until it is done or `over` returns true; returns whether it is done. Code that makes
    /// `over` true unparks the task afterwards.
    pub fn wait_unless(&self, over: impl Fn() -> bool) -> bool {
        let mut done = false;
        self.waiters.wait_until(|| {
            done = self.is_done();
            done || over()
        });
        done
    }
}
