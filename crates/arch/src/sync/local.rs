//! Data of one CPU, guarded against the interrupts of that same CPU.

use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// A `T` that only one CPU changes, in at most one context at a time: a task, or an interrupt that
/// came while the task did not use it.
///
/// It is not a lock between CPUs. Entering costs a load and a store. An interrupt that finds the
/// data in use has interrupted its user, and must do without the data. The fields of `T` are
/// relaxed atomics, which their CPU reads and writes like plain variables. So other CPUs may read
/// them ([`Local::peek`]); the values are exact only while their CPU does not change them.
pub struct Local<T> {
    used: AtomicBool,
    data: T,
}

impl<T> Local<T> {
    /// Wraps data that is not in use.
    pub const fn new(data: T) -> Self {
        Self { used: AtomicBool::new(false), data }
    }
    /// Returns the data, or `None` if the interrupted context uses it. The caller runs on the CPU
    /// of the data, or that CPU has stopped; it does not migrate while it has the guard.
    #[inline]
    pub fn enter(&self) -> Option<LocalGuard<'_, T>> {
        if self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.used.store(true, Ordering::Relaxed);
        // An interrupt on this CPU must see `used` set before it sees changes to the data. It runs
        // on the same CPU, so a compiler fence is enough. The fence in `drop` is its counterpart.
        compiler_fence(Ordering::SeqCst);
        Some(LocalGuard { local: self })
    }
    /// Returns the data for reading, on any CPU.
    pub fn peek(&self) -> &T {
        &self.data
    }
}

/// The data is in use until this is dropped.
#[must_use]
pub struct LocalGuard<'a, T> {
    local: &'a Local<T>,
}

impl<T> core::ops::Deref for LocalGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.local.data
    }
}

impl<T> Drop for LocalGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Counterpart of the fence in `enter`: an interrupt that finds `used` clear finds the data
        // complete.
        compiler_fence(Ordering::SeqCst);
        self.local.used.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn an_interrupt_of_its_user_cannot_enter() {
        let local = Local::new(AtomicU32::new(1));
        let first = local.enter().expect("the data is not in use");
        assert!(local.enter().is_none());
        first.store(2, Ordering::Relaxed);
        drop(first);
        assert_eq!(local.enter().map(|guard| guard.load(Ordering::Relaxed)), Some(2));
    }
}
