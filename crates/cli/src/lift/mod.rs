//! `mmscale lift`: recordings of what a kernel image does in an operation.

#[cfg(feature = "live")]
mod curve;
mod diff;
mod fit;
#[cfg(feature = "live")]
mod in_c;
#[cfg(feature = "live")]
mod record;
mod show;
mod split;

use mmscale_harness::{Origin, Registry};

use crate::args::LiftCommand;
use crate::failure::Failure;

/// Executes a command.
pub(crate) fn lift(
    registry: &Registry,
    origin: Origin,
    command: &LiftCommand,
) -> Result<(), Failure> {
    match command {
        #[cfg(feature = "live")]
        LiftCommand::Record(args) => record::record(registry, args).map(drop),
        #[cfg(feature = "live")]
        LiftCommand::Curve(args) => curve::curve(registry, origin, args),
        #[cfg(not(feature = "live"))]
        LiftCommand::Record(_) | LiftCommand::Curve(_) => {
            let _ = (registry, origin);
            Err(Failure::Call(anyhow::anyhow!(
                "this program was built without the feature `live`, which virtual machines need: \
                 build it on Linux with default features"
            )))
        }
        LiftCommand::Show(args) => show::show(args),
        LiftCommand::Diff(args) => diff::diff(args),
        LiftCommand::Split(args) => split::split(args),
        LiftCommand::Fit(args) => fit::fitted(args),
    }
}
