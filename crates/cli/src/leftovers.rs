//! Cleanup after earlier runs that were killed together with their guardians.

use mmscale_live::clear_leftovers;

use crate::output;

/// Restores settings and removes remains before a run on the live kernel, with a message for each.
pub(crate) fn clear() {
    let found = clear_leftovers();
    for line in &found.done {
        output::tell(&format!("cleaned up after a killed run: {line}"));
    }
    for line in &found.failed {
        output::tell(&format!("warning: cannot clean up after a killed run: {line}"));
    }
}
