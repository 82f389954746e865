//! `mmscale profile`: profiles of computers, and predictions that are compared with measurements.

mod calibrate;
mod check;
mod fidelity;
mod fit;
mod new;

use mmscale_calibrate::{WrongProfile, review};
use mmscale_harness::{CallError, Origin, Registry};

use crate::args::{Format, ProfileCommand};
use crate::failure::Failure;
use crate::output;

/// A script that collects the files of a machine.
const SNAPSHOT: &str = include_str!("snapshot.sh");

/// Executes a command.
pub(crate) fn profile(
    registry: &Registry,
    origin: Origin,
    command: &ProfileCommand,
) -> Result<(), Failure> {
    let profiles = registry.profiles();
    match command {
        ProfileCommand::New(args) => new::new(profiles, args),
        ProfileCommand::Fit(args) => fit::fit(registry, args),
        ProfileCommand::Check(args) => check::check(profiles, args),
        ProfileCommand::Snapshot => output::print(SNAPSHOT),
        ProfileCommand::Calibrate(args) => calibrate::calibrate(args),
        ProfileCommand::Fidelity(args) => fidelity::fidelity(registry, origin, args),
        ProfileCommand::Show(args) => {
            let merged = profiles.open(&args.profile).map_err(wrong)?;
            output::print(&match args.format {
                Format::Text => review::whole(&merged).map_err(wrong)?,
                Format::Json => format!("{}\n", review::whole_json(&merged).map_err(wrong)?),
            })
        }
    }
}

/// Converts the error of a profile that cannot be used.
fn wrong(why: WrongProfile) -> Failure {
    CallError::from(why).into()
}
