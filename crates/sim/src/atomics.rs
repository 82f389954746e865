//! Atomics of the simulated machine.
//!
//! Each is a cache line of its own, with a last writer, the readers since and, for writes, a time
//! until which it is busy. An operation waits for its CPU's turn, so that values change in the
//! order of virtual time. That order is sequentially consistent, so the memory orderings that
//! callers pass have no further effect.

use crate::engine::Engine;
use crate::engine::context::with_any;
use crate::irq::at_turn_if_any;
use crate::lines::{LineState, Usage};
use mmscale_arch::{Atomic, CpuId, DataLine, LineName, OwnedCounter, OwnedValue};
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// An atomic integer of the simulated machine.
pub struct SimAtomic<T> {
    value: Cell<T>,
    line: LineState,
}

/// Integers that an atomic can hold.
pub trait Word: Copy + Eq {
    /// Adds with wrap-around.
    fn plus(self, other: Self) -> Self;
    /// Subtracts with wrap-around.
    fn minus(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
}

macro_rules! words {
    ($($int:ty),*) => {$(
        impl Word for $int {
            #[inline]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline]
            fn and(self, other: Self) -> Self {
                self & other
            }
        }
    )*};
}
words!(u8, u32, u64, i8, i64);

impl<T: Word> SimAtomic<T> {
    /// Waits for the CPU's turn, charges the line, and calls `f`.
    #[inline]
    fn at_turn<R>(&self, usage: Usage, f: impl Fn(&Cell<T>) -> R) -> R {
        let done = at_turn_if_any(self.near(), |engine| {
            if !engine.quiet {
                engine.use_atomic(&self.line, usage);
            }
            f(&self.value)
        });
        done.unwrap_or_else(|| f(&self.value))
    }
    pub(crate) fn set(&self, value: T) {
        self.value.set(value);
    }
    pub(crate) fn line(&self) -> &LineState {
        &self.line
    }
    /// Returns its host address, for [`crate::prefetch`].
    #[inline]
    pub(crate) fn near(&self) -> impl Fn(&Engine) -> usize {
        let here = (&raw const self.line).addr();
        move |_| here
    }
    #[inline]
    fn add(&self, f: impl Fn(T) -> T) -> T {
        self.at_turn(Usage::Add, |value| value.replace(f(value.get())))
    }
    #[inline]
    fn update(&self, f: impl Fn(T) -> T) -> T {
        self.at_turn(Usage::Update, |value| value.replace(f(value.get())))
    }
}

impl<T: Word> Atomic<T> for SimAtomic<T> {
    fn new(value: T) -> Self {
        Self::named(value, DataLine::Other)
    }
    fn named(value: T, name: impl Into<LineName>) -> Self {
        Self { value: Cell::new(value), line: LineState::new(name.into()) }
    }
    #[inline]
    fn load(&self, _: Ordering) -> T {
        self.at_turn(Usage::Load, Cell::get)
    }
    #[inline]
    fn store_uncharged(&self, value: T, _: Ordering) {
        self.at_turn(Usage::StoreUncharged, |held| held.set(value));
    }
    #[inline]
    fn load_uncharged(&self, _: Ordering) -> T {
        self.at_turn(Usage::LoadUncharged, Cell::get)
    }
    #[inline]
    fn fetch_update(
        &self,
        _: Ordering,
        _: Ordering,
        change: impl Fn(T) -> Option<T>,
    ) -> Result<T, T> {
        let attempt = |value: &Cell<T>| {
            let found = value.get();
            let new = change(found);
            new.inspect(|&new| value.set(new)).map(|_| found).ok_or(found)
        };
        let done = at_turn_if_any(self.near(), |engine| {
            let result = attempt(&self.value);
            if !engine.quiet {
                engine.read_and_update(&self.line, result.is_ok());
            }
            result
        });
        done.unwrap_or_else(|| attempt(&self.value))
    }
    #[inline]
    fn store(&self, value: T, _: Ordering) {
        self.at_turn(Usage::Store, |held| held.set(value));
    }
    #[inline]
    fn swap(&self, value: T, _: Ordering) -> T {
        self.update(|_| value)
    }
    #[inline]
    fn compare_exchange(&self, current: T, new: T, _: Ordering, _: Ordering) -> Result<T, T> {
        self.at_turn(Usage::Update, |value| {
            let found = value.get();
            if found == current {
                value.set(new);
                Ok(found)
            } else {
                Err(found)
            }
        })
    }
    #[inline]
    fn fetch_add(&self, value: T, _: Ordering) -> T {
        self.add(|found| found.plus(value))
    }
    #[inline]
    fn fetch_sub(&self, value: T, _: Ordering) -> T {
        self.add(|found| found.minus(value))
    }
    #[inline]
    fn fetch_or(&self, value: T, _: Ordering) -> T {
        self.add(|found| found.or(value))
    }
    #[inline]
    fn fetch_and(&self, value: T, _: Ordering) -> T {
        self.add(|found| found.and(value))
    }
}

/// A byte in which its CPU counts. Only changes between zero and nonzero wait for the CPU's turn,
/// so that `is_nonzero` is exact. Other changes wait for no turn, and their cost is part of the
/// operation that counts. They are recorded with their time: a CPU that peeks finds the value as of
/// its own time, even if the owner has run ahead on the host.
pub struct SimOwnedI8(SimAtomic<i8>);

impl SimOwnedI8 {
    /// The byte's identity in its owner's notes: unique, and never part of a result.
    fn name(&self) -> usize {
        (&raw const *self).addr()
    }
}

impl OwnedCounter<i8> for SimOwnedI8 {
    fn zero() -> Self {
        Self(SimAtomic::new(0))
    }
    #[inline]
    fn get(&self) -> i8 {
        self.0.value.get()
    }
    #[inline]
    fn set(&self, value: i8) {
        let before = self.get();
        if (before == 0) == (value == 0) {
            with_any(|engine| engine.note_count(self.name(), before.into()));
            self.0.value.set(value);
        } else {
            self.0.at_turn(Usage::Store, |held| held.set(value));
        }
    }
    fn is_nonzero(&self) -> bool {
        self.0.at_turn(Usage::Load, |held| held.get() != 0)
    }
    fn peek(&self, owner: CpuId) -> i8 {
        let at_its_time = |engine: &mut Engine| engine.count_before(owner.index(), self.name());
        at_turn_if_any(self.0.near(), at_its_time)
            .flatten()
            .map_or_else(|| self.get(), |before| before as i8)
    }
}

/// A number that its CPU changes. No change waits for a turn, and its cost is part of the operation
/// that makes it. Changes are recorded with their time, like those of [`SimOwnedI8`].
pub struct SimOwnedI64(Cell<i64>);

impl SimOwnedI64 {
    fn name(&self) -> usize {
        (&raw const *self).addr()
    }
}

impl OwnedValue<i64> for SimOwnedI64 {
    fn zero() -> Self {
        Self(Cell::new(0))
    }
    #[inline]
    fn get(&self) -> i64 {
        self.0.get()
    }
    #[inline]
    fn set(&self, value: i64) {
        with_any(|engine| engine.note_count(self.name(), self.get()));
        self.0.set(value);
    }
    fn peek(&self, owner: CpuId) -> i64 {
        let here = self.name();
        let at_its_time = |engine: &mut Engine| engine.count_before(owner.index(), self.name());
        at_turn_if_any(move |_| here, at_its_time).flatten().unwrap_or_else(|| self.get())
    }
}
