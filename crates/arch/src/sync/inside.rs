//! The current value of a task, such as its address space or its process.

use alloc::sync::Arc;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

/// The `T` that one task runs in, or none. Only that task accesses it, so `Relaxed` is enough.
pub struct Inside<T>(AtomicPtr<T>);

/// Clears the value when dropped, on unwinding too.
struct Left<'a, T>(&'a AtomicPtr<T>);

impl<T> Drop for Left<'_, T> {
    fn drop(&mut self) {
        self.0.store(null_mut(), Relaxed);
    }
}

impl<T> Inside<T> {
    /// No value.
    pub const fn nothing() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }
    /// Runs `run` with `value` as the calling task's value; clears it afterwards, even on a panic.
    pub fn enter<R>(&self, value: &Arc<T>, run: impl FnOnce() -> R) -> R {
        self.0.store(Arc::as_ptr(value).cast_mut(), Relaxed);
        let _left = Left(&self.0);
        run()
    }
    /// Returns the calling task's value.
    ///
    /// # Safety
    /// The caller is the task that calls [`Inside::enter`], and uses the reference only within
    /// `run`.
    #[inline]
    pub unsafe fn get(&self) -> Option<&T> {
        // SAFETY: the pointer is not null only while `enter` runs, whose caller holds the `Arc`;
        // the caller of `get` guarantees the rest.
        unsafe { self.0.load(Relaxed).as_ref() }
    }
}
