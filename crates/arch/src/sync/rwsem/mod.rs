//! The reader-writer semaphore.
//!
//! A task that does not get it joins the queue. If a reader is at the head of the queue, the task
//! that releases the semaphore grants it to all readers of the queue, up to [`READERS_AT_ONCE`].
//! If a writer is at the head, it is woken and tries to take the semaphore itself.
//!
//! # Stealing
//! This is how [`RwsemPolicy::Stock`] works; its other policies differ as their comments say.
//! Between a release and the moment when the woken task runs, the semaphore is free although tasks
//! wait for it. Two kinds of task may take it then, ahead of the queue:
//! - a writer that spins ([`RwSem::write`]);
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
//! # Spinning
//! A writer spins before it joins the queue: while a writer that runs holds the semaphore, and for
//! a limited time while readers hold it ([`spin_for_readers_ns`]). The time begins again when a
//! writer has held the semaphore in between. A spinner whose time is over tells all others not to
//! spin, since readers may sleep unnoticed: `owner` has [`GAVE_UP`] until a writer takes the
//! semaphore. Readers do not spin, as in Linux since 5.11; with [`RwsemPolicy::ReadersSpin`] they
//! spin in the same queue, for writers that run, and take the semaphore next to other readers.
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
//! | spinning reader | as a release; then compare-exchange to `+ READER`, `WAITERS` allowed | no |
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
//! one in between does not break the release sequence. A queued reader learns of its grant from
//! `granted`, whose `Release` orders it after the `Acquire` of the granting task.
//!
//! Tasks are woken after the queue's lock is released, as in Linux: a wake-up takes longer than all
//! that is done under that lock.
//!
//! Lock order: class Rwsem; taken by tasks with preemption on and no spin lock held. Its own queue
//! lock (class WaitQueue) is held briefly.

mod guard;
mod queue;

pub use guard::{ReadGuard, WriteGuard};

use super::optimistic::{Place, Spin, spin_in_queue};
use super::{PreemptGuard, SpinLock};
use crate::{Atomic, Func, LockClass, Machine, RawOsq, Span, TaskId};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;
use queue::{Queue, Ticket, ToWake, Waiter};

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
pub const READER_SPIN_NS: u64 = spin_for_readers_ns(u64::MAX);

/// Time in ns that a writer spins while `readers` hold the semaphore: the kernel's 10 us, and half
/// a us for each of up to 30 readers.
const fn spin_for_readers_ns(readers: u64) -> u64 {
    let counted = if readers < 30 { readers } else { 30 };
    10_000 + 500 * counted
}

/// The owner while no writer holds the semaphore.
const NO_WRITER: u32 = 0;
/// The owner after a writer has spun for readers without success, until a writer takes the
/// semaphore.
const GAVE_UP: u32 = u32::MAX;

crate::policies! {
    /// Which tasks get a semaphore ahead of its queue.
    pub enum RwsemPolicy: "rwsem", "tasks that get mmap_lock and other rwsems ahead of the queue" {
        /// Lets a reader that finds no other reader, and spinning writers, overtake the queue,
        /// until its first task has waited for 4 ms.
        Stock = "stock",
        /// As stock, except that a reader that queues behind others does not let in those at the
        /// head of the queue next to the readers that hold it.
        FirstWakes = "first-wakes",
        /// Lets readers spin before they sleep, as writers do, and overtake the queue next to other
        /// readers, unless a writer has spun for readers without success.
        ReadersSpin = "readers-spin",
        /// Lets only writers overtake, which spin for writers alone, without an end after 4 ms.
        NoHandoff = "no-handoff",
    }
}

/// A reader-writer lock around a `T` whose waiters sleep.
pub struct RwSem<A: Machine, T> {
    count: A::AtomicU64,
    /// The task number of the writer that holds it, plus 1; [`NO_WRITER`] or [`GAVE_UP`] if there
    /// is none. A hint for spinners.
    owner: A::AtomicU32,
    spinners: A::Osq,
    queue: SpinLock<A, Queue>,
    /// Readers with lower tickets were granted the semaphore. Changed under the queue's lock.
    granted: A::AtomicU64,
    class: LockClass,
    policy: RwsemPolicy,
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
    /// A free semaphore of `class` around `data`, as in Linux.
    pub fn new(class: LockClass, data: T) -> Self {
        Self::with_policy(RwsemPolicy::Stock, class, data)
    }

