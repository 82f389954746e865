//! Atomics over `Cell`: one host thread needs no more.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use mmscale_arch::{Atomic, CpuId, OwnedCounter, OwnedValue};

/// An integer in a cell.
pub struct SteppedAtomic<T>(Cell<T>);

/// A counter in a cell.
pub struct SteppedOwned<T>(Cell<T>);

macro_rules! atomic {
    ($($int:ty)*) => {$(
        impl Atomic<$int> for SteppedAtomic<$int> {
            fn new(value: $int) -> Self {
                Self(Cell::new(value))
            }
            #[inline]
            fn load(&self, _: Ordering) -> $int {
                self.0.get()
            }
            #[inline]
            fn store(&self, value: $int, _: Ordering) {
                self.0.set(value);
            }
            #[inline]
            fn swap(&self, value: $int, _: Ordering) -> $int {
                self.0.replace(value)
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                _: Ordering,
                _: Ordering,
            ) -> Result<$int, $int> {
                let found = self.0.get();
                if found == current {
                    self.0.set(new);
                    Ok(found)
                } else {
                    Err(found)
                }
            }
            #[inline]
            fn fetch_add(&self, value: $int, _: Ordering) -> $int {
                self.0.replace(self.0.get().wrapping_add(value))
            }
            #[inline]
            fn fetch_sub(&self, value: $int, _: Ordering) -> $int {
                self.0.replace(self.0.get().wrapping_sub(value))
            }
            #[inline]
            fn fetch_or(&self, value: $int, _: Ordering) -> $int {
                self.0.replace(self.0.get() | value)
            }
            #[inline]
            fn fetch_and(&self, value: $int, _: Ordering) -> $int {
                self.0.replace(self.0.get() & value)
            }
        }
    )*};
}

atomic!(u8 u32 u64 i64);

impl OwnedCounter<i8> for SteppedOwned<i8> {
    fn zero() -> Self {
        Self(Cell::new(0))
    }
    #[inline]
    fn get(&self) -> i8 {
        self.0.get()
    }
    #[inline]
    fn set(&self, value: i8) {
        self.0.set(value);
    }
    #[inline]
    fn is_nonzero(&self) -> bool {
        self.0.get() != 0
    }
    #[inline]
    fn peek(&self, _: CpuId) -> i8 {
        self.0.get()
    }
}

impl OwnedValue<i64> for SteppedOwned<i64> {
    fn zero() -> Self {
        Self(Cell::new(0))
    }
    #[inline]
    fn get(&self) -> i64 {
        self.0.get()
    }
    #[inline]
    fn set(&self, value: i64) {
        self.0.set(value);
    }
    #[inline]
    fn peek(&self, _: CpuId) -> i64 {
        self.0.get()
    }
}
