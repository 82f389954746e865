//! A lock of this kernel's own data, with interrupts off.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use x86_64::instructions::interrupts::without_interrupts;

/// A value that one processor uses at a time.
pub(crate) struct Locked<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lets one processor at a time use the value.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// A free lock around `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
    /// Calls `run` with the value, which it must not lock again.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        without_interrupts(|| {
            // Pairs with the store below.
            while self.taken.swap(true, Ordering::Acquire) {
                core::hint::spin_loop();
            }
            // SAFETY: the lock is held.
            let result = run(unsafe { &mut *self.value.get() });
            // Pairs with the exchange above.
            self.taken.store(false, Ordering::Release);
            result
        })
    }
}
