//! The reader-writer semaphore.
//!
//! A task that does not get it joins the queue. If a reader is at the head of the queue, the task
//! that releases the semaphore grants it to all readers of the queue, up to [`READERS_AT_ONCE`].
//! If a writer is at the head, it is woken and tries to take the semaphore itself.
//!
//! # Stealing
//! Between a release and the moment when the woken task runs, the semaphore is free although tasks
//! wait for it. Two kinds of task may take it then, ahead of the queue:
//! - a writer that spins;
//! - a reader that finds no other reader in the word. It also grants the semaphore to the readers
//!   at the head of the queue. A reader that finds other readers queues: otherwise a constant
//!   stream of readers, each of which overlaps with the next, would never let a writer in. (Linux
//!   lets it steal next to a reader that has not yet marked the semaphore as owned by readers.)
//!
//! Stealing ends when the first waiter has waited longer than [`HANDOFF_AFTER_NS`] and finds the
//! semaphore stolen once more. Then `HANDOFF` is set: by the first waiter itself if it is a writer,
//! by the task that would have granted it if it is a reader. No task takes the semaphore before the
//! first waiter has it. So a waiter waits for at most one holder after that time.
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
//! it. `HANDOFF` may be set while `WAITERS` is: a first waiter has waited too long, and no task but
//! the first waiter may take the semaphore.
//!
//! | transition | operation | under the queue's lock |
//! |---|---|---|
//! | reader takes it | `+ READER`, `Acquire`; held if all three flags were 0 | no |
//! | reader steals it | as before; held if `WAITERS` alone was set and there was no reader | no |
//! | reader does not get it | joins the queue, sets `WAITERS`, `- READER` | yes |
//! | `try_read` | compare-exchange to `+ READER` if all three flags are 0 | no |
//! | writer takes, steals it | compare-exchange from free, `WAITERS` allowed, to `+ WRITER` | no |
//! | first waiter, a writer, takes it | compare-exchange from free; clears `HANDOFF` (1) | yes |
//! | writer joins the queue | sets `WAITERS` | yes |
//! | first waiter, a writer, has waited too long | sets `HANDOFF` | yes |
//! | grant to queued readers | `+ READER` for each; clears `HANDOFF` (1) | yes |
//! | grant finds a writer, and the first reader has waited too long | sets `HANDOFF` | yes |
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

mod guard;

pub use guard::{ReadGuard, WriteGuard};

use super::optimistic::{Spin, spin_in_queue};
use super::{PreemptGuard, SpinLock};
use crate::{Atomic, Func, LockClass, Machine, RawOsq, Span, TaskId, planted};
use alloc::collections::VecDeque;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

/// A writer holds the semaphore.
const WRITER: u64 = 1;
/// The queue has tasks.
const WAITERS: u64 = 2;
/// The first task of the queue has waited too long: no stealing.
const HANDOFF: u64 = 4;
/// One reader.
const READER: u64 = 1 << 8;
/// The bits of the writer and of the readers.
const TAKEN: u64 = !(WAITERS | HANDOFF);

/// Most readers of one grant; the kernel's limit.
pub const READERS_AT_ONCE: usize = 256;
/// Time in ns that a task waits until a first waiter is promised the semaphore; the kernel's 4 ms.
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

/// A task in the queue.
#[derive(Clone, Copy)]
struct Waiter {
    task: TaskId,
    wants: WaitFor,
    /// When it joined.
    since_ns: u64,
}

impl Waiter {
    /// Makes the entry of the calling task.
    fn new<A: Machine>(wants: WaitFor) -> Self {
        Self { task: A::current(), wants, since_ns: A::now_ns() }
    }
    /// Whether it has waited too long.
    fn is_overdue<A: Machine>(&self) -> bool {
        A::now_ns() - self.since_ns > HANDOFF_AFTER_NS
    }
}

/// The waiting tasks, the first to join at the front.
type Queue = VecDeque<Waiter>;

/// Whether a reader is at the head of the queue.
fn reader_is_first(queue: &Queue) -> bool {
    queue.front().is_some_and(|first| first.wants == WaitFor::Read)
}

