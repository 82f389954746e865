//! Waiting for a CPU's turn.

use crate::context::{suspend, with};
use crate::engine::{Engine, Gate};
use crate::task::Switch;

/// Waits until the running CPU is the earliest.
#[inline]
pub(crate) fn turn() {
    if let Gate::Switch { yielder, next } = with(Engine::yield_turn) {
        suspend(Switch { yielder, next });
    }
}
