//! Optimistic spinning for a sleeping lock while its owner runs.
//!
//! Spinners of one sleeping lock queue for a spin lock; only its holder reads the lock word and the
//! owner. It gives up as soon as the owner sleeps; each of the others does so when it gets the spin
//! lock. Preemption is off meanwhile, as it is in the kernel; interrupts are not.

use super::PreemptGuard;
use crate::{Machine, RawSpin};

/// Result of one attempt of a spinner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spin {
    /// The attempt took the lock.
    Got,
    /// The owner runs: try again.
    Again,
    /// Waiting may be long: sleep instead.
    GiveUp,
}

/// Repeats `attempt` until it takes the lock or gives up; returns whether it took the lock.
pub(super) fn spin_in_line<A: Machine>(line: &A::Spin, mut attempt: impl FnMut() -> Spin) -> bool {
    // If the first attempt gives up, so would the others: do not queue.
    match attempt() {
        Spin::Got => return true,
        Spin::GiveUp => return false,
        Spin::Again => {}
    }
    let _pinned = PreemptGuard::<A>::new();
    line.lock();
    let got = loop {
        match attempt() {
            Spin::Got => break true,
            Spin::GiveUp => break false,
            Spin::Again if A::need_resched() => break false,
            Spin::Again => A::relax(),
        }
    };
    // SAFETY: taken above, on this CPU.
    unsafe { line.unlock() };
    got
}
