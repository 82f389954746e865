//! `mmscale kernel`: workloads for a kernel without mmscale.

mod reproduce;

use mmscale_harness::Registry;

use crate::args::KernelCommand;
use crate::failure::Failure;

/// Executes a command.
pub(crate) fn kernel(registry: &Registry, command: &KernelCommand) -> Result<(), Failure> {
    match command {
        KernelCommand::Reproduce(args) => reproduce::reproduce(registry, args),
    }
}
