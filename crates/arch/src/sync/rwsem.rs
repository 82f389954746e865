//! The reader-writer semaphore.
//!
//! Fair to writers: once somebody waits, new readers queue behind. Readers at the head of the
//! queue are let in by whoever frees the semaphore, all readers of the queue together, up to
//! [`READERS_AT_ONCE`]; a writer at the head is woken and tries for itself, so that a writer that
//! spins may get in first. A writer that has waited longer than [`HANDOFF_AFTER_NS`] shuts the
//! spinners out.
//!
//! Lock order: class Rwsem; taken by tasks with nothing atomic held. Its own queue lock (class
//! WaitQueue) is held for moments.

use super::optimistic::{Spin, spin_in_line};
use super::{PreemptGuard, SpinLock};
use crate::{Atomic, Func, LockClass, Machine, RawSpin, Span, TaskId, planted};
use alloc::collections::VecDeque;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

/// A writer has it.
const WRITER: u64 = 1;
/// Tasks stand in the queue.
const WAITERS: u64 = 2;
/// The first in the queue is a writer that has waited too long: no stealing.
const HANDOFF: u64 = 4;
/// One reader.
const READER: u64 = 1 << 8;
/// A writer, or any reader.
const TAKEN: u64 = !(WAITERS | HANDOFF);

/// Readers let in by one wake-up; the kernel's limit.
pub const READERS_AT_ONCE: usize = 256;
/// How long a writer waits before it shuts the spinners out, in ns; the kernel's 4 ms.
pub const HANDOFF_AFTER_NS: u64 = 4_000_000;

/// How long a reader spins that knows of a writer who will be done soon, in ns: as long as a writer
/// does for many readers.
pub const READER_SPIN_NS: u64 = 25_000;

/// What a queued task wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Read,
    Write,
}

/// A reader-writer lock around a `T` whose waiters sleep.
pub struct RwSem<A: Machine, T> {
    count: A::AtomicU64,
    /// The writer that has it, plus 1; a hint for spinners.
    owner: A::AtomicU32,
    spinners: A::Spin,
    queue: SpinLock<A, VecDeque<(TaskId, Want)>>,
    data: UnsafeCell<T>,
}

