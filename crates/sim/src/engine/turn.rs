//! Waiting for the running CPU's turn.

use crate::engine::context::{suspend, with};
use crate::prefetch::NO_ADDRESS;

/// Waits until the running CPU is the earliest.
#[inline]
pub(crate) fn turn() {
    if let Some(switch) = with(|engine| engine.yield_turn(NO_ADDRESS)).switch() {
        suspend(switch);
    }
}