/// A reader-writer lock around a `T` whose waiters sleep.
pub struct RwSem<A: Machine, T> {
    count: A::AtomicU64,
    /// The task number of the writer that holds it, plus 1; a hint for spinners.
    owner: A::AtomicU32,
    spinners: A::Osq,
    queue: SpinLock<A, Queue>,
    class: LockClass,
    data: UnsafeCell<T>,
}

// SAFETY: readers share the data; a writer has exclusive access.
unsafe impl<A: Machine, T: Send + Sync> Sync for RwSem<A, T>
where
    A::AtomicU64: Sync,
    A::AtomicU32: Sync,
    A::Osq: Sync,
    A::Spin: Sync,
{
}

impl<A: Machine, T> RwSem<A, T> {
    /// A free semaphore of `class` around `data`.
    pub fn new(class: LockClass, data: T) -> Self {
        Self {
            count: A::AtomicU64::new(0),
            owner: A::AtomicU32::new(0),
            spinners: A::Osq::new(),
            queue: SpinLock::new(LockClass::WaitQueue, VecDeque::with_capacity(4)),
            class,
            data: UnsafeCell::new(data),
        }
    }

    /// Takes it for reading; sleeps until no writer holds it, and none waits for it unless this
    /// task can steal it.
    pub fn read(&self) -> ReadGuard<'_, A, T> {
        let mut since = None;
        if !self.add_reader() {
            since = Some(A::wait_clock());
            self.read_slow(|| false);
        }
        ReadGuard::new(self, since)
    }

    /// Adds a reader to the word. Returns whether that took or stole the semaphore: no writer takes
    /// it while the word has a reader.
    fn add_reader(&self) -> bool {
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        if count & (WRITER | WAITERS | HANDOFF) == 0 {
            return true;
        }
        let allowed = if planted!(RwsemStealsPromised) { WAITERS | HANDOFF } else { WAITERS };
        let steals = count & !allowed == 0;
        if steals {
            let mut queue = self.queue.lock_irqsave();
            if reader_is_first(&queue) {
                self.let_readers_in(&mut queue);
            }
        }
        steals
    }

    /// Takes it for writing; sleeps until it is free.
    pub fn write(&self) -> WriteGuard<'_, A, T> {
        let since = self.lock_write();
        WriteGuard::new(self, since)
    }

    /// Takes it for writing. Returns when it found it taken, if it did.
    fn lock_write(&self) -> Option<u64> {
        if self.take(0, WRITER) {
            return None;
        }
        let since = A::wait_clock();
        if !self.spin() {
            self.write_slow();
        }
        Some(since)
    }

    /// Takes it for writing like [`RwSem::write`], but spins for readers too before it sleeps, as
    /// long as the kernel does: 10 us, and half a us for each of up to 30 readers. The caller
    /// expects that the readers run and release it soon.
    pub fn write_after_readers(&self) -> WriteGuard<'_, A, T> {
        let readers = (self.count.load(Ordering::Relaxed) / READER).min(30);
        if self.steal() {
            return WriteGuard::new(self, None);
        }
        let since = A::wait_clock();
        if !self.spin_for(10_000 + 500 * readers, || self.steal()) {
            self.lock_write();
        }
        WriteGuard::new(self, Some(since))
    }

    /// Takes it for reading once `due` returns true and no writer holds it or waits for it: spins
    /// for at most [`READER_SPIN_NS`]. Returns `None` if that takes longer, or if the CPU must
    /// switch tasks.
    pub fn try_read_once(&self, due: impl Fn() -> bool) -> Option<ReadGuard<'_, A, T>> {
        let ask = || due() && self.take_read();
        if ask() {
            return Some(ReadGuard::new(self, None));
        }
        let since = A::wait_clock();
        self.spin_for(READER_SPIN_NS, ask).then(|| ReadGuard::new(self, Some(since)))
    }

    /// Repeats `ask` until it returns true, for at most `ns`, with preemption off. Stops earlier
    /// if the CPU must switch tasks. Returns whether it returned true.
    fn spin_for(&self, ns: u64, ask: impl Fn() -> bool) -> bool {
        let _span = Span::<A>::enter(Func::RwsemOptimisticSpin);
        let _pinned = PreemptGuard::<A>::new();
        let until_ns = A::now_ns() + ns;
        while A::now_ns() < until_ns && !A::need_resched() {
            A::relax();
            if ask() {
                return true;
            }
        }
        false
    }

    /// Takes it for reading if no writer holds it and no task waits for it.
    pub fn try_read(&self) -> Option<ReadGuard<'_, A, T>> {
        self.take_read().then(|| ReadGuard::new(self, None))
    }

    /// Adds a reader if no writer holds it and no task waits for it; returns whether it did.
    fn take_read(&self) -> bool {
        loop {
            let count = self.count.load(Ordering::Relaxed);
            if count & (WRITER | WAITERS | HANDOFF) != 0 {
                return false;
            }
            let more = count + READER;
            let got =
                self.count.compare_exchange(count, more, Ordering::Acquire, Ordering::Relaxed);
            if got.is_ok() {
                return true;
            }
        }
    }

    /// Whether a task waits for it; a hint, for holders that can release it early.
    pub fn has_waiters(&self) -> bool {
        self.count.load(Ordering::Relaxed) & WAITERS != 0
    }

    /// Whether it is promised to the first waiter: no other task takes it before. A hint.
    pub fn is_promised(&self) -> bool {
        self.count.load(Ordering::Relaxed) & HANDOFF != 0
    }

    /// Takes it for writing if it is free and not promised to the first waiter.
    pub fn try_write(&self) -> Option<WriteGuard<'_, A, T>> {
        self.steal().then(|| WriteGuard::new(self, None))
    }

    /// Takes it for reading like [`RwSem::read`], but gives up and returns `None` if `over` returns
    /// true before it would sleep or after it wakes (`mmap_read_lock_killable`). Code that makes
    /// `over` true unparks the task afterwards.
    pub fn read_unless(&self, over: impl Fn() -> bool) -> Option<ReadGuard<'_, A, T>> {
        if self.add_reader() {
            return Some(ReadGuard::new(self, None));
        }
        let since = A::wait_clock();
        self.read_slow(over).then(|| ReadGuard::new(self, Some(since)))
    }

    /// Queues a reader that has added `READER` but does not hold the semaphore. Returns `true` when
    /// it does, or `false` if `over` returns true before that.
    fn read_slow(&self, over: impl Fn() -> bool) -> bool {
        let waiter = Waiter::new::<A>(WaitFor::Read);
        let me = waiter.task;
        {
            let mut queue = self.queue.lock_irqsave();
            queue.push_back(waiter);
            self.count.fetch_or(WAITERS, Ordering::Relaxed);
            let left = self.count.fetch_sub(READER, Ordering::Relaxed) - READER;
            // Check again, since other tasks may have seen the word before. A writer may have seen
            // this reader's `READER` and gone to sleep. Or the holder has released or downgraded
            // the semaphore and seen no `WAITERS`.
            let readers = left & WRITER == 0 && reader_is_first(&queue);
            if !planted!(RwsemQueuedReaderUnchecked) && (readers || left & TAKEN == 0) {
                self.wake_first(&mut queue);
            }
        }
        // The granting task removes readers from the queue, and adds `READER` for each.
        while self.queue.lock_irqsave().iter().any(|waiter| waiter.task == me) {
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
        let Some(at) = queue.iter().position(|waiter| waiter.task == me) else { return false };
        queue.remove(at);
        if queue.is_empty() {
            self.count.fetch_and(!(WAITERS | HANDOFF), Ordering::Relaxed);
        } else if self.count.load(Ordering::Relaxed) & TAKEN == 0 {
            // The semaphore is free, and a wake-up may have been sent to the caller: pass it on.
            self.wake_first(&mut queue);
        }
        true
    }

    /// Takes a free semaphore that is not promised to the first waiter.
    fn steal(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        count & (TAKEN | HANDOFF) == 0 && self.take(count, count | WRITER)
    }

    /// Takes the semaphore for writing if the word is `count`, which is free: makes it `new`.
    /// Preemption is off until the owner is known, and in `write_done` once it is not any more. A
    /// task that spins on this CPU would wait without end for a writer that it keeps from running.
    fn take(&self, count: u64, new: u64) -> bool {
        let _pinned = PreemptGuard::<A>::new();
        let taken = self.count.compare_exchange(count, new, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            self.owner.store(A::current().index() as u32 + 1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn spin(&self) -> bool {
        spin_in_queue::<A>(&self.spinners, || {
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
        let me = Waiter::new::<A>(WaitFor::Write);
        self.queue.lock_irqsave().push_back(me);
        loop {
            {
                let mut queue = self.queue.lock_irqsave();
                let first = queue.front().is_some_and(|first| first.task == me.task);
                let count = self.count.fetch_or(WAITERS, Ordering::Relaxed) | WAITERS;
                if first {
                    if count & TAKEN == 0 {
                        let flags = if queue.len() == 1 { 0 } else { WAITERS };
                        let mine = WRITER | flags;
                        if self.take(count, mine) {
                            queue.pop_front();
                            return;
                        }
                        continue;
                    }
                    if me.is_overdue::<A>() {
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
        let pinned = PreemptGuard::<A>::new();
        self.owner.store(0, Ordering::Relaxed);
        // Pairs with the `Acquire` with which a reader or a writer takes the semaphore.
        let order =
            if planted!(RwsemWriterRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        let left = self.count.fetch_and(!WRITER, order);
        drop(pinned);
        if left & WAITERS != 0 && !planted!(RwsemWriterWakesNone) {
            self.wake_first(&mut self.queue.lock_irqsave());
        }
    }

    fn write_to_read(&self) {
        let pinned = PreemptGuard::<A>::new();
        self.owner.store(0, Ordering::Relaxed);
        // One addition clears `WRITER` and adds a reader, so no task sees the semaphore free.
        let old = self.count.fetch_add(READER - WRITER, Ordering::AcqRel);
        drop(pinned);
        if old & WAITERS != 0 && !planted!(RwsemDowngradeWakesNone) {
            let mut queue = self.queue.lock_irqsave();
            if reader_is_first(&queue) {
                self.let_readers_in(&mut queue);
            }
        }
    }

    /// Wakes the writer at the head of the queue, or grants the semaphore to the queue's readers.
    fn wake_first(&self, queue: &mut Queue) {
        match queue.front() {
            Some(first) if first.wants == WaitFor::Write => A::unpark(first.task),
            Some(_) => self.let_readers_in(queue),
            None => {}
        }
    }

    /// Grants the semaphore to the readers of the queue, of which one is at the head, unless a
    /// writer has stolen it.
    fn let_readers_in(&self, queue: &mut Queue) {
        // Add one reader first: after that no writer can take the semaphore. If a writer has just
        // taken it, it sees `WAITERS` when it releases it, and wakes the queue after this task has
        // released the queue's lock.
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        if count & WRITER != 0 {
            if queue.front().is_some_and(Waiter::is_overdue::<A>) {
                self.count.fetch_or(HANDOFF, Ordering::Relaxed);
            }
            self.count.fetch_sub(READER, Ordering::Relaxed);
            return;
        }
        let mut readers = 0;
        let readers_in_queue = queue.iter().filter(|waiter| waiter.wants == WaitFor::Read).count();
        let granted = readers_in_queue.min(READERS_AT_ONCE);
        self.count.fetch_add(READER * (granted as u64 - 1), Ordering::Relaxed);
        queue.retain(|waiter| {
            let keep = waiter.wants == WaitFor::Write || readers == granted;
            if !keep {
                readers += 1;
                A::unpark(waiter.task);
            }
            keep
        });
        // `HANDOFF` changes under the queue's lock only.
        let over = count & HANDOFF | if queue.is_empty() { WAITERS } else { 0 };
        if over != 0 {
            self.count.fetch_and(!over, Ordering::Relaxed);
        }
    }
}
