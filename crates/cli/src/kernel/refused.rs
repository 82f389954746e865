//! In place of `kernel`, in a program that was built without the live kernel.

use mmscale_harness::Registry;

use crate::args::KernelCommand;
use crate::failure::Failure;

/// Refuses the command.
pub(crate) fn kernel(_: &Registry, _: &KernelCommand) -> Result<(), Failure> {
    Err(Failure::Call(anyhow::anyhow!(
        "this program was built without the feature `live`, which `mmscale kernel` needs: build it \
         on Linux with default features"
    )))
}
