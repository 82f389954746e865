//! Atomics: shuttle's, with interrupts allowed before each operation, and with the history of each
//! where memory is weak.
//!
//! Another CPU may run before each operation. That is enough where all data that CPUs share is such
//! an atomic. Data under a lock is not, so another CPU may also run after the operation that
//! releases one of mm's own locks (`fetch_and`), before the caller continues.
//!
//! Shuttle's atomic holds the last value; the memory ([`crate::memory`]) decides whether a load
//! returns it. A compare-and-exchange that would succeed on the last value does so.

use crate::memory::Id;
use crate::world::{self, on_weak};
use core::sync::atomic::Ordering;
use mmscale_arch::{Atomic, CpuId, OwnedCounter};
use shuttle::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// An integer type that shuttle has an atomic of.
pub trait Integer: Copy {
    /// Shuttle's atomic of this type.
    type Shuttle;
}

/// An atomic integer.
pub struct ModelAtomic<T: Integer> {
    last: T::Shuttle,
    id: Id,
}

/// Notes that this CPU has read `before` and written `after`.
fn modified(id: &Id, before: u64, after: u64, order: Ordering) {
    on_weak(|memory, cpu| memory.modify(cpu, id, before, after, order));
}

macro_rules! atomic {
    ($($int:ty => $shuttle:ty),*) => {$(
        impl Integer for $int {
            type Shuttle = $shuttle;
        }
        impl Atomic<$int> for ModelAtomic<$int> {
            fn new(value: $int) -> Self {
                Self { last: <$shuttle>::new(value), id: Id::default() }
            }
            fn load(&self, order: Ordering) -> $int {
                world::deliver();
                let last = self.last.load(order) as u64;
                let read = on_weak(|memory, cpu| memory.load(cpu, &self.id, last, order));
                read.unwrap_or(last) as $int
            }
            fn store(&self, value: $int, order: Ordering) {
                world::deliver();
                let before = self.last.swap(value, order) as u64;
                on_weak(|memory, cpu| memory.store(cpu, &self.id, before, value as u64, order));
            }
            fn swap(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                let before = self.last.swap(value, order);
                modified(&self.id, before as u64, value as u64, order);
                before
            }
            fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                world::deliver();
                match self.last.compare_exchange(current, new, success, failure) {
                    Ok(before) => {
                        modified(&self.id, before as u64, new as u64, success);
                        Ok(before)
                    }
                    Err(last) => {
                        let (last, sought) = (last as u64, current as u64);
                        let read = on_weak(|memory, cpu| {
                            memory.fail(cpu, &self.id, last, sought, failure)
                        });
                        Err(read.unwrap_or(last) as $int)
                    }
                }
            }
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                let before = self.last.fetch_add(value, order);
                modified(&self.id, before as u64, before.wrapping_add(value) as u64, order);
                before
            }
            fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                let before = self.last.fetch_sub(value, order);
                modified(&self.id, before as u64, before.wrapping_sub(value) as u64, order);
                before
            }
            fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                let before = self.last.fetch_or(value, order);
                modified(&self.id, before as u64, (before | value) as u64, order);
                before
            }
            fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                world::deliver();
                let before = self.last.fetch_and(value, order);
                modified(&self.id, before as u64, (before & value) as u64, order);
                self.last.load(Ordering::Relaxed);
                before
            }
        }
    )*};
}

atomic!(u8 => AtomicU8, u32 => AtomicU32, u64 => AtomicU64, i64 => AtomicI64);

/// A byte in which its CPU counts.
pub struct ModelOwned {
    last: AtomicI8,
    id: Id,
}

impl ModelOwned {
    fn read(&self) -> i8 {
        let last = self.last.load(Ordering::SeqCst) as u64;
        on_weak(|memory, cpu| memory.load(cpu, &self.id, last, Ordering::Relaxed)).unwrap_or(last)
            as i8
    }
}

impl OwnedCounter<i8> for ModelOwned {
    fn zero() -> Self {
        Self { last: AtomicI8::new(0), id: Id::default() }
    }
    fn get(&self) -> i8 {
        self.read()
    }
    fn set(&self, value: i8) {
        let before = self.last.swap(value, Ordering::SeqCst) as u64;
        on_weak(|memory, cpu| memory.store(cpu, &self.id, before, value as u64, Ordering::Relaxed));
    }
    fn is_nonzero(&self) -> bool {
        self.read() != 0
    }
    fn peek(&self, _: CpuId) -> i8 {
        self.read()
    }
}
