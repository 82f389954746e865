//! What a run on the live kernel cannot show.

use mmscale_live::observe;

use crate::output;

/// Says what the live kernel will not tell, and why: a run does without.
pub(crate) fn tell() {
    if let Err(why) = observe::watchable() {
        output::tell(&format!("no waits, batches and calls of the kernel will be shown: {why}"));
        output::tell("`mmscale doctor` says what to do about it; rates and CPU time are measured");
    }
}
