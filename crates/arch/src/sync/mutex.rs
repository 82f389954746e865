//! The sleeping mutex.
//!
//! One word holds the owner and two flags. A task that finds the mutex taken spins while the owner
//! runs on a CPU, queued behind other spinners, and sleeps in a wait queue otherwise, or when its
//! CPU must switch tasks. A waiter that
//! was woken and found the mutex stolen by a spinner requests a handoff: the next unlock hands the
//! mutex over to it, so that it waits for at most two holders.
//!
//! | bits of the word | meaning |
//! |---|---|
//! | 0 `WAITERS` | the wait queue has tasks; unlock takes the slow path |
//! | 1 `HANDOFF` | the next unlock hands the mutex to the first waiter |
//! | 2- | the owner's task number plus 1; 0: the mutex is free |
//!
//! Lock order: class Mutex; taken by tasks with nothing atomic held. Its own queue lock (class
//! WaitQueue) is held for moments.

use super::SpinLock;
use super::optimistic::{Spin, spin_in_queue};
use crate::{Atomic, LockClass, LockHold, Machine, RawOsq, TaskId};
use alloc::collections::VecDeque;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

/// The wait queue has tasks.
const WAITERS: u64 = 1;
/// The first waiter gets the mutex at the next unlock.
const HANDOFF: u64 = 2;
const FLAGS: u64 = WAITERS | HANDOFF;

/// The owner field for `task`; 0 means no owner.
fn owner_bits(task: TaskId) -> u64 {
    (task.index() as u64 + 1) << 2
}

/// Returns the owner of a mutex whose word is `word`.
fn owner_of(word: u64) -> Option<TaskId> {
    (word >> 2).checked_sub(1).map(|index| TaskId::new(index as usize))
}

/// A lock around a `T` whose waiters sleep.
pub struct Mutex<A: Machine, T> {
    word: A::AtomicU64,
    /// Queue of tasks that spin while the owner runs.
    spinners: A::Osq,
    queue: SpinLock<A, VecDeque<TaskId>>,
    class: LockClass,
    data: UnsafeCell<T>,
}

// SAFETY: only the owner accesses the data, and there is one owner at a time.
unsafe impl<A: Machine, T: Send> Sync for Mutex<A, T>
where
    A::AtomicU64: Sync,
    A::Osq: Sync,
    A::Spin: Sync,
{
}

impl<A: Machine, T> Mutex<A, T> {
    /// A free mutex of `class` around `data`.
    pub fn new(class: LockClass, data: T) -> Self {
        Self {
            word: A::AtomicU64::named(0, class),
            spinners: A::Osq::new(),
            queue: SpinLock::new(LockClass::WaitQueue, VecDeque::with_capacity(4)),
            class,
            data: UnsafeCell::new(data),
        }
    }

