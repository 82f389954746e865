//! Waiting for the running CPU's turn.

use crate::ahead::NOWHERE;
use crate::context::{suspend, with};
use crate::engine::Gate;
use crate::task::Switch;

/// Waits until the running CPU is the earliest.
#[inline]
pub(crate) fn turn() {
    if let Gate::Switch { yielder, next } = with(|engine| engine.yield_turn(NOWHERE)) {
        suspend(Switch { yielder, next });
    }
}
