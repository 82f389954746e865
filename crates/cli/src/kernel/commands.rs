//! The commands of `mmscale kernel`.

use mmscale_harness::Registry;

use crate::args::KernelCommand;
use crate::failure::Failure;

use super::{boot, instructions, rounds};

/// Executes a command.
pub(crate) fn kernel(registry: &Registry, command: &KernelCommand) -> Result<(), Failure> {
    match command {
        KernelCommand::Boot(args) => boot::boot(registry, args),
        KernelCommand::Instructions(args) => instructions::instructions(registry, args),
        KernelCommand::Rounds(args) => rounds::rounds(registry, args),
    }
}
