//! What earlier runs left that were killed with all that would have cleaned up after them.

use mmscale_live::clear_leftovers;

use crate::output;

/// Restores and removes it before a run on the live kernel, and tells what that was.
pub(crate) fn clear() {
    let found = clear_leftovers();
    for line in &found.done {
        output::tell(&format!("left by an earlier run that was killed: {line}"));
    }
    for line in &found.failed {
        output::tell(&format!("warning: left by an earlier run that was killed: {line}"));
    }
}
