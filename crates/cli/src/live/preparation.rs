//! Preparation of the live kernel for a run.

use anyhow::anyhow;
use mmscale_live::{clear_leftovers, observe};

use crate::failure::Failure;
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

/// Refuses a command that measures times if an emulator executes this program.
pub(crate) fn refuse_emulated(command: &str) -> Result<(), Failure> {
    match mmscale_live::is_emulated() {
        true => Err(Failure::Call(anyhow!(
            "`mmscale {command}` measures times, and this machine is emulated: its times and waits \
             mean nothing. Use KVM or real hardware; `live counts` and `kernel instructions` work"
        ))),
        false => Ok(()),
    }
}

/// Restores settings and removes what runs left that were killed together with their guardians,
/// with a message for each.
pub(crate) fn clear() {
    let found = clear_leftovers();
    for line in &found.done {
        output::tell(&format!("cleaned up after a killed run: {line}"));
    }
    for line in &found.failed {
        output::tell(&format!("warning: cannot clean up after a killed run: {line}"));
    }
}
