//! The spin lock with its data.

use super::{IrqGuard, NoPreempt, PreemptGuard};
use crate::{Cpu, LockClass, LockInstance, RawSpin};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// A spin lock around a `T`.
///
/// Data under a lock is never read without it, except through atomics: the exactness of the
/// simulator depends on this.
pub struct SpinLock<A: Cpu, T> {
    raw: A::Spin,
    data: UnsafeCell<T>,
}

// SAFETY: only the holder of the raw lock accesses the data, and there is one holder at a time.
unsafe impl<A: Cpu, T: Send> Sync for SpinLock<A, T> where A::Spin: Sync {}

impl<A: Cpu, T> SpinLock<A, T> {
    /// A free lock of `class` around `data`.
    pub fn new(class: LockClass, data: T) -> Self {
        Self { raw: A::Spin::new(class), data: UnsafeCell::new(data) }
    }
    /// A free lock around `data`: `instance` of `class`.
    pub fn named(class: LockClass, instance: LockInstance, data: T) -> Self {
        Self { raw: A::Spin::named(class, instance), data: UnsafeCell::new(data) }
    }
    /// Takes the lock, with preemption off and interrupts as they are.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, A, T, PreemptGuard<A>> {
        let context = PreemptGuard::new();
        self.raw.lock();
        SpinGuard { lock: self, _context: context, not_send: PhantomData }
    }
    /// Takes the lock with interrupts off.
    #[inline]
    pub fn lock_irqsave(&self) -> SpinGuard<'_, A, T, IrqGuard<A>> {
        let context = IrqGuard::new();
        self.raw.lock();
        SpinGuard { lock: self, _context: context, not_send: PhantomData }
    }
    /// Takes the lock if it is free now; preemption off, interrupts as they are.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, A, T, PreemptGuard<A>>> {
        self.try_lock_with(PreemptGuard::new())
    }
    /// Takes the lock if it is free now, under a guard that the caller has already. The guard is
    /// dropped after the lock is released, or immediately if the lock is taken.
    #[inline]
    pub fn try_lock_with<C: NoPreempt<A>>(&self, context: C) -> Option<SpinGuard<'_, A, T, C>> {
        let taken = self.raw.try_lock();
        taken.then(|| SpinGuard { lock: self, _context: context, not_send: PhantomData })
    }
    /// Takes the lock with interrupts off if it is free now.
    #[inline]
    pub fn try_lock_irqsave(&self) -> Option<SpinGuard<'_, A, T, IrqGuard<A>>> {
        let context = IrqGuard::new();
        let taken = self.raw.try_lock();
        taken.then(|| SpinGuard { lock: self, _context: context, not_send: PhantomData })
    }
    /// Returns the data without locking: `&mut self` excludes other holders.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

/// The lock is held until this is dropped. `C` is the guard over preemption and interrupts, which
/// is dropped after the lock is released.
#[must_use]
pub struct SpinGuard<'a, A: Cpu, T, C> {
    lock: &'a SpinLock<A, T>,
    _context: C,
    not_send: PhantomData<*const ()>,
}

impl<A: Cpu, T, C> Deref for SpinGuard<'_, A, T, C> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this CPU holds the lock.
        unsafe { &*self.lock.data.get() }
    }
}

impl<A: Cpu, T, C> DerefMut for SpinGuard<'_, A, T, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so this CPU holds the lock; `&mut self` makes it the only use.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<A: Cpu, T, C> Drop for SpinGuard<'_, A, T, C> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard exists, so this CPU holds the lock; the guard is not used again.
        unsafe { self.lock.raw.unlock() };
    }
}

// SAFETY: the context guard keeps preemption off while the lock is held.
unsafe impl<A: Cpu, T, C: NoPreempt<A>> NoPreempt<A> for SpinGuard<'_, A, T, C> {}
