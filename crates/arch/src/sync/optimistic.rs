//! Spinning for a lock whose owner runs, in line.
//!
//! Spinners of one sleeping lock stand in line at a spin lock; only the first looks at the owner.
//! It gives up as soon as spinning is hopeless, and each of the others finds out when its turn
//! comes. Preemption is off meanwhile, as it is in the kernel; interrupts are not.

use super::PreemptGuard;
use crate::{Machine, RawSpin};

/// What a spinner found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spin {
    /// It has the lock.
    Got,
    /// The owner runs: look again.
    Again,
    /// Waiting may be long: sleep instead.
    GiveUp,
}

/// Spins with `attempt` until it gets the lock or gives up; says whether it got it.
pub(super) fn spin_in_line<A: Machine>(line: &A::Spin, mut attempt: impl FnMut() -> Spin) -> bool {
    // Hopeless for the first is hopeless for all: do not even stand in line.
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
