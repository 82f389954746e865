//! Preparation of the live kernel for a run.

use mmscale_live::{clear_leftovers, observe};

use crate::output;

/// Prepares the kernel for runs of studies: removes what earlier runs left, and reports what it
/// does not show.
pub(crate) fn prepare() {
    clear();
    if let Err(why) = observe::watchable() {
        output::tell(&format!("cannot observe waits, batches and calls of the kernel: {why}"));
        output::tell("rates and CPU time are measured; see `mmscale live doctor` for a remedy");
    }
}

/// Restores settings and removes what runs left that were killed together with their guardians,
/// with a message for each.
pub(super) fn clear() {
    let found = clear_leftovers();
    for line in &found.done {
        output::tell(&format!("cleaned up after a killed run: {line}"));
    }
    for line in &found.failed {
        output::tell(&format!("warning: cannot clean up after a killed run: {line}"));
    }
}
