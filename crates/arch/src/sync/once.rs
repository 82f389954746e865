//! A value that is set once.

use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// An empty cell in which a value can be put once; the value stays until the cell is dropped.
pub struct Once<T>(AtomicPtr<T>);

// SAFETY: the pointer owns the value that it points to, as a box does.
unsafe impl<T: Send> Send for Once<T> {}
// SAFETY: shared use gives `&T` only. One thread may drop a value that another has put there, so
// `T` is `Send`.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// An empty cell.
    pub const fn nothing() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }
    /// Returns the value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Pairs with the release in `put`.
        let value = self.0.load(Ordering::Acquire);
        // SAFETY: a pointer that is not null points to the value, which stays until `self` is
        // dropped.
        unsafe { value.as_ref() }
    }
    /// Puts a value there. Panics if there is one already.
    pub fn put(&self, value: T) -> &T {
        let new = Box::into_raw(Box::new(value));
        // Pairs with the `Acquire` in `get`: a reader of the pointer sees the value.
        let before = self.0.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        if before.is_err() {
            // SAFETY: it was just made from a box, and no other thread has seen it.
            drop(unsafe { Box::from_raw(new) });
            panic!("a value that is made once is made twice");
        }
        // SAFETY: it stays until `self` is dropped.
        unsafe { &*new }
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        let value = *self.0.get_mut();
        if !value.is_null() {
            // SAFETY: it was made from a box, and no other reference is left.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn a_value_stays_where_it_was_put_and_goes_with_its_holder() {
        let (held, counted) = (Once::nothing(), Arc::new(7));
        assert!(held.get().is_none());
        let first: *const _ = held.put(Arc::clone(&counted));
        assert!(core::ptr::eq(first, held.get().unwrap()) && Arc::strong_count(&counted) == 2);
        drop(held);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    #[should_panic(expected = "made twice")]
    fn a_second_value_is_refused() {
        let held = Once::nothing();
        held.put(1);
        held.put(2);
    }
}
