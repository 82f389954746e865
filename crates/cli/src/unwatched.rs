//! The message about a kernel that cannot be observed.

use mmscale_live::observe;

use crate::output;

/// Reports which metrics the live kernel will not provide, and why. The run continues without them.
pub(crate) fn tell() {
    if let Err(why) = observe::watchable() {
        output::tell(&format!("no waits, batches and calls of the kernel will be shown: {why}"));
        output::tell("`mmscale doctor` says what to do about it; rates and CPU time are measured");
    }
}
