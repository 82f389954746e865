//! Atomics: shuttle's, with interrupts let in before each operation.
//!
//! Another CPU may go on before each operation. That is enough where everything that CPUs share is
//! such an atomic. What a lock protects is not: so after the operation by which mm's own locks are
//! let go (`fetch_and`) another CPU may go on too, before the caller does anything else.

use crate::world;
use core::sync::atomic::Ordering;
use mmscale_arch::{Atomic, CpuId, OwnedCounter};
use shuttle::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// An integer type that shuttle has an atomic of.
pub trait Integer: Copy {
    /// Shuttle's atomic of this type.
    type Shuttle;
}

/// An atomic integer.
pub struct ModelAtomic<T: Integer>(T::Shuttle);

macro_rules! atomic {
    ($($int:ty => $shuttle:ty),*) => {$(
        impl Integer for $int {
            type Shuttle = $shuttle;
        }
        impl Atomic<$int> for ModelAtomic<$int> {
            fn new(value: $int) -> Self {
                Self(<$shuttle>::new(value))
            }
            fn load(&self, order: Ordering) -> $int {
                world::deliver();
                self.0.load(order)
            }
            fn store(&self, value: $int, order: Ordering) {
                world::deliver();
                self.0.store(value, order);
            }
            fn swap(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                self.0.swap(value, order)
            }
            fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                world::deliver();
                self.0.compare_exchange(current, new, success, failure)
            }
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                self.0.fetch_add(value, order)
            }
            fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                self.0.fetch_sub(value, order)
            }
            fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                self.0.fetch_or(value, order)
            }
            fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                let before = self.0.fetch_and(value, order);
                self.0.load(Ordering::Relaxed);
                before
            }
        }
    )*};
}

atomic!(u8 => AtomicU8, u32 => AtomicU32, u64 => AtomicU64, i64 => AtomicI64);

/// A byte that its CPU counts in.
pub struct ModelOwned(AtomicI8);

impl OwnedCounter<i8> for ModelOwned {
    fn zero() -> Self {
        Self(AtomicI8::new(0))
    }
    fn get(&self) -> i8 {
        self.0.load(Ordering::SeqCst)
    }
    fn set(&self, value: i8) {
        self.0.store(value, Ordering::SeqCst);
    }
    fn is_nonzero(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
    fn peek(&self, _: CpuId) -> i8 {
        self.0.load(Ordering::SeqCst)
    }
}
