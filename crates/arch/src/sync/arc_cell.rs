//! A shared reference that can be replaced.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// An `Arc` that is replaced rarely, such as the address space of a process at exec.
///
/// It is no part of the machine: an access takes no time and no turn. So it stands for a lock that
/// is rarely contended, and is held for a few host instructions only.
pub struct ArcCell<T> {
    busy: AtomicBool,
    value: UnsafeCell<Arc<T>>,
}

// SAFETY: it owns a reference, as an `Arc` does.
unsafe impl<T: Send + Sync> Send for ArcCell<T> {}
// SAFETY: `value` is accessed only while `busy` is set, by the thread that has set it.
unsafe impl<T: Send + Sync> Sync for ArcCell<T> {}

impl<T> ArcCell<T> {
    /// Creates a cell with a reference in it.
    pub const fn new(value: Arc<T>) -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
    /// Returns the reference.
    pub fn get(&self) -> Arc<T> {
        self.with(|value| Arc::clone(value))
    }
    /// Replaces the reference, and returns the one before.
    pub fn replace(&self, value: Arc<T>) -> Arc<T> {
        self.with(|held| core::mem::replace(held, value))
    }
    /// Runs `access`, which cannot panic.
    fn with<R>(&self, access: impl FnOnce(&mut Arc<T>) -> R) -> R {
        // Pairs with the store below.
        while self.busy.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            core::hint::spin_loop();
        }
        // SAFETY: no other thread is between the exchange and the store.
        let result = access(unsafe { &mut *self.value.get() });
        // Pairs with the exchange of the next caller, which sees the reference.
        self.busy.store(false, Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_until_it_is_replaced_and_no_count_is_lost() {
        let (first, second) = (Arc::new(1), Arc::new(2));
        let cell = ArcCell::new(Arc::clone(&first));
        let read = cell.get();
        assert!(Arc::ptr_eq(&read, &first) && Arc::strong_count(&first) == 3);
        assert!(Arc::ptr_eq(&cell.replace(Arc::clone(&second)), &first));
        assert_eq!((*read, *cell.get()), (1, 2));
        drop((read, cell));
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
    }
}
