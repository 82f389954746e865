//! Atomics: those of `core`.

use core::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use mmscale_arch::{Atomic, CpuId, OwnedCounter, OwnedValue};

macro_rules! atomic {
    ($(#[$doc:meta])* $name:ident, $inner:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name($inner);

        impl Atomic<$int> for $name {
            #[inline]
            fn new(value: $int) -> Self {
                Self($inner::new(value))
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
    };
}

atomic!(
    /// 8 bits.
    ThreadsU8,
    AtomicU8,
    u8
);
atomic!(
    /// 32 bits.
    ThreadsU32,
    AtomicU32,
    u32
);
atomic!(
    /// 64 bits.
    ThreadsU64,
    AtomicU64,
    u64
);
atomic!(
    /// 64 bits with a sign.
    ThreadsI64,
    AtomicI64,
    i64
);

/// A byte that its CPU counts in. Relaxed: statistics only.
#[derive(Debug)]
pub struct ThreadsOwnedI8(AtomicI8);

impl OwnedCounter<i8> for ThreadsOwnedI8 {
    #[inline]
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
    #[inline]
    fn peek(&self, _: CpuId) -> i8 {
        self.get()
    }
}

/// A number that its CPU changes. Relaxed: statistics only.
#[derive(Debug)]
pub struct ThreadsOwnedI64(AtomicI64);

impl OwnedValue<i64> for ThreadsOwnedI64 {
    #[inline]
    fn zero() -> Self {
        Self(AtomicI64::new(0))
    }
    #[inline]
    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
    #[inline]
    fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }
    #[inline]
    fn peek(&self, _: CpuId) -> i64 {
        self.get()
    }
}
