//! The guards of a semaphore's holders.

use super::RwSem;
use crate::Machine;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// Held for reading until this is dropped.
#[must_use]
pub struct ReadGuard<'a, A: Machine, T> {
    sem: &'a RwSem<A, T>,
    not_send: PhantomData<*const ()>,
}

impl<'a, A: Machine, T> ReadGuard<'a, A, T> {
    /// For a task that has taken `sem` for reading.
    pub(super) fn new(sem: &'a RwSem<A, T>) -> Self {
        Self { sem, not_send: PhantomData }
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
    /// For a task that has taken `sem` for writing.
    pub(super) fn new(sem: &'a RwSem<A, T>) -> Self {
        Self { sem, not_send: PhantomData }
    }
    /// Converts the write lock to a read lock; no writer can take it in between
    /// (`downgrade_write`).
    pub fn downgrade(self) -> ReadGuard<'a, A, T> {
        let sem = self.sem;
        core::mem::forget(self);
        sem.write_to_read();
        ReadGuard::new(sem)
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
