//! In place of `live`, in a program that was built without the live kernel.

use mmscale_harness::{Origin, Registry};

use crate::args::LiveCommand;
use crate::failure::Failure;

/// Refuses the command.
pub(crate) fn live(_: &Registry, _: Origin, _: &LiveCommand) -> Result<(), Failure> {
    Err(Failure::Call(anyhow::anyhow!(
        "this program was built without the feature `live`, which `mmscale live` needs: build it \
         on Linux with default features"
    )))
}

/// Nothing to prepare: planning refuses the live kernel.
pub(crate) fn prepare() {}
