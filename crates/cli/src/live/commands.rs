//! The commands of `mmscale live`.

use mmscale_harness::{Origin, Registry};

use crate::args::LiveCommand;
use crate::failure::Failure;

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
