//! The commands of `mmscale live`.

use mmscale_harness::{Origin, Registry};

use crate::args::LiveCommand;
use crate::failure::Failure;

use super::preparation::refuse_emulated;
use super::{ab, counts, doctor, stress, watch};

/// Executes a command.
pub(crate) fn live(
    registry: &Registry,
    origin: Origin,
    command: &LiveCommand,
) -> Result<(), Failure> {
    match command {
        LiveCommand::Watch(_) => refuse_emulated("live watch")?,
        LiveCommand::Ab(_) => refuse_emulated("live ab")?,
        LiveCommand::Stress(_) => refuse_emulated("live stress")?,
        LiveCommand::Doctor(_) | LiveCommand::Counts(_) => {}
    }
    match command {
        LiveCommand::Doctor(args) => doctor::doctor(args.format),
        LiveCommand::Watch(args) => watch::watch(args),
        LiveCommand::Counts(args) => counts::counts(&origin.build, args),
        LiveCommand::Ab(args) => ab::ab(registry, origin, args),
        LiveCommand::Stress(args) => stress::stress(args),
    }
}
