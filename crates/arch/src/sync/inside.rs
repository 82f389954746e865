//! What a task runs in: an address space, a process.

use alloc::sync::Arc;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

/// The `T` that one task runs in, or none. Only that task uses it, hence `Relaxed`.
pub struct Inside<T>(AtomicPtr<T>);

/// Ends it, on unwinding too.
struct Left<'a, T>(&'a AtomicPtr<T>);

impl<T> Drop for Left<'_, T> {
    fn drop(&mut self) {
        self.0.store(null_mut(), Relaxed);
    }
}

impl<T> Inside<T> {
    /// In nothing.
    pub const fn nothing() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }
    /// The calling task is in `value` for as long as `run` runs, even if it panics.
    pub fn enter<R>(&self, value: &Arc<T>, run: impl FnOnce() -> R) -> R {
        self.0.store(Arc::as_ptr(value).cast_mut(), Relaxed);
        let _left = Left(&self.0);
        run()
    }
    /// What the calling task is in.
    ///
    /// # Safety
    /// The caller is the task that calls [`Inside::enter`], and uses the reference only within
    /// `run`.
    #[inline]
    pub unsafe fn get(&self) -> Option<&T> {
        // SAFETY: not null only while `enter` runs, whose caller keeps the `Arc`; the caller sees
        // to the rest.
        unsafe { self.0.load(Relaxed).as_ref() }
    }
}
