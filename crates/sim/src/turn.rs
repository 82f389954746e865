//! Waiting for a CPU's turn.

use crate::context::{suspend, with};
use crate::engine::Engine;

/// Waits until the running CPU is the earliest. While a panic unwinds the stack the run is over,
/// and guards are only being dropped: from here on nothing waits any more.
#[inline]
pub(crate) fn turn() {
    if std::thread::panicking() {
        return with(Engine::die);
    }
    if let Some(switch) = with(Engine::yield_turn) {
        suspend(switch);
    }
}
