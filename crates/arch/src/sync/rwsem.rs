//! The reader-writer semaphore.
//!
//! Fair to writers: once a task waits, new readers queue behind it. If a reader is at the head of
//! the queue, the task that releases the semaphore grants it to all readers of the queue, up to
//! [`READERS_AT_ONCE`]. If a writer is at the head, it is woken and tries to take the semaphore
//! itself, so a spinning writer may take it first. A writer that has waited longer than
//! [`HANDOFF_AFTER_NS`] sets `HANDOFF`, which stops the spinners.
//!
//! # The state word
//!
//! ```text
//! 63                                    8 7    3     2        1        0
//! +--------------------------------------+------+---------+---------+--------+
//! |               readers                | zero | HANDOFF | WAITERS | WRITER |
//! +--------------------------------------+------+---------+---------+--------+
//! ```
//!
//! | `WRITER` | readers | state |
//! |---|---|---|
//! | 0 | 0 | free |
//! | 0 | n | read-locked; some of the n may be readers that are about to queue |
//! | 1 | 0 | write-locked |
//! | 1 | n | write-locked; n readers, or a grant, have added `READER` and will subtract it |
//!
//! `WAITERS` may be set in each state: the queue has tasks, or a task is about to join or to leave
//! it. `HANDOFF` may be set while `WAITERS` is: the first waiter is a writer that has waited too
//! long, and no other task may take the semaphore.
//!
//! | transition | operation | under the queue's lock |
//! |---|---|---|
//! | reader takes it | `+ READER`, `Acquire`; held if all three flags were 0 | no |
//! | reader does not get it | joins the queue, sets `WAITERS`, `- READER` | yes |
//! | `try_read` | compare-exchange to `+ READER` if all three flags are 0 | no |
//! | writer takes it | compare-exchange from free, `WAITERS` allowed, to `+ WRITER` | no |
//! | first waiter, a writer, takes it | compare-exchange from free; clears `HANDOFF` (1) | yes |
//! | writer joins the queue | sets `WAITERS` | yes |
//! | first waiter, a writer, has waited too long | sets `HANDOFF` | yes |
//! | grant to queued readers | `+ READER` for each (1) | yes |
//! | waiting reader gives up | leaves the queue (1) | yes |
//! | reader releases it | `- READER`, `Release`; the last one wakes the queue | no |
//! | writer releases it | clears `WRITER`, `Release`; wakes the queue | no |
//! | downgrade | `+ READER - WRITER`, `AcqRel`; then grants if a reader is at the head | no |
//!
//! 1. Clears `WAITERS` and `HANDOFF` if the queue is empty then.
//!
//! Ordering: each `Acquire` that takes the semaphore pairs with the `Release` of `read_done`,
//! `write_done` and `write_to_read`. All changes of the word are read-modify-writes, so a relaxed
//! one in between does not break the release sequence. A queued reader learns of its grant under
//! the queue's lock, which orders it after the `Acquire` of the granting task.
//!
//! Lock order: class Rwsem; taken by tasks with preemption on and no spin lock held. Its own queue
//! lock (class WaitQueue) is held briefly.

use super::optimistic::{Spin, spin_in_line};
use super::{PreemptGuard, SpinLock};
use crate::{Atomic, Func, LockClass, Machine, RawSpin, Span, TaskId, planted};
use alloc::collections::VecDeque;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

/// A writer holds the semaphore.
const WRITER: u64 = 1;
/// The queue has tasks.
const WAITERS: u64 = 2;
/// The first task of the queue is a writer that has waited too long: no stealing.
const HANDOFF: u64 = 4;
/// One reader.
const READER: u64 = 1 << 8;
/// The bits of the writer and of the readers.
const TAKEN: u64 = !(WAITERS | HANDOFF);

/// Most readers of one grant; the kernel's limit.
pub const READERS_AT_ONCE: usize = 256;
/// Time in ns that a writer waits before it sets `HANDOFF`; the kernel's 4 ms.
pub const HANDOFF_AFTER_NS: u64 = 4_000_000;

/// Time in ns that a reader spins for a writer that is about to release the semaphore: as long as a
/// writer spins for many readers.
pub const READER_SPIN_NS: u64 = 25_000;

/// Kind of lock for which a queued task waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitFor {
    Read,
    Write,
}

