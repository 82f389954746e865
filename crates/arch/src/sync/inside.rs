//! The current value of a task, such as its address space or its process.

use alloc::sync::Arc;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

/// The `T` that one task runs in, or none. Only that task accesses it, so `Relaxed` is enough.
pub struct Inside<T>(AtomicPtr<T>);

/// Clears the value when dropped, on unwinding too.
struct Left<'a, T>(&'a Inside<T>);

impl<T> Drop for Left<'_, T> {
    fn drop(&mut self) {
        drop(self.0.swap(None));
    }
}

impl<T> Inside<T> {
    /// No value.
    pub const fn nothing() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }
    /// Exchanges the value. The cell owns a reference to it.
    fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let new = value.map_or(null_mut(), |value| Arc::into_raw(value).cast_mut());
        let old = self.0.swap(new, Relaxed);
        // SAFETY: a pointer that is not null was made from an `Arc` here, and is removed once.
        (!old.is_null()).then(|| unsafe { Arc::from_raw(old) })
    }
    /// Runs `run` with `value` as the calling task's value; clears it afterwards, even on a panic.
    pub fn enter<R>(&self, value: &Arc<T>, run: impl FnOnce() -> R) -> R {
        self.swap(Some(Arc::clone(value)));
        let _left = Left(self);
        run()
    }
    /// Replaces the value of the calling task, and returns the one before.
    ///
    /// # Safety
    /// The caller is within [`Inside::enter`], and uses no reference from [`Inside::get`] that it
    /// had before, unless it holds the returned `Arc`.
    pub unsafe fn replace(&self, value: &Arc<T>) -> Option<Arc<T>> {
        self.swap(Some(Arc::clone(value)))
    }
    /// Returns the calling task's value.
    ///
    /// # Safety
    /// The caller is the task that calls [`Inside::enter`], and uses the reference only within
    /// `run`, and until the value is replaced.
    #[inline]
    pub unsafe fn get(&self) -> Option<&T> {
        // SAFETY: the cell owns a reference while the pointer is not null, which it is only while
        // `enter` runs; the caller of `get` guarantees the rest.
        unsafe { self.0.load(Relaxed).as_ref() }
    }
}
