//! Atomics: interrupts are allowed before each operation, and each atomic has its history where
//! memory is weak.
//!
//! Another CPU may run before each operation. That is enough where all data that CPUs share is such
//! an atomic. Data under a lock is not, so another CPU may also run after the operation that
//! releases one of mm's own locks (`fetch_and`), before the caller continues.
//!
//! An atomic of the host holds the last value. The orderings are not its own: all CPUs run on one
//! thread of the host, and the memory ([`crate::memory`]) decides whether a load returns the last
//! value. A compare-and-exchange that would succeed on the last value does so.

use crate::memory::Id;
use crate::world::{self, on_weak};
use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use mmscale_arch::{Atomic, CpuId, OwnedCounter, OwnedValue};

/// An integer type that the host has an atomic of.
pub trait Integer: Copy {
    /// The host's atomic of this type.
    type Host;
}

/// An atomic integer.
pub struct ModelAtomic<T: Integer> {
    last: T::Host,
    id: Id,
}

/// Notes that this CPU has read `before` and written `after`.
fn modified(id: &Id, before: u64, after: u64, order: Ordering) {
    on_weak(|memory, cpu| memory.modify(cpu, id, before, after, order));
}

macro_rules! atomic {
    ($($int:ty => $host:ty),*) => {$(
        impl Integer for $int {
            type Host = $host;
        }
        impl Atomic<$int> for ModelAtomic<$int> {
            fn new(value: $int) -> Self {
                Self { last: <$host>::new(value), id: Id::default() }
            }
            fn load(&self, order: Ordering) -> $int {
                world::step();
                let last = self.last.load(Relaxed) as u64;
                let read = on_weak(|memory, cpu| memory.load(cpu, &self.id, last, order));
                read.unwrap_or(last) as $int
            }
            fn store(&self, value: $int, order: Ordering) {
                world::step();
                let before = self.last.swap(value, Relaxed) as u64;
                on_weak(|memory, cpu| memory.store(cpu, &self.id, before, value as u64, order));
            }
            fn swap(&self, value: $int, order: Ordering) -> $int {
                world::step();
                let before = self.last.swap(value, Relaxed);
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
                world::step();
                match self.last.compare_exchange(current, new, Relaxed, Relaxed) {
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
                world::step();
                let before = self.last.fetch_add(value, Relaxed);
                modified(&self.id, before as u64, before.wrapping_add(value) as u64, order);
                before
            }
            fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                world::step();
                let before = self.last.fetch_sub(value, Relaxed);
                modified(&self.id, before as u64, before.wrapping_sub(value) as u64, order);
                before
            }
            fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                world::step();
                let before = self.last.fetch_or(value, Relaxed);
                modified(&self.id, before as u64, (before | value) as u64, order);
                before
            }
            fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                world::step();
                let before = self.last.fetch_and(value, Relaxed);
                modified(&self.id, before as u64, (before & value) as u64, order);
                world::switch();
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
        world::switch();
        let last = self.last.load(Relaxed) as u64;
        on_weak(|memory, cpu| memory.load(cpu, &self.id, last, Relaxed)).unwrap_or(last) as i8
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
        world::switch();
        let before = self.last.swap(value, Relaxed) as u64;
        on_weak(|memory, cpu| memory.store(cpu, &self.id, before, value as u64, Relaxed));
    }
    fn is_nonzero(&self) -> bool {
        self.read() != 0
    }
    fn peek(&self, _: CpuId) -> i8 {
        self.read()
    }
}

/// A statistic: access to it is no scheduling point, as no code depends on when it is read.
pub struct ModelValue(AtomicI64);

impl OwnedValue<i64> for ModelValue {
    fn zero() -> Self {
        Self(AtomicI64::new(0))
    }
    fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
    fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }
    fn peek(&self, _: CpuId) -> i64 {
        self.get()
    }
}
