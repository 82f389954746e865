//! `mmscale profile`: profiles of other computers.

mod check;
mod new;

use mmscale_calibrate::{Profiles, WrongProfile, review};
use mmscale_harness::CallError;

use crate::args::{Format, ProfileCommand};
use crate::failure::Failure;
use crate::output;

/// Creates, checks or shows a profile.
pub(crate) fn profile(profiles: &Profiles, command: &ProfileCommand) -> Result<(), Failure> {
    match command {
        ProfileCommand::New(args) => new::new(profiles, args),
        ProfileCommand::Check(args) => check::check(profiles, args),
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