    /// Takes the mutex; sleeps until it is free.
    pub fn lock(&self) -> MutexGuard<'_, A, T> {
        let me = owner_bits(A::current());
        // Pairs with the `Release` operations in `unlock`: this task sees what the last owner
        // wrote.
        let free = self.word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        let mut since = None;
        if free.is_err() {
            since = Some(A::wait_clock());
            if !self.spin(me) {
                self.sleep(me);
            }
        }
        self.guard(since)
    }

    /// Takes the mutex if it is free and not promised to a waiter.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, A, T>> {
        let me = owner_bits(A::current());
        self.steal(me).then(|| self.guard(None))
    }

    /// For a task that has taken the mutex, and has waited since the given time.
    fn guard(&self, since: Option<u64>) -> MutexGuard<'_, A, T> {
        let hold = A::lock_taken(self.class, since);
        MutexGuard { mutex: self, hold, not_send: PhantomData }
    }

    /// Takes a free mutex that is not promised to a waiter.
    fn steal(&self, me: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & !WAITERS == 0
            // Pairs with the `Release` operations in `unlock`, as in `lock`.
            && self
                .word
                .compare_exchange(word, word | me, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Spins while the owner runs. Returns whether it took the mutex.
    fn spin(&self, me: u64) -> bool {
        spin_in_queue::<A>(&self.spinners, |_| {
            if self.steal(me) {
                return Spin::Got;
            }
            let word = self.word.load(Ordering::Relaxed);
            match owner_of(word) {
                _ if word & HANDOFF != 0 => Spin::GiveUp,
                Some(owner) if !A::is_running(owner) => Spin::GiveUp,
                _ => Spin::Again,
            }
        })
    }

    /// Sleeps until it has taken the mutex.
    fn sleep(&self, me: u64) {
        let task = A::current();
        let mut woken = false;
        self.queue.lock_irqsave().push_back(task);
        loop {
            {
                let mut queue = self.queue.lock_irqsave();
                let first = queue.front() == Some(&task);
                // Pairs with the handoff in `unlock`: a task that finds itself as the owner sees
                // what the last owner wrote.
                let word = self.word.fetch_or(WAITERS, Ordering::Acquire) | WAITERS;
                if self.take_queued(me, word, first) {
                    queue.retain(|waiter| *waiter != task);
                    if queue.is_empty() {
                        self.word.fetch_and(!WAITERS, Ordering::Relaxed);
                    }
                    return;
                }
                // A spinner stole the mutex after the wake-up: request a handoff. The holder sees
                // `WAITERS` when it unlocks, takes the queue's lock after this task has released
                // it, and wakes the first waiter.
                if first && woken {
                    self.word.fetch_or(HANDOFF, Ordering::Relaxed);
                }
                woken = first;
            }
            A::park();
        }
    }

    /// Tries to take the mutex as a waiter, under the queue's lock; `word` was just read.
    fn take_queued(&self, me: u64, word: u64, first: bool) -> bool {
        if word & !FLAGS == me {
            // The unlock handed it over; `sleep` has read `word` with `Acquire`.
            self.word.fetch_and(!HANDOFF, Ordering::Relaxed);
            return true;
        }
        let promised = word & HANDOFF != 0 && !first;
        if word & !FLAGS != 0 || promised {
            return false;
        }
        let mine = me | WAITERS;
        // Pairs with the `Release` operations in `unlock`, as in `lock`.
        self.word.compare_exchange(word, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the mutex. All changes of the word are read-modify-writes, so a relaxed one between
    /// a `Release` here and the `Acquire` that takes the mutex does not break the release sequence.
    fn unlock(&self) {
        let me = owner_bits(A::current());
        // Pairs with the `Acquire` in `lock`, `steal` and `take_queued`.
        if self.word.compare_exchange(me, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        let queue = self.queue.lock_irqsave();
        let first = queue.front().copied();
        let word = self.word.load(Ordering::Relaxed);
        // While this task owns the mutex and holds the queue's lock no other task changes the word.
        match first {
            Some(task) if word & HANDOFF != 0 => {
                let theirs = owner_bits(task).wrapping_sub(word & !FLAGS);
                // Pairs with the `Acquire` in `sleep`.
                self.word.fetch_add(theirs, Ordering::Release);
            }
            _ => {
                // Pairs with the `Acquire` in `lock`, `steal` and `take_queued`.
                self.word.fetch_and(FLAGS, Ordering::Release);
            }
        }
        // Not under the queue's lock, which a wake-up would hold for long. The task may have gone
        // on already; then its next park ends early.
        drop(queue);
        if let Some(task) = first {
            A::unpark(task);
        }
    }
}

/// The mutex is held until this is dropped.
#[must_use]
pub struct MutexGuard<'a, A: Machine, T> {
    mutex: &'a Mutex<A, T>,
    hold: LockHold,
    not_send: PhantomData<*const ()>,
}

impl<A: Machine, T> Deref for MutexGuard<'_, A, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this task owns the mutex.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<A: Machine, T> DerefMut for MutexGuard<'_, A, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so this task owns the mutex; `&mut self` is the only use.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<A: Machine, T> Drop for MutexGuard<'_, A, T> {
    fn drop(&mut self) {
        A::lock_released(self.hold);
        self.mutex.unlock();
    }
}