    /// A free semaphore of `class` around `data`.
    pub fn with_policy(policy: RwsemPolicy, class: LockClass, data: T) -> Self {
        Self {
            count: A::AtomicU64::named(0, class),
            owner: A::AtomicU32::named(NO_WRITER, class),
            spinners: A::Osq::new(),
            queue: SpinLock::new(LockClass::WaitQueue, Queue::new()),
            granted: A::AtomicU64::named(0, class),
            class,
            policy,
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
        // Pairs with the `Release` in `write_done` and `write_to_read`: a reader sees what the last
        // writer wrote.
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        if count & (WRITER | WAITERS | HANDOFF) == 0 {
            return true;
        }
        let steals = match self.policy {
            RwsemPolicy::Stock | RwsemPolicy::FirstWakes => count & !WAITERS == 0,
            RwsemPolicy::ReadersSpin | RwsemPolicy::NoHandoff => false,
        };
        if steals {
            self.grant_to_readers();
        }
        steals
    }

    /// Takes it for writing: spins while a writer that runs or, for a short time, readers hold it,
    /// then sleeps until it is free.
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

    /// Adds a reader if no writer holds it and no task waits for it; returns whether it did. As in
    /// Linux, an exchange that fails is repeated with the value that it found: the line is there
    /// then, so nearly none fails twice.
    fn take_read(&self) -> bool {
        // Pairs with the `Release` in `write_done` and `write_to_read`, as in `add_reader`.
        let taken = self.count.fetch_update(Ordering::Acquire, Ordering::Relaxed, |count| {
            (count & (WRITER | WAITERS | HANDOFF) == 0).then(|| count + READER)
        });
        taken.is_ok()
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
        if self.policy == RwsemPolicy::ReadersSpin {
            // Not a reader meanwhile: writers would spin for it. The first waiter may have seen it
            // and gone to sleep.
            self.read_done();
            if self.spin_to_read() {
                return true;
            }
            self.count.fetch_add(READER, Ordering::Relaxed);
        }
        let mut queue = self.queue.lock_irqsave();
        let ticket = queue.join_reader::<A>();
        self.count.fetch_or(WAITERS, Ordering::Relaxed);
        let left = self.count.fetch_sub(READER, Ordering::Relaxed) - READER;
        // Check again, since other tasks may have seen the word before. A writer may have seen this
        // reader's `READER` and gone to sleep. Or the holder has released or downgraded the
        // semaphore and seen no `WAITERS`.
        let readers = left & WRITER == 0 && self.joined_readers_enter(&queue);
        let free = readers || left & TAKEN == 0;
        let to_wake = if free { self.pass_on(&mut queue) } else { ToWake::NONE };
        drop(queue);
        to_wake.wake::<A>();
        // The granting task adds `READER`. Pairs with the `Release` in `let_readers_in`.
        while self.granted.load(Ordering::Acquire) <= ticket.0 {
            if over() {
                return !self.leave_queue(ticket);
            }
            A::park();
        }
        true
    }

    /// Whether a reader that has just queued lets in the readers at the head of the queue, itself
    /// included if there is no writer before it, while readers hold the semaphore
    /// (`rwsem_cond_wake_waiter`; before 5.19 the first in the queue only).
    fn joined_readers_enter(&self, queue: &Queue) -> bool {
        let is_due = self.policy == RwsemPolicy::Stock || queue.len() == 1;
        is_due && queue.reader_is_first()
    }

    /// Whether the first waiter has waited so long that the semaphore is promised to it.
    fn is_overdue(&self, first: &Waiter) -> bool {
        self.policy != RwsemPolicy::NoHandoff && A::now_ns() - first.since_ns > HANDOFF_AFTER_NS
    }

    /// Removes a waiting reader from the queue. Returns `false` if it was granted the semaphore
    /// meanwhile.
    fn leave_queue(&self, ticket: Ticket) -> bool {
        let mut queue = self.queue.lock_irqsave();
        if !queue.leave(ticket) {
            return false;
        }
        let mut to_wake = ToWake::NONE;
        if queue.is_empty() {
            self.count.fetch_and(!(WAITERS | HANDOFF), Ordering::Relaxed);
        } else if self.count.load(Ordering::Relaxed) & TAKEN == 0 {
            // The semaphore is free, and a wake-up may have been sent to the caller: pass it on.
            to_wake = self.pass_on(&mut queue);
        }
        drop(queue);
        to_wake.wake::<A>();
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
        // Pairs with the `Release` in `read_done` and `write_done`: a writer comes after the last
        // holders.
        let taken = self.count.compare_exchange(count, new, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            self.owner.store(A::current().index() as u32 + 1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Spins for a writer that runs, or for readers. Returns whether it took the semaphore.
    fn spin(&self) -> bool {
        let _span = Span::<A>::enter(Func::RwsemOptimisticSpin);
        let mut until_ns = None;
        spin_in_queue::<A>(&self.spinners, |place| {
            if self.steal() {
                return Spin::Got;
            }
            let readers = self.readers();
            match self.owner.load(Ordering::Relaxed) {
                GAVE_UP => Spin::GiveUp,
                NO_WRITER if readers == 0 => Spin::Again,
                NO_WRITER if self.policy == RwsemPolicy::NoHandoff => Spin::GiveUp,
                // The time is that at the head of the queue.
                NO_WRITER if place == Place::Outside => Spin::Again,
                NO_WRITER => {
                    let now_ns = A::now_ns();
                    let until = *until_ns.get_or_insert(now_ns + spin_for_readers_ns(readers));
                    if now_ns < until { Spin::Again } else { self.give_up() }
                }
                owner => {
                    until_ns = None;
                    let owner = TaskId::new(owner as usize - 1);
                    if A::is_running(owner) { Spin::Again } else { Spin::GiveUp }
                }
            }
        })
    }

    /// Spins for a writer that runs, and next to readers. Returns whether it took the semaphore for
    /// reading. If so, it has granted it to readers at the head of the queue.
    fn spin_to_read(&self) -> bool {
        let span = Span::<A>::enter(Func::RwsemOptimisticSpin);
        let got = spin_in_queue::<A>(&self.spinners, |place| {
            let owner = self.owner.load(Ordering::Relaxed);
            if owner == GAVE_UP {
                return Spin::GiveUp;
            }
            if place == Place::Head && self.join_readers() {
                return Spin::Got;
            }
            match owner.checked_sub(1) {
                Some(owner) if !A::is_running(TaskId::new(owner as usize)) => Spin::GiveUp,
                _ => Spin::Again,
            }
        });
        drop(span);
        if got && self.has_waiters() {
            self.grant_to_readers();
        }
        got
    }

    /// Adds a reader if no writer holds it and it is not promised, although tasks may wait; returns
    /// whether it did.
    fn join_readers(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let more = count + READER;
        count & (WRITER | HANDOFF) == 0
            // Pairs with the `Release` in `write_done` and `write_to_read`, as in `add_reader`.
            && self
                .count
                .compare_exchange(count, more, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// The readers in the word if no writer holds the semaphore, or else 0.
    fn readers(&self) -> u64 {
        let count = self.count.load(Ordering::Relaxed);
        if count & WRITER == 0 { count / READER } else { 0 }
    }

    /// Ends a spin whose time is over, and those of others, until a writer takes the semaphore.
    fn give_up(&self) -> Spin {
        // If a writer has just taken it, its name stays.
        let (was, now) = (NO_WRITER, GAVE_UP);
        _ = self.owner.compare_exchange(was, now, Ordering::Relaxed, Ordering::Relaxed);
        Spin::GiveUp
    }

    fn write_slow(&self) {
        let me = self.queue.lock_irqsave().join_writer::<A>();
        loop {
            {
                let mut queue = self.queue.lock_irqsave();
                let first = queue.first().is_some_and(|first| first.task == me.task);
                let count = self.count.fetch_or(WAITERS, Ordering::Relaxed) | WAITERS;
                if first {
                    if count & TAKEN == 0 {
                        let flags = if queue.len() == 1 { 0 } else { WAITERS };
                        if self.take(count, WRITER | flags) {
                            queue.pop_first();
                            return;
                        }
                        continue;
                    }
                    if self.is_overdue(&me) {
                        self.count.fetch_or(HANDOFF, Ordering::Relaxed);
                    }
                }
            }
            A::park();
        }
    }

    fn read_done(&self) {
        // Pairs with the `Acquire` with which a writer takes the semaphore.
        let left = self.count.fetch_sub(READER, Ordering::Release) - READER;
        if left & TAKEN == 0 && left & WAITERS != 0 {
            self.wake_first();
        }
    }

    fn write_done(&self) {
        let pinned = PreemptGuard::<A>::new();
        self.owner.store(NO_WRITER, Ordering::Relaxed);
        // Pairs with the `Acquire` with which a reader or a writer takes the semaphore.
        let left = self.count.fetch_and(!WRITER, Ordering::Release);
        drop(pinned);
        if left & WAITERS != 0 {
            self.wake_first();
        }
    }

    fn write_to_read(&self) {
        let pinned = PreemptGuard::<A>::new();
        self.owner.store(NO_WRITER, Ordering::Relaxed);
        // One addition clears `WRITER` and adds a reader, so no task sees the semaphore free.
        let old = self.count.fetch_add(READER - WRITER, Ordering::AcqRel);
        drop(pinned);
        if old & WAITERS != 0 {
            self.grant_to_readers();
        }
    }

    /// Wakes the writer at the head of the queue, or grants the semaphore to the queue's readers.
    fn wake_first(&self) {
        let to_wake = self.pass_on(&mut self.queue.lock_irqsave());
        to_wake.wake::<A>();
    }

    /// Grants the semaphore to the queue's readers if one is at its head. The caller holds it for
    /// reading.
    fn grant_to_readers(&self) {
        let mut queue = self.queue.lock_irqsave();
        let readers = queue.reader_is_first();
        let to_wake = if readers { self.let_readers_in(&mut queue) } else { ToWake::NONE };
        drop(queue);
        to_wake.wake::<A>();
    }

    /// Grants the semaphore to the queue's readers if one is at its head. Returns whom to wake
    /// then.
    fn pass_on(&self, queue: &mut Queue) -> ToWake {
        match queue.first() {
            Some(_) if queue.reader_is_first() => self.let_readers_in(queue),
            Some(first) => ToWake::one(first.task),
            None => ToWake::NONE,
        }
    }

    /// Grants the semaphore to the readers of the queue, of which one is at the head, unless a
    /// writer has stolen it. Returns whom to wake then.
    fn let_readers_in(&self, queue: &mut Queue) -> ToWake {
        // Add one reader first: after that no writer can take the semaphore. If a writer has just
        // taken it, it sees `WAITERS` when it releases it, and wakes the queue after this task has
        // released the queue's lock.
        // `Acquire` pairs with the `Release` in `write_done`; `granted` passes that on.
        let count = self.count.fetch_add(READER, Ordering::Acquire);
        if count & WRITER != 0 {
            if queue.first().is_some_and(|first| self.is_overdue(first)) {
                self.count.fetch_or(HANDOFF, Ordering::Relaxed);
            }
            self.count.fetch_sub(READER, Ordering::Relaxed);
            return ToWake::NONE;
        }
        let readers = queue.readers(READERS_AT_ONCE);
        self.count.fetch_add(READER * (readers as u64 - 1), Ordering::Relaxed);
        let (granted, to_wake) = queue.take_readers(readers);
        // `HANDOFF` changes under the queue's lock only.
        let over = count & HANDOFF | if queue.is_empty() { WAITERS } else { 0 };
        if over != 0 {
            self.count.fetch_and(!over, Ordering::Relaxed);
        }
        // Pairs with the `Acquire` in `read_slow`.
        self.granted.store(granted.0, Ordering::Release);
        to_wake
    }
}
