//! Wait queues and completions: tasks that sleep until somebody says that something has changed.
//!
//! A waker first makes the condition true, then wakes. A waiter first stands in the queue, then
//! looks at the condition, then parks. Whichever of the two takes the queue's lock first, the wake
//! is not lost: either the waiter sees the condition, or the waker sees the waiter. `park` may
//! return early; every wait is a loop.
//!
//! Lock order: a queue's lock (class WaitQueue, interrupts off) is innermost; wake-ups are sent
//! under it.

use super::SpinLock;
use crate::{Atomic, LockClass, Machine, TaskId, planted};
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering;

/// Waiters for which room is set aside when a queue is made.
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

    /// Sleeps until `condition` holds. Whoever makes it true calls a `wake` function afterwards.
    /// `condition` is asked with nothing held.
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
            if !planted!(WaitUnchecked) && condition() {
                self.waiters.lock_irqsave().retain(|task| *task != me);
                return;
            }
            A::park();
        }
    }

    /// Wakes the task that has waited longest. It looks at its condition again.
    ///
    /// Only right where every waiter waits for the same condition and passes on what it does not
    /// use; otherwise [`WaitQueue::wake_all`].
    pub fn wake_one(&self) {
        let first = self.waiters.lock_irqsave().pop_front();
        if let Some(task) = first {
            A::unpark(task);
        }
    }

    /// Wakes all waiters. They look at their conditions again.
    pub fn wake_all(&self) {
        self.waiters.lock_irqsave().drain(..).for_each(A::unpark);
    }
}

/// Something that happens once, and tasks that wait for it.
pub struct Completion<A: Machine> {
    done: A::AtomicU32,
    waiters: WaitQueue<A>,
}

impl<A: Machine> Completion<A> {
    /// Not done yet.
    #[expect(clippy::new_without_default, reason = "a completion is made on purpose")]
    pub fn new() -> Self {
        Self { done: A::AtomicU32::new(0), waiters: WaitQueue::new() }
    }
    /// It is done: every waiter returns, and every later wait returns at once.
    pub fn complete(&self) {
        self.done.store(1, Ordering::Release);
        if planted!(CompletionWakesOne) {
            return self.waiters.wake_one();
        }
        self.waiters.wake_all();
    }
    /// Whether it is done.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) != 0
    }
    /// Not done any more, for the next use. Nobody waits at this time.
    pub fn reset(&self) {
        self.done.store(0, Ordering::Release);
    }
    /// Sleeps until it is done.
    pub fn wait(&self) {
        self.waiters.wait_until(|| self.is_done());
    }
    /// Sleeps until it is done, or `over` is true; whoever makes it so unparks the task afterwards.
    /// Whether it is done.
    pub fn wait_unless(&self, over: impl Fn() -> bool) -> bool {
        let mut done = false;
        self.waiters.wait_until(|| {
            done = self.is_done();
            done || over()
        });
        done
    }
}
