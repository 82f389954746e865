//! `mmscale kernel`: images of kernels in virtual machines, and workloads for kernels without
//! mmscale.

#[cfg(feature = "live")]
mod boot;
#[cfg(feature = "live")]
mod instructions;
#[cfg(feature = "live")]
mod lock_names;
#[cfg(feature = "live")]
pub(crate) mod machine;
mod reproduce;
#[cfg(feature = "live")]
mod rounds;
#[cfg(feature = "live")]
mod turns;

#[cfg(feature = "live")]
pub(crate) use lock_names::class_at;

use mmscale_harness::Registry;

use crate::args::KernelCommand;
use crate::failure::Failure;

/// Executes a command.
#[cfg(feature = "live")]
pub(crate) fn kernel(registry: &Registry, command: &KernelCommand) -> Result<(), Failure> {
    match command {
        KernelCommand::Boot(args) => boot::boot(registry, args),
        KernelCommand::Instructions(args) => instructions::instructions(registry, args),
        KernelCommand::Reproduce(args) => reproduce::reproduce(registry, args),
        KernelCommand::Rounds(args) => rounds::rounds(registry, args),
        KernelCommand::Turns(args) => turns::turns(registry, args),
    }
}

/// Executes a command; in a program that was built without the live kernel, only `reproduce`.
#[cfg(not(feature = "live"))]
pub(crate) fn kernel(registry: &Registry, command: &KernelCommand) -> Result<(), Failure> {
    match command {
        KernelCommand::Reproduce(args) => reproduce::reproduce(registry, args),
        _ => Err(Failure::Call(anyhow::anyhow!(
            "this program was built without the feature `live`, which virtual machines need: \
             build it on Linux with default features"
        ))),
    }
}
