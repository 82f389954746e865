//! Optimistic spinning for a sleeping lock while its owner runs.
//!
//! Spinners of one sleeping lock queue ([`RawOsq`]); only the CPU at the head reads the lock word
//! and the owner. It gives up when waiting may be long, for instance because the owner sleeps; each
//! of the others does so when it gets to the head. A CPU that must switch tasks gives up at any
//! place in the queue. Preemption is off meanwhile, as it is in the kernel; interrupts are not.

use super::PreemptGuard;
use crate::{Machine, RawOsq};

/// Where a spinner is when it makes an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Not in the queue yet.
    Outside,
    /// At the head of the queue.
    Head,
}

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
pub(super) fn spin_in_queue<A: Machine>(
    queue: &A::Osq,
    mut attempt: impl FnMut(Place) -> Spin,
) -> bool {
    // If the first attempt gives up, so would the others: do not queue.
    match attempt(Place::Outside) {
        Spin::Got => return true,
        Spin::GiveUp => return false,
        Spin::Again => {}
    }
    let _pinned = PreemptGuard::<A>::new();
    if A::need_resched() || !queue.lock() {
        return false;
    }
    let got = loop {
        match attempt(Place::Head) {
            Spin::Got => break true,
            Spin::GiveUp => break false,
            Spin::Again if A::need_resched() => break false,
            Spin::Again => A::relax(),
        }
    };
    queue.unlock();
    got
}
