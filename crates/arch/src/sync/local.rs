//! Data of one CPU, guarded against the interrupts of that same CPU.

use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// A `T` that only one CPU changes, and at most one context on it: a task, or an interrupt that
/// came while the task did not use it.
///
/// It is no lock between CPUs and costs a store to take: whoever finds it in use is an interrupt
/// on top of whoever uses it, and must do without. The fields of `T` are relaxed atomics, which
/// their CPU reads and writes like any variable; so others may look at them ([`Local::peek`]),
/// which tells the truth only while their CPU does nothing.
pub struct Local<T> {
    used: AtomicBool,
    data: T,
}

impl<T> Local<T> {
    /// Not in use.
    pub const fn new(data: T) -> Self {
        Self { used: AtomicBool::new(false), data }
    }
    /// The data, unless the context that was interrupted uses it. Only on the CPU that it belongs
    /// to, or for a CPU that has stopped; the caller stays where it is meanwhile.
    #[inline]
    pub fn enter(&self) -> Option<LocalGuard<'_, T>> {
        if self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.used.store(true, Ordering::Relaxed);
        // An interrupt must not see changes to the data before it sees that it is in use.
        compiler_fence(Ordering::SeqCst);
        Some(LocalGuard { local: self })
    }
    /// The data, to look at.
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
        compiler_fence(Ordering::SeqCst);
        self.local.used.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn whoever_interrupts_its_user_is_told_so() {
        let local = Local::new(AtomicU32::new(1));
        let first = local.enter().expect("nobody uses it");
        assert!(local.enter().is_none());
        first.store(2, Ordering::Relaxed);
        drop(first);
        assert_eq!(local.enter().map(|guard| guard.load(Ordering::Relaxed)), Some(2));
    }
}
