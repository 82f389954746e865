//! A spin lock on one byte.

use crate::{Cpu, LockClass, RawSpin};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};

/// Taken by an exchange, watched by loads, each wait a turn of [`Cpu::relax`]. Not fair: it must
/// also do where a CPU can lose the processor under it to a hypervisor or another thread, and a
/// queue would wait for each that has.
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
