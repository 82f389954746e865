//! Waiting for a CPU's turn.

use crate::context::{suspend, with};
use crate::engine::Engine;

/// Waits until the running CPU is the earliest.
#[inline]
pub(crate) fn turn() {
    if let Some(switch) = with(Engine::yield_turn) {
        suspend(switch);
    }
}