/// A reader-writer lock around a `T` whose waiters sleep.
pub struct RwSem<A: Machine, T> {
    count: A::AtomicU64,
    /// The task number of the writer that holds it, plus 1; a hint for spinners.
    owner: A::AtomicU32,
    spinners: A::Spin,
    queue: SpinLock<A, VecDeque<(TaskId, WaitFor)>>,
    data: UnsafeCell<T>,
}

// SAFETY: readers share the data; a writer has exclusive access.
unsafe impl<A: Machine, T: Send + Sync> Sync for RwSem<A, T>
where
    A::AtomicU64: Sync,
    A::AtomicU32: Sync,
    A::Spin: Sync,
{
}

impl<A: Machine, T> RwSem<A, T> {
    /// A free semaphore around `data`.
    pub fn new(data: T) -> Self {
        Self {
            count: A::AtomicU64::new(0),
            owner: A::AtomicU32::new(0),
            spinners: A::Spin::new(LockClass::Osq),
            queue: SpinLock::new(LockClass::WaitQueue, VecDeque::with_capacity(4)),
            data: UnsafeCell::new(data),
        }
    }

    /// Takes it for reading; sleeps until no writer holds it or waits for it.
    pub fn read(&self) -> ReadGuard<'_, A, T> {
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        if count & (WRITER | WAITERS | HANDOFF) != 0 {
            self.read_slow();
        }
        ReadGuard { sem: self, not_send: PhantomData }
    }

    /// Takes it for writing; sleeps until it is free.
    pub fn write(&self) -> WriteGuard<'_, A, T> {
        let got = self.count.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed);
        if got.is_err() && !self.spin() {
            self.write_slow();
        }
        self.owner.store(A::current().index() as u32 + 1, Ordering::Relaxed);
        WriteGuard { sem: self, not_send: PhantomData }
    }

    /// Takes it for writing like [`RwSem::write`], but spins for readers too before it sleeps, as
    /// long as the kernel does: 10 us, and half a us for each of up to 30 readers. The caller
    /// expects that the readers run and release it soon.
    pub fn write_after_readers(&self) -> WriteGuard<'_, A, T> {
        let readers = (self.count.load(Ordering::Relaxed) / READER).min(30);
        let got = self.spin_until(10_000 + 500 * readers, || self.try_write());
        got.unwrap_or_else(|| self.write())
    }

    /// Takes it for reading once `due` returns true and no writer holds it or waits for it: spins
    /// for at most [`READER_SPIN_NS`]. Returns `None` if that takes longer, or if another task
    /// waits for the CPU.
    pub fn try_read_once(&self, due: impl Fn() -> bool) -> Option<ReadGuard<'_, A, T>> {
        self.spin_until(READER_SPIN_NS, || if due() { self.try_read() } else { None })
    }

    /// Repeats `ask` until it returns a value, for at most `ns`, with preemption off. Stops earlier
    /// if another task waits for the CPU.
    fn spin_until<R>(&self, ns: u64, ask: impl Fn() -> Option<R>) -> Option<R> {
        if let Some(got) = ask() {
            return Some(got);
        }
        let _span = Span::<A>::enter(Func::RwsemOptimisticSpin);
        let _pinned = PreemptGuard::<A>::new();
        let until_ns = A::now_ns() + ns;
        while A::now_ns() < until_ns && !A::need_resched() {
            A::relax();
            if let Some(got) = ask() {
                return Some(got);
            }
        }
        None
    }

    /// Takes it for reading if no writer holds it and no task waits for it.
    pub fn try_read(&self) -> Option<ReadGuard<'_, A, T>> {
        loop {
            let count = self.count.load(Ordering::Relaxed);
            if count & (WRITER | WAITERS | HANDOFF) != 0 {
                return None;
            }
            let more = count + READER;
            let got =
                self.count.compare_exchange(count, more, Ordering::Acquire, Ordering::Relaxed);
            if got.is_ok() {
                return Some(ReadGuard { sem: self, not_send: PhantomData });
            }
        }
    }

    /// Whether a task waits for it; a hint, for holders that can release it early.
    pub fn has_waiters(&self) -> bool {
        self.count.load(Ordering::Relaxed) & WAITERS != 0
    }

    /// Takes it for writing if it is free and not promised to a waiting writer.
    pub fn try_write(&self) -> Option<WriteGuard<'_, A, T>> {
        if !self.steal() {
            return None;
        }
        self.owner.store(A::current().index() as u32 + 1, Ordering::Relaxed);
        Some(WriteGuard { sem: self, not_send: PhantomData })
    }

    /// Takes it for reading like [`RwSem::read`], but gives up and returns `None` if `over` returns
    /// true before it would sleep or after it wakes (`mmap_read_lock_killable`). Code that makes
    /// `over` true unparks the task afterwards.
    pub fn read_unless(&self, over: impl Fn() -> bool) -> Option<ReadGuard<'_, A, T>> {
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        let got = count & (WRITER | WAITERS | HANDOFF) == 0 || self.read_slow_unless(over);
        got.then(|| ReadGuard { sem: self, not_send: PhantomData })
    }

    /// Queues a reader that has added `READER` but does not hold the semaphore; returns when it
    /// does.
    fn read_slow(&self) {
        self.read_slow_unless(|| false);
    }

    /// Like [`RwSem::read_slow`], but returns `false` without the semaphore if `over` returns true.
    fn read_slow_unless(&self, over: impl Fn() -> bool) -> bool {
        let me = A::current();
        {
            let mut queue = self.queue.lock_irqsave();
            queue.push_back((me, WaitFor::Read));
            self.count.fetch_or(WAITERS, Ordering::Relaxed);
            let left = self.count.fetch_sub(READER, Ordering::Relaxed) - READER;
            // Check again, since other tasks may have seen the word before. A writer may have seen
            // this reader's `READER` and gone to sleep. Or the holder has released or downgraded
            // the semaphore and seen no `WAITERS`.
            let readers = left & WRITER == 0 && matches!(queue.front(), Some((_, WaitFor::Read)));
            if !planted!(RwsemQueuedReaderUnchecked) && (readers || left & TAKEN == 0) {
                self.wake_first(&mut queue);
            }
        }
        // The granting task removes readers from the queue, and adds `READER` for each.
        while self.queue.lock_irqsave().iter().any(|(task, _)| *task == me) {
            if over() {
                return !self.leave_queue(me);
            }
            A::park();
        }
        true
    }

    /// Removes the waiting reader `me` from the queue. Returns `false` if it was granted the
    /// semaphore meanwhile.
    fn leave_queue(&self, me: TaskId) -> bool {
        let mut queue = self.queue.lock_irqsave();
        let Some(at) = queue.iter().position(|(task, _)| *task == me) else { return false };
        queue.remove(at);
        if queue.is_empty() {
            self.count.fetch_and(!(WAITERS | HANDOFF), Ordering::Relaxed);
        } else if self.count.load(Ordering::Relaxed) & TAKEN == 0 {
            // The semaphore is free, and a wake-up may have been sent to the caller: pass it on.
            self.wake_first(&mut queue);
        }
        true
    }

    /// Takes a free semaphore that is not promised to a waiting writer.
    fn steal(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        count & (TAKEN | HANDOFF) == 0
            && self
                .count
                .compare_exchange(count, count | WRITER, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    fn spin(&self) -> bool {
        spin_in_line::<A>(&self.spinners, || {
            if self.steal() {
                return Spin::Got;
            }
            let count = self.count.load(Ordering::Relaxed);
            if count & HANDOFF != 0 || count & !(WRITER | WAITERS | HANDOFF) != 0 {
                // Promised to a waiter, or held by readers, which may sleep unnoticed.
                return Spin::GiveUp;
            }
            match self.owner.load(Ordering::Relaxed).checked_sub(1) {
                Some(owner) if !A::is_running(TaskId::new(owner as usize)) => Spin::GiveUp,
                _ => Spin::Again,
            }
        })
    }

    fn write_slow(&self) {
        let me = (A::current(), WaitFor::Write);
        let since_ns = A::now_ns();
        self.queue.lock_irqsave().push_back(me);
        loop {
            {
                let mut queue = self.queue.lock_irqsave();
                let first = queue.front() == Some(&me);
                let count = self.count.fetch_or(WAITERS, Ordering::Relaxed) | WAITERS;
                if first {
                    if count & TAKEN == 0 {
                        let flags = if queue.len() == 1 { 0 } else { WAITERS };
                        let mine = WRITER | flags;
                        let got = self.count.compare_exchange(
                            count,
                            mine,
                            Ordering::Acquire,
                            Ordering::Relaxed,
                        );
                        if got.is_ok() {
                            queue.pop_front();
                            return;
                        }
                        continue;
                    }
                    if A::now_ns() - since_ns > HANDOFF_AFTER_NS {
                        self.count.fetch_or(HANDOFF, Ordering::Relaxed);
                    }
                }
            }
            A::park();
        }
    }

    fn read_done(&self) {
        // Pairs with the `Acquire` with which a writer takes the semaphore.
        let order =
            if planted!(RwsemReaderRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        let left = self.count.fetch_sub(READER, order) - READER;
        if left & TAKEN == 0 && left & WAITERS != 0 && !planted!(RwsemReaderWakesNone) {
            self.wake_first(&mut self.queue.lock_irqsave());
        }
    }

    fn write_done(&self) {
        self.owner.store(0, Ordering::Relaxed);
        // Pairs with the `Acquire` with which a reader or a writer takes the semaphore.
        let order =
            if planted!(RwsemWriterRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        let left = self.count.fetch_and(!WRITER, order);
        if left & WAITERS != 0 && !planted!(RwsemWriterWakesNone) {
            self.wake_first(&mut self.queue.lock_irqsave());
        }
    }

    fn write_to_read(&self) {
        self.owner.store(0, Ordering::Relaxed);
        // One addition clears `WRITER` and adds a reader, so no task sees the semaphore free.
        let old = self.count.fetch_add(READER - WRITER, Ordering::AcqRel);
        if old & WAITERS != 0 && !planted!(RwsemDowngradeWakesNone) {
            let mut queue = self.queue.lock_irqsave();
            if matches!(queue.front(), Some((_, WaitFor::Read))) {
                self.let_readers_in(&mut queue);
            }
        }
    }

    /// Wakes the writer at the head of the queue, or grants the semaphore to the queue's readers.
    fn wake_first(&self, queue: &mut VecDeque<(TaskId, WaitFor)>) {
        match queue.front() {
            None => {}
            Some((task, WaitFor::Write)) => A::unpark(*task),
            Some((_, WaitFor::Read)) => self.let_readers_in(queue),
        }
    }

    fn let_readers_in(&self, queue: &mut VecDeque<(TaskId, WaitFor)>) {
        // Add one reader first: after that no writer can take the semaphore. If a writer has just
        // taken it, it sees `WAITERS` when it releases it, and wakes the queue after this task has
        // released the queue's lock.
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        if count & WRITER != 0 {
            self.count.fetch_sub(READER, Ordering::Relaxed);
            return;
        }
        let mut readers = 0;
        let readers_in_queue = queue.iter().filter(|(_, kind)| *kind == WaitFor::Read).count();
        let granted = readers_in_queue.min(READERS_AT_ONCE);
        self.count.fetch_add(READER * (granted as u64 - 1), Ordering::Relaxed);
        queue.retain(|(task, kind)| {
            let keep = *kind == WaitFor::Write || readers == granted;
            if !keep {
                readers += 1;
                A::unpark(*task);
            }
            keep
        });
        if queue.is_empty() {
            self.count.fetch_and(!(WAITERS | HANDOFF), Ordering::Relaxed);
        }
    }
}

/// Held for reading until this is dropped.
#[must_use]
pub struct ReadGuard<'a, A: Machine, T> {
    sem: &'a RwSem<A, T>,
    not_send: PhantomData<*const ()>,
}

impl<A: Machine, T> Deref for ReadGuard<'_, A, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so no writer holds the semaphore.
        unsafe { &*self.sem.data.get() }
    }
}

