//! A spin lock on one byte.

use crate::ring::wait_until;
use mmscale_mm::arch::{LockClass, RawSpin};
use std::sync::atomic::{AtomicBool, Ordering};

/// Taken by an exchange, watched by loads; not fair. Long waits give the processor away: its
/// holder may need it.
pub(crate) struct HostSpin(AtomicBool);

impl RawSpin for HostSpin {
    fn new(_: LockClass) -> Self {
        Self(AtomicBool::new(false))
    }
    #[inline]
    fn lock(&self) {
        while !self.try_lock() {
            wait_until(|| !self.is_locked());
        }
    }
    #[inline]
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }
    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
