//! The commands of `mmscale live`.

use mmscale_harness::{Origin, Registry};
use mmscale_live::{clear_leftovers, observe};

use crate::args::LiveCommand;
use crate::failure::Failure;
use crate::output;

use super::{ab, counts, doctor, stress, watch};

/// Executes a command.
pub(crate) fn live(
    registry: &Registry,
    origin: Origin,
    command: &LiveCommand,
) -> Result<(), Failure> {
    match command {
        LiveCommand::Doctor(args) => doctor::doctor(args.format),
        LiveCommand::Watch(args) => watch::watch(args),
        LiveCommand::Counts(args) => counts::counts(&origin.build, args),
        LiveCommand::Ab(args) => ab::ab(registry, origin, args),
        LiveCommand::Stress(args) => stress::stress(args),
    }
}

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