impl<A: Machine, T> Drop for ReadGuard<'_, A, T> {
    fn drop(&mut self) {
        self.sem.read_done();
    }
}

/// Held for writing until this is dropped.
#[must_use]
pub struct WriteGuard<'a, A: Machine, T> {
    sem: &'a RwSem<A, T>,
    not_send: PhantomData<*const ()>,
}

impl<'a, A: Machine, T> WriteGuard<'a, A, T> {
    /// Converts the write lock to a read lock; no writer can take it in between
    /// (`downgrade_write`).
    pub fn downgrade(self) -> ReadGuard<'a, A, T> {
        let sem = self.sem;
        core::mem::forget(self);
        sem.write_to_read();
        ReadGuard { sem, not_send: PhantomData }
    }
}

impl<A: Machine, T> Deref for WriteGuard<'_, A, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so only this task holds the semaphore.
        unsafe { &*self.sem.data.get() }
    }
}

impl<A: Machine, T> DerefMut for WriteGuard<'_, A, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so only this task holds the semaphore; `&mut self` is the only
        // use.
        unsafe { &mut *self.sem.data.get() }
    }
}

impl<A: Machine, T> Drop for WriteGuard<'_, A, T> {
    fn drop(&mut self) {
        self.sem.write_done();
    }
}
