//! The message about a kernel that cannot be observed.

use mmscale_live::observe;

use crate::output;

/// Reports which metrics the live kernel will not provide, and why. The run continues without them.
pub(crate) fn tell() {
    if let Err(why) = observe::watchable() {
        output::tell(&format!("cannot observe waits, batches and calls of the kernel: {why}"));
        output::tell("rates and CPU time are measured; see `mmscale doctor` for a remedy");
    }
}
