//! Locks, per-CPU data and guards, built on the traits of [`crate`].
//!
//! | guard | interrupts | preemption |
//! |---|---|---|
//! | [`PreemptGuard`] | as they were | off |
//! | [`IrqGuard`] | off | off |
//! | [`SpinGuard`] from [`SpinLock::lock`] | as they were | off |
//! | [`SpinGuard`] from [`SpinLock::lock_irqsave`] | off | off |
//!
//! Tasks sleep in [`Mutex`], [`RwSem`], [`WaitQueue`] and [`Completion`], with preemption on and no
//! spin lock held.
//!
//! A lock that is ever taken in an interrupt must always be taken with interrupts off.
//!
//! Without the feature `alloc` there are guards, [`Local`] and [`SpinLock`] alone.

#[cfg(feature = "alloc")]
mod arc_cell;
mod guard;
#[cfg(feature = "alloc")]
mod inside;
mod local;
#[cfg(feature = "alloc")]
mod mutex;
#[cfg(feature = "alloc")]
mod numbers;
#[cfg(feature = "alloc")]
mod once;
#[cfg(feature = "alloc")]
mod optimistic;
#[cfg(feature = "alloc")]
mod osq;
#[cfg(feature = "alloc")]
mod percpu;
#[cfg(feature = "alloc")]
mod rwsem;
#[cfg(feature = "alloc")]
mod sparse;
mod spin;
#[cfg(feature = "alloc")]
mod wait;

pub use guard::{IrqGuard, NoPreempt, PreemptGuard};
pub use local::{Local, LocalGuard};
pub use spin::{SpinGuard, SpinLock};
#[cfg(feature = "alloc")]
pub use {
    arc_cell::ArcCell,
    inside::Inside,
    mutex::{Mutex, MutexGuard},
    numbers::Numbers,
    once::Once,
    osq::Osq,
    percpu::{EachCpu, PerCpu},
    rwsem::{
        HANDOFF_AFTER_NS, READER_SPIN_NS, READERS_AT_ONCE, ReadGuard, RwSem, RwsemPolicy,
        WriteGuard,
    },
    sparse::Sparse,
    wait::{Completion, WaitQueue},
};
