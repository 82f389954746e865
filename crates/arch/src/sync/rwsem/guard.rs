//! The guards of a semaphore's holders.

use super::RwSem;
use crate::{LockHold, Machine};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// Held for reading until this is dropped.
#[must_use]
pub struct ReadGuard<'a, A: Machine, T> {
    sem: &'a RwSem<A, T>,
    hold: LockHold,
    not_send: PhantomData<*const ()>,
}

impl<'a, A: Machine, T> ReadGuard<'a, A, T> {
    /// For a task that has taken `sem` for reading, and has waited since the given time.
    pub(super) fn new(sem: &'a RwSem<A, T>, since: Option<u64>) -> Self {
        Self { sem, hold: A::lock_taken(sem.class, since), not_send: PhantomData }
    }
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
        A::lock_released(self.hold);
        self.sem.read_done();
    }
}

/// Held for writing until this is dropped.
#[must_use]
pub struct WriteGuard<'a, A: Machine, T> {
    sem: &'a RwSem<A, T>,
    hold: LockHold,
    not_send: PhantomData<*const ()>,
}

impl<'a, A: Machine, T> WriteGuard<'a, A, T> {
    /// For a task that has taken `sem` for writing, and has waited since the given time.
    pub(super) fn new(sem: &'a RwSem<A, T>, since: Option<u64>) -> Self {
        Self { sem, hold: A::lock_taken(sem.class, since), not_send: PhantomData }
    }
    /// Converts the write lock to a read lock; no writer can take it in between
    /// (`downgrade_write`). In statistics both are one hold.
    pub fn downgrade(self) -> ReadGuard<'a, A, T> {
        let Self { sem, hold, not_send } = self;
        core::mem::forget(self);
        sem.write_to_read();
        ReadGuard { sem, hold, not_send }
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
        A::lock_released(self.hold);
        self.sem.write_done();
    }
}
