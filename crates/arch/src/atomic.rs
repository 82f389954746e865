//! Atomics and raw locks, as a machine provides them.
//!
//! On real hardware these are `core::sync::atomic` and a spin lock. In the simulator an operation
//! waits until its CPU is the earliest in virtual time, and costs what moving the line costs. In
//! the model checker it is a scheduling point.

use super::CpuId;
use crate::names::named;
use core::sync::atomic::Ordering;

/// An atomic integer. The orderings mean what they mean in `core`.
pub trait Atomic<T: Copy> {
    /// A new atomic that holds `value`; it is its own cache line as far as costs go.
    fn new(value: T) -> Self;
    /// Reads.
    fn load(&self, order: Ordering) -> T;
    /// Writes.
    fn store(&self, value: T, order: Ordering);
    /// Writes, and returns what was there.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if `current` is there; returns what was there, as `Ok` if it was `current`.
    fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;
    /// Adds with wrap-around, and returns what was there.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Subtracts with wrap-around, and returns what was there.
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    /// Or, and returns what was there.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    /// And, and returns what was there.
    fn fetch_and(&self, value: T, order: Ordering) -> T;

    /// Reads what this CPU most often has in its cache, as a part of work that is charged by
    /// itself: in virtual time it costs something only if the line has to be fetched.
    #[inline]
    fn load_uncharged(&self, order: Ordering) -> T {
        self.load(order)
    }
    /// Writes to what this CPU most often has in its cache, as a part of work that is charged by
    /// itself: the counterpart of [`Atomic::load_uncharged`].
    #[inline]
    fn store_uncharged(&self, value: T, order: Ordering) {
        self.store(value, order);
    }
    /// Reads the value and writes what `change` makes of it, unless that is `None`; retries if
    /// another CPU has written in between. Returns the old value: as `Ok` if it was changed. In
    /// virtual time it is one step, so `change` asks nothing of the machine.
    #[inline]
    fn fetch_update(
        &self,
        success: Ordering,
        failure: Ordering,
        change: impl Fn(T) -> Option<T>,
    ) -> Result<T, T> {
        let mut found = self.load(failure);
        loop {
            let Some(new) = change(found) else { return Err(found) };
            match self.compare_exchange(found, new, success, failure) {
                Ok(_) => return Ok(found),
                Err(other) => found = other,
            }
        }
    }
}

/// A small integer that one CPU writes, often, and other CPUs read rarely.
///
/// On hardware it is a relaxed atomic. The simulator synchronises only the writes that change it
/// between zero and nonzero: this is what makes a counter update cost nanoseconds there too.
pub trait OwnedCounter<T: Copy> {
    /// A new counter at zero.
    fn zero() -> Self;
    /// The value. Only for the owning CPU (or for the CPU that took over a dead CPU's data).
    fn get(&self) -> T;
    /// Sets the value. Only for the owner.
    fn set(&self, value: T);
    /// Whether the value is not zero: any CPU may ask.
    fn is_nonzero(&self) -> bool;
    /// The value, for any CPU; `owner` is the CPU that writes it. The read itself costs nothing:
    /// its cost is part of the operation that sums the counters up.
    fn peek(&self, owner: CpuId) -> T;
}

/// A spin lock without data. [`crate::sync::SpinLock`] adds the data and the guards.
///
/// The lock itself does not touch the preemption count or the interrupt state: the guards do,
/// before they take it and after they let it go.
///
/// # Safety
/// From the return of `lock`, or of `try_lock` with `true`, to `unlock` no other call of them
/// returns so, on whatever CPU, and what was written before `unlock` is seen after the next: the
/// data of a [`SpinLock`](crate::sync::SpinLock) rests on it.
pub unsafe trait RawSpin {
    /// A free lock of `class`.
    fn new(class: LockClass) -> Self;
    /// Takes the lock; spins until it is free.
    fn lock(&self);
    /// Takes the lock if that needs no wait.
    fn try_lock(&self) -> bool;
    /// Lets the lock go.
    ///
    /// # Safety
    /// The caller holds the lock.
    unsafe fn unlock(&self);
    /// Returns whether the lock is held; a hint that may be stale on return.
    fn is_locked(&self) -> bool;
}

named! {
    /// What kind of lock a lock is: for lock order, for statistics.
    ///
    /// # Lock order
    /// This is the one statement of it. A CPU may wait for a lock only while every lock that it
    /// holds is of an earlier row, so it never holds two locks of one class. To try a lock is
    /// allowed in any order. `mmscale-sim` (`Rule::LockOrder`) and `mmscale-stepped` check every
    /// spin lock that is waited for.
    ///
    /// | class | lock | interrupts in tasks |
    /// |---|---|---|
    /// | `Hotplug`, `Mutex`, `Rwsem` | sleeping locks (1) | on |
    /// | `Osq` | tasks that spin for a sleeping lock | on |
    /// | `PageTable`, `Pmd`, `Pte` | page tables, upper levels first | on: a flush may wait |
    /// | `Swap` | a cluster of slots, or the list of clusters | on |
    /// | `Pcp` | a CPU's page cache | on |
    /// | `Zone` | a zone's free lists | off |
    /// | `Lruvec` | LRU lists of a group on a node (2) | off |
    /// | `Work`, `Timer`, `Rcu`, `WaitQueue` | queues | off |
    /// | `Other` | tables and lists, held for moments (3) | on |
    ///
    /// 1. Never waited for under a spin lock (checked by the simulator: `Rule::SleepWhileAtomic`).
    ///    Among them: `mmap_lock`, a VMA's lock, a folio's lock. No machine checks that order.
    /// 2. Never held together with a lock of class `Pcp`, although the ranks allow it.
    /// 3. The simulator lets them nest.
    ///
    /// The order of the variants is that of the ranks.
    pub enum LockClass {
        /// The hotplug lock (sleeping).
        Hotplug = "hotplug",
        /// Any other sleeping mutex.
        Mutex = "mutex",
        /// A reader-writer semaphore (sleeping).
        Rwsem = "rwsem",
        /// The line of tasks that spin for a sleeping lock whose owner runs.
        Osq = "osq",
        /// The two upper levels of an address space's page tables.
        PageTable = "page_table",
        /// A page table of the level that may map huge pages.
        Pmd = "pmd",
        /// A page table of the lowest level.
        Pte = "pte",
        /// A cluster of swap slots, or the list of clusters.
        Swap = "swap",
        /// A CPU's page cache.
        Pcp = "pcp",
        /// A zone's buddy allocator.
        Zone = "zone",
        /// The LRU lists of one memory group on one node. Never held together with a page cache's
        /// lock by one context; but an interrupt may want it that has come while its CPU holds one.
        Lruvec = "lruvec",
        /// A work queue of one CPU.
        Work = "work",
        /// A timer base of one CPU.
        Timer = "timer",
        /// Grace-period state.
        Rcu = "rcu",
        /// The state of a sleeping lock or a wait queue.
        WaitQueue = "wait_queue",
        /// The table of processes: `tasklist_lock` of Linux and the lock of its process numbers.
        Tasklist = "tasklist",
        /// A lock of a test or of a program on the machine.
        Other = "other",
    }
}
