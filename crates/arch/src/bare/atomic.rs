//! The processor's atomics.

use crate::{Atomic, CpuId, OwnedCounter, OwnedValue};
use core::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

// Inherent functions take precedence over the trait's, so none of these calls itself.
macro_rules! atomic {
    ($($atomic:ident $int:ty),*) => {$(
        impl Atomic<$int> for $atomic {
            #[inline]
            fn new(value: $int) -> Self {
                Self::new(value)
            }
            #[inline]
            fn load(&self, order: Ordering) -> $int {
                self.load(order)
            }
            #[inline]
            fn store(&self, value: $int, order: Ordering) {
                self.store(value, order);
            }
            #[inline]
            fn swap(&self, value: $int, order: Ordering) -> $int {
                self.swap(value, order)
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline]
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.fetch_add(value, order)
            }
            #[inline]
            fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                self.fetch_sub(value, order)
            }
            #[inline]
            fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                self.fetch_or(value, order)
            }
            #[inline]
            fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                self.fetch_and(value, order)
            }
        }
    )*};
}

atomic!(AtomicU8 u8, AtomicU32 u32, AtomicU64 u64, AtomicI64 i64);

/// Plain loads and stores: one CPU writes.
impl OwnedCounter<i8> for AtomicI8 {
    #[inline]
    fn zero() -> Self {
        Self::new(0)
    }
    #[inline]
    fn get(&self) -> i8 {
        self.load(Ordering::Relaxed)
    }
    #[inline]
    fn set(&self, value: i8) {
        self.store(value, Ordering::Relaxed);
    }
    #[inline]
    fn is_nonzero(&self) -> bool {
        self.get() != 0
    }
    #[inline]
    fn peek(&self, _: CpuId) -> i8 {
        self.get()
    }
}

/// Plain loads and stores: one CPU writes.
impl OwnedValue<i64> for AtomicI64 {
    #[inline]
    fn zero() -> Self {
        Self::new(0)
    }
    #[inline]
    fn get(&self) -> i64 {
        self.load(Ordering::Relaxed)
    }
    #[inline]
    fn set(&self, value: i64) {
        self.store(value, Ordering::Relaxed);
    }
    #[inline]
    fn peek(&self, _: CpuId) -> i64 {
        self.load(Ordering::Relaxed)
    }
}
