//! The processor's atomics.

use mmscale_mm::arch::{Atomic, OwnedCounter};
use std::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// One of `core`'s atomics.
pub(crate) struct HostAtomic<T>(T);

/// A counter that its CPU writes: plain loads and stores.
pub(crate) struct HostOwned(AtomicI8);

macro_rules! atomic {
    ($($atomic:ident $int:ty),*) => {$(
        impl Atomic<$int> for HostAtomic<$atomic> {
            fn new(value: $int) -> Self {
                Self($atomic::new(value))
            }
            #[inline]
            fn load(&self, order: Ordering) -> $int {
                self.0.load(order)
            }
            #[inline]
            fn store(&self, value: $int, order: Ordering) {
                self.0.store(value, order);
            }
            #[inline]
            fn swap(&self, value: $int, order: Ordering) -> $int {
                self.0.swap(value, order)
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.0.compare_exchange(current, new, success, failure)
            }
            #[inline]
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.0.fetch_add(value, order)
            }
            #[inline]
            fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                self.0.fetch_sub(value, order)
            }
            #[inline]
            fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                self.0.fetch_or(value, order)
            }
            #[inline]
            fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                self.0.fetch_and(value, order)
            }
        }
    )*};
}

atomic!(AtomicU8 u8, AtomicU32 u32, AtomicU64 u64, AtomicI64 i64);

impl OwnedCounter<i8> for HostOwned {
    fn zero() -> Self {
        Self(AtomicI8::new(0))
    }
    #[inline]
    fn get(&self) -> i8 {
        self.0.load(Ordering::Relaxed)
    }
    #[inline]
    fn set(&self, value: i8) {
        self.0.store(value, Ordering::Relaxed);
    }
    #[inline]
    fn is_nonzero(&self) -> bool {
        self.get() != 0
    }
}
