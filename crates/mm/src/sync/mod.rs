//! Locks, per-CPU data and guards, built on what [`crate::arch`] gives.
//!
//! | guard | interrupts | preemption |
//! |---|---|---|
//! | [`PreemptGuard`] | as they were | off |
//! | [`IrqGuard`] | off | off |
//! | [`SpinGuard`] from [`SpinLock::lock`] | as they were | off |
//! | [`SpinGuard`] from [`SpinLock::lock_irqsave`] | off | off |
//!
//! A lock that is ever taken in an interrupt must always be taken with interrupts off.

mod guard;
mod percpu;
mod spin;

pub use guard::{IrqGuard, NoPreempt, PreemptGuard};
pub use percpu::{EachCpu, PerCpu};
pub use spin::{SpinGuard, SpinLock};
