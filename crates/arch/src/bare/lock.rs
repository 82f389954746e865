//! A spin lock on one byte.

use crate::{Cpu, LockClass, RawSpin};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};

/// A test-and-test-and-set lock: an exchange takes it, waiters poll with loads and
/// [`Cpu::relax`]. It is not fair: a hypervisor or another thread may preempt a waiter, and a
/// queue would make all later waiters wait for that one.
pub struct BareSpin<A> {
    taken: AtomicBool,
    arch: PhantomData<fn() -> A>,
}

// SAFETY: an exchange finds the byte clear once between two stores that clear it; `Acquire` in
// `try_lock` pairs with `Release` in `unlock`.
unsafe impl<A: Cpu> RawSpin for BareSpin<A> {
    fn new(_: LockClass) -> Self {
        Self { taken: AtomicBool::new(false), arch: PhantomData }
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
        !self.taken.swap(true, Ordering::Acquire)
    }
    #[inline]
    unsafe fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }
}
