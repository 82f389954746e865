//! Waiting for the running CPU's turn.

use crate::engine::ReadyState;
use crate::engine::context::{suspend, with};
use crate::prefetch::NO_ADDRESS;
use crate::task::Switch;

/// Waits until the running CPU is the earliest.
#[inline]
pub(crate) fn turn() {
    if let ReadyState::Switch { yielder, next } = with(|engine| engine.yield_turn(NO_ADDRESS)) {
        suspend(Switch { yielder, next });
    }
}