// SAFETY: many readers share the data, one writer alone changes it.
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

    /// Takes it for reading; sleeps until no writer has it or waits for it.
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

    /// Takes it for writing as [`RwSem::write`] does, but spins for readers too before it sleeps,
    /// for as long as the kernel does: 10 us, and half a us for each of up to 30 of them. That they
    /// run, and will be done soon, is the caller's guess.
    pub fn write_after_readers(&self) -> WriteGuard<'_, A, T> {
        let readers = (self.count.load(Ordering::Relaxed) / READER).min(30);
        let got = self.spin_until(10_000 + 500 * readers, || self.try_write());
        got.unwrap_or_else(|| self.write())
    }

    /// Takes it for reading once `due` is true and no writer has it or waits for it: spins, for at
    /// most [`READER_SPIN_NS`]. `None`: that took longer, or another task wants the CPU.
    pub fn try_read_once(&self, due: impl Fn() -> bool) -> Option<ReadGuard<'_, A, T>> {
        self.spin_until(READER_SPIN_NS, || if due() { self.try_read() } else { None })
    }

    /// Asks for at most `ns` and with preemption off, unless there is another task to run.
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

    /// Takes it for reading if no writer has it or waits for it.
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

    /// Whether somebody waits for it; a hint, for holders that can give way.
    pub fn has_waiters(&self) -> bool {
        self.count.load(Ordering::Relaxed) & WAITERS != 0
    }

    /// Takes it for writing if it is free.
    pub fn try_write(&self) -> Option<WriteGuard<'_, A, T>> {
        if !self.steal() {
            return None;
        }
        self.owner.store(A::current().index() as u32 + 1, Ordering::Relaxed);
        Some(WriteGuard { sem: self, not_send: PhantomData })
    }

    /// Takes it for reading as [`RwSem::read`] does, unless `over` is true by the time that it
    /// would sleep, or when it wakes; whoever makes it so unparks the task afterwards
    /// (`mmap_read_lock_killable`). `None`: it does not have the semaphore.
    pub fn read_unless(&self, over: impl Fn() -> bool) -> Option<ReadGuard<'_, A, T>> {
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        let got = count & (WRITER | WAITERS | HANDOFF) == 0 || self.read_slow_unless(over);
        got.then(|| ReadGuard { sem: self, not_send: PhantomData })
    }

    /// The reader's bit stands in the count although it may not have the semaphore.
    fn read_slow(&self) {
        self.read_slow_unless(|| false);
    }

    /// The same; `false`: it has no bit there any more, as `over` is true.
    fn read_slow_unless(&self, over: impl Fn() -> bool) -> bool {
        let me = A::current();
        {
            let mut queue = self.queue.lock_irqsave();
            queue.push_back((me, Want::Read));
            self.count.fetch_or(WAITERS, Ordering::Relaxed);
            let left = self.count.fetch_sub(READER, Ordering::Relaxed) - READER;
            // A writer may have looked while the bit stood there. Or the holder is gone, or a
            // reader by now, and has seen nobody in the queue.
            let readers = left & WRITER == 0 && matches!(queue.front(), Some((_, Want::Read)));
            if !planted!(RwsemQueuedReaderUnchecked) && (readers || left & TAKEN == 0) {
                self.wake_first(&mut queue);
            }
        }
        // Whoever lets readers in takes them out of the queue, and counts them.
        while self.queue.lock_irqsave().iter().any(|(task, _)| *task == me) {
            if over() {
                return !self.leave_queue(me);
            }
            A::park();
        }
        true
    }

    /// The reader `me` waits no more; `false`: it has been let in meanwhile.
    fn leave_queue(&self, me: TaskId) -> bool {
        let mut queue = self.queue.lock_irqsave();
        let Some(at) = queue.iter().position(|(task, _)| *task == me) else { return false };
        queue.remove(at);
        if queue.is_empty() {
            self.count.fetch_and(!(WAITERS | HANDOFF), Ordering::Relaxed);
        } else if self.count.load(Ordering::Relaxed) & TAKEN == 0 {
            // Whoever stands behind might otherwise wait for the caller to pass it on.
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
                // Promised, or with readers, of whom nobody knows whether they run.
                return Spin::GiveUp;
            }
            match self.owner.load(Ordering::Relaxed).checked_sub(1) {
                Some(owner) if !A::is_running(TaskId::new(owner as usize)) => Spin::GiveUp,
                _ => Spin::Again,
            }
        })
    }

    fn write_slow(&self) {
        let me = (A::current(), Want::Write);
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
        let left = self.count.fetch_sub(READER, Ordering::Release) - READER;
        if left & TAKEN == 0 && left & WAITERS != 0 && !planted!(RwsemReaderWakesNone) {
            self.wake_first(&mut self.queue.lock_irqsave());
        }
    }

    fn write_done(&self) {
        self.owner.store(0, Ordering::Relaxed);
        let order =
            if planted!(RwsemWriterRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        let left = self.count.fetch_and(!WRITER, order);
        if left & WAITERS != 0 && !planted!(RwsemWriterWakesNone) {
            self.wake_first(&mut self.queue.lock_irqsave());
        }
    }

    fn write_to_read(&self) {
        self.owner.store(0, Ordering::Relaxed);
        // One addition: the writer's bit goes and a reader comes, nobody sees it free.
        let old = self.count.fetch_add(READER - WRITER, Ordering::AcqRel);
        if old & WAITERS != 0 && !planted!(RwsemDowngradeWakesNone) {
            let mut queue = self.queue.lock_irqsave();
            if matches!(queue.front(), Some((_, Want::Read))) {
                self.let_readers_in(&mut queue);
            }
        }
    }

    /// Wakes the writer at the head of the queue, or lets the queue's readers in.
    fn wake_first(&self, queue: &mut VecDeque<(TaskId, Want)>) {
        match queue.front() {
            None => {}
            Some((task, Want::Write)) => A::unpark(*task),
            Some((_, Want::Read)) => self.let_readers_in(queue),
        }
    }

    fn let_readers_in(&self, queue: &mut VecDeque<(TaskId, Want)>) {
        // One bit first: from then on no writer gets in. If one has just done so, it sees the
        // waiters' bit when it leaves, and comes here once this queue's lock is free.
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        if count & WRITER != 0 {
            self.count.fetch_sub(READER, Ordering::Relaxed);
            return;
        }
        let mut readers = 0;
        let readers_in_queue = queue.iter().filter(|(_, want)| *want == Want::Read).count();
        let granted = readers_in_queue.min(READERS_AT_ONCE);
        self.count.fetch_add(READER * (granted as u64 - 1), Ordering::Relaxed);
        queue.retain(|(task, want)| {
            let keep = *want == Want::Write || readers == granted;
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
        // SAFETY: the guard exists, so no writer has the semaphore.
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
    /// Goes on holding it, for reading only: no writer gets in between (`downgrade_write`).
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
        // SAFETY: the guard exists, so this task alone has the semaphore.
        unsafe { &*self.sem.data.get() }
    }
}

impl<A: Machine, T> DerefMut for WriteGuard<'_, A, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so this task alone has the semaphore, and this borrow alone.
        unsafe { &mut *self.sem.data.get() }
    }
}

impl<A: Machine, T> Drop for WriteGuard<'_, A, T> {
    fn drop(&mut self) {
        self.sem.write_done();
    }
}
