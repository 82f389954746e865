//! Atomics and raw locks, as a machine provides them.
//!
//! On real hardware these are `core::sync::atomic` and a spin lock. In the simulator an operation
//! waits until its CPU is the earliest in virtual time, and costs what moving the line costs. In
//! the model checker it is a scheduling point.

use super::{CpuId, LineName, LockClass, LockInstance};
use core::sync::atomic::Ordering;

/// An atomic integer. The orderings mean what they mean in `core`.
pub trait Atomic<T: Copy> {
    /// A new atomic that holds `value`; it is its own cache line as far as costs go.
    fn new(value: T) -> Self;
    /// Like [`Atomic::new`], for machines whose statistics name cache lines.
    #[inline]
    fn named(value: T, _name: impl Into<LineName>) -> Self
    where
        Self: Sized,
    {
        Self::new(value)
    }
    /// Reads the value.
    fn load(&self, order: Ordering) -> T;
    /// Writes the value.
    fn store(&self, value: T, order: Ordering);
    /// Writes `value`; returns the previous value.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if the value is `current`. Returns the previous value: `Ok` if `new` was
    /// written.
    fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;
    /// Adds with wrap-around; returns the previous value.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Subtracts with wrap-around; returns the previous value.
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    /// Computes bitwise or; returns the previous value.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    /// Computes bitwise and; returns the previous value.
    fn fetch_and(&self, value: T, order: Ordering) -> T;

    /// Reads a word that is usually in this CPU's cache, as part of an operation that is charged
    /// separately. In virtual time the read costs something only if the line has to be fetched.
    #[inline]
    fn load_uncharged(&self, order: Ordering) -> T {
        self.load(order)
    }
    /// Writes a word that is usually in this CPU's cache, as part of an operation that is charged
    /// separately. See [`Atomic::load_uncharged`].
    #[inline]
    fn store_uncharged(&self, value: T, order: Ordering) {
        self.store(value, order);
    }
    /// Replaces the value by `change(value)`, unless that is `None`; retries if another CPU has
    /// written in between. Returns the previous value: `Ok` if it was replaced. In virtual time it
    /// is one step, so `change` must not call the machine.
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
    /// Reads the value. Only for the owning CPU, or for the CPU that took over a dead CPU's data.
    fn get(&self) -> T;
    /// Sets the value. Only for the owner.
    fn set(&self, value: T);
    /// Whether the value is not zero. Any CPU may call it.
    fn is_nonzero(&self) -> bool;
    /// Reads the value on any CPU; `owner` is the CPU that writes it. The read itself costs
    /// nothing: its cost is part of the operation that sums the counters.
    fn peek(&self, owner: CpuId) -> T;
}

/// A number that one CPU changes, often, and other CPUs read rarely: a statistic.
///
/// On hardware it is a relaxed atomic. No write waits for its turn in the simulator, as no CPU
/// waits for a value.
pub trait OwnedValue<T: Copy> {
    /// A new number, zero.
    fn zero() -> Self;
    /// Reads the number. Only for the owning CPU, or while no CPU changes it.
    fn get(&self) -> T;
    /// Sets the number. Only for the owner.
    fn set(&self, value: T);
    /// Reads the number on any CPU; `owner` is the CPU that changes it. The read itself costs
    /// nothing: its cost is part of the operation that sums the numbers.
    fn peek(&self, owner: CpuId) -> T;
}

/// A spin lock without data. [`crate::sync::SpinLock`] adds the data and the guards.
///
/// The lock itself does not touch the preemption count or the interrupt state: the guards do,
/// before they take the lock and after they release it.
///
/// # Safety
/// A CPU holds the lock from the return of `lock`, or of `try_lock` with `true`, until it calls
/// `unlock`. At most one CPU holds it at a time. Writes before `unlock` are visible to the next
/// holder. The data of a [`SpinLock`](crate::sync::SpinLock) depends on this.
pub unsafe trait RawSpin {
    /// A free lock of `class`.
    fn new(class: LockClass) -> Self;
    /// A free lock: `instance` of `class`, for machines whose statistics name single locks.
    fn named(class: LockClass, _instance: LockInstance) -> Self
    where
        Self: Sized,
    {
        Self::new(class)
    }
    /// Takes the lock; spins until it is free.
    fn lock(&self);
    /// Takes the lock if it is free; returns whether it did.
    fn try_lock(&self) -> bool;
    /// Releases the lock.
    ///
    /// # Safety
    /// The caller holds the lock.
    unsafe fn unlock(&self);
    /// Returns whether the lock is held; a hint that may be stale on return.
    fn is_locked(&self) -> bool;
}

/// Queue of the CPUs that spin for one sleeping lock (`osq_lock`), of class [`LockClass::Osq`].
///
/// The CPU at its head reads the sleeping lock; the others wait for their turn. A CPU that must
/// switch tasks leaves the queue. Preemption is off in all functions and in between.
///
/// At most one CPU is at the head, and its writes are visible to the next one. A sleeping lock does
/// not depend on either: it has a word of its own.
pub trait RawOsq {
    /// An empty queue.
    fn new() -> Self;
    /// Joins the queue and waits. Returns `true` at the head, and `false` if the CPU has left the
    /// queue because [`Machine::need_resched`](crate::Machine::need_resched).
    fn lock(&self) -> bool;
    /// Leaves the head of the queue to the next CPU.
    fn unlock(&self);
}
