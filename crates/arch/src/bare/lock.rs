//! A spin lock on one byte.

use crate::{Atomic, Cpu, LockClass, RawSpin};
use core::sync::atomic::Ordering;

/// A test-and-test-and-set lock: an exchange takes it, waiters poll with loads and
/// [`Cpu::relax`]. It is not fair: a hypervisor or another thread may preempt a waiter, and a
/// queue would make all later waiters wait for that one.
pub struct BareSpin<A: Cpu> {
    taken: A::AtomicU8,
}

// SAFETY: an exchange finds the byte clear once between two stores that clear it; `Acquire` in
// `try_lock` pairs with `Release` in `unlock`.
unsafe impl<A: Cpu> RawSpin for BareSpin<A> {
    fn new(_: LockClass) -> Self {
        Self { taken: A::AtomicU8::new(0) }
    }
    #[inline]
    fn lock(&self) {
        while !self.try_lock() {
            while self.is_locked() {
                A::relax();
            }
        }
    }
    #[inline]
    fn try_lock(&self) -> bool {
        // Pairs with the store in `unlock`: this thread sees what the last holder wrote.
        self.taken.swap(1, Ordering::Acquire) == 0
    }
    #[inline]
    unsafe fn unlock(&self) {
        // Pairs with the exchange in `try_lock`.
        self.taken.store(0, Ordering::Release);
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.taken.load(Ordering::Relaxed) != 0
    }
}
