//! Atomics of the simulated machine.
//!
//! Each is a cache line of its own, with a last writer, the readers since and, for
//! read-modify-writes, a time until which it is busy. An operation needs its CPU's turn, so that
//! values change in the order of virtual time; memory orderings ask for nothing more.
//!
//! Approximation: readers since the last write are kept in 64 bits, by CPU number modulo 64. With
//! more than 64 CPUs a reader may find the line shared though another CPU brought it in.

use crate::context::with_any;
use crate::irq::sync_point;
use crate::topology::{NOBODY, Seats};
use mmscale_mm::arch::{Atomic, OwnedCounter};
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// The state of an atomic's line.
pub(crate) struct LineState {
    writer: Cell<u16>,
    reader: Cell<u16>,
    readers: Cell<u64>,
    busy_until: Cell<u64>,
}

impl LineState {
    const fn new() -> Self {
        Self {
            writer: Cell::new(NOBODY),
            reader: Cell::new(NOBODY),
            readers: Cell::new(0),
            busy_until: Cell::new(0),
        }
    }
    /// Brings the line to `cpu` at `clock`; returns what that and the operation take, in ps, the
    /// wait for a busy line included.
    #[inline]
    pub(crate) fn take(
        &self,
        cpu: usize,
        usage: Usage,
        clock: u64,
        seats: &Seats,
        atomic_ps: u64,
    ) -> u64 {
        let bit = 1 << (cpu % 64);
        let writer = self.writer.get();
        let owner = usize::from(writer) == cpu || writer == NOBODY;
        if usage == Usage::Load && (owner || self.readers.get() & bit != 0) {
            return seats.own_ps();
        }
        let busy = self.busy_until.get().saturating_sub(clock);
        let move_ps = if owner { seats.own_ps() } else { seats.transfer_ps(writer, cpu) };
        if usage == Usage::Load {
            self.readers.set(self.readers.get() | bit);
            self.reader.set(cpu as u16);
            return busy + move_ps;
        }
        let invalidate_ps = match self.reader.replace(NOBODY) {
            NOBODY => 0,
            reader => seats.transfer_ps(reader, cpu),
        };
        self.writer.set(cpu as u16);
        self.readers.set(0);
        let extra_ps = if usage == Usage::Update { atomic_ps } else { 0 };
        let cost = busy + move_ps.max(invalidate_ps) + extra_ps;
        self.busy_until.set(clock + cost);
        cost
    }
}

/// What an operation does to its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Usage {
    /// It reads.
    Load,
    /// It writes.
    Store,
    /// It reads and writes in one step.
    Update,
}

/// An atomic integer of the simulated machine.
pub struct SimAtomic<T> {
    value: Cell<T>,
    line: LineState,
}

/// Integers that atomics hold.
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
    /// Waits for the CPU's turn, pays for the line, does `f`.
    #[inline]
    fn at_turn<R>(&self, usage: Usage, f: impl Fn(&Cell<T>) -> R) -> R {
        loop {
            let done = with_any(|engine| {
                engine.ready().then(|| {
                    if !engine.quiet {
                        engine.use_atomic(&self.line, usage);
                    }
                    f(&self.value)
                })
            });
            match done {
                Some(Some(result)) => return result,
                Some(None) => sync_point(),
                None => return f(&self.value),
            }
        }
    }
    #[inline]
    fn update(&self, f: impl Fn(T) -> T) -> T {
        self.at_turn(Usage::Update, |value| value.replace(f(value.get())))
    }
}

impl<T: Word> Atomic<T> for SimAtomic<T> {
    fn new(value: T) -> Self {
        Self { value: Cell::new(value), line: LineState::new() }
    }
    #[inline]
    fn load(&self, _: Ordering) -> T {
        self.at_turn(Usage::Load, Cell::get)
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
        self.update(|found| found.plus(value))
    }
    #[inline]
    fn fetch_sub(&self, value: T, _: Ordering) -> T {
        self.update(|found| found.minus(value))
    }
    #[inline]
    fn fetch_or(&self, value: T, _: Ordering) -> T {
        self.update(|found| found.or(value))
    }
    #[inline]
    fn fetch_and(&self, value: T, _: Ordering) -> T {
        self.update(|found| found.and(value))
    }
}

/// A byte that its CPU counts in. Only changes between zero and nonzero need the CPU's turn, so
/// that the answer to "is it zero" is exact; the exact value is nobody else's business. A change
/// in between costs nothing here: what it costs is part of the operation that counts.
pub struct SimOwnedI8(SimAtomic<i8>);

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
        if (self.get() == 0) == (value == 0) {
            self.0.value.set(value);
        } else {
            self.0.at_turn(Usage::Store, |held| held.set(value));
        }
    }
    fn is_nonzero(&self) -> bool {
        self.0.at_turn(Usage::Load, |held| held.get() != 0)
    }
}
