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

mod arc_cell;
mod guard;
mod inside;
mod local;
mod mutex;
mod numbers;
mod once;
mod optimistic;
mod osq;
mod percpu;
mod rwsem;
mod sparse;
mod spin;
mod wait;

pub use arc_cell::ArcCell;
pub use guard::{IrqGuard, NoPreempt, PreemptGuard};
pub use inside::Inside;
pub use local::{Local, LocalGuard};
pub use mutex::{Mutex, MutexGuard};
pub use numbers::Numbers;
pub use once::Once;
pub use osq::Osq;
pub use percpu::{EachCpu, PerCpu};
pub use rwsem::{
    HANDOFF_AFTER_NS, READER_SPIN_NS, READERS_AT_ONCE, ReadGuard, RwSem, RwsemPolicy, WriteGuard,
};
pub use sparse::Sparse;
pub use spin::{SpinGuard, SpinLock};
pub use wait::{Completion, WaitQueue};
