//! The options that `whatif` and `trace` share: a simulated machine, and one arm on it.

use std::path::PathBuf;

use super::costs::CostArgs;
use super::{ARMS, MACHINE, ShapeArg};

#[derive(Debug, clap::Args)]
pub(crate) struct OneArm {
    /// CPUs of the machine, 1 to 4096
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// How CPUs are grouped where --cpus is not the profile's
    #[arg(help_heading = MACHINE, long, value_enum, default_value_t = ShapeArg::Keep)]
    pub(crate) shape: ShapeArg,
    /// The simulated machine: a built-in profile, or the path of a profile file
    #[arg(help_heading = MACHINE, long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) costs: CostArgs,
    /// Timer interrupts a second: 100, 250, 300 or 1000
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) hz: Option<String>,
    /// The arm; the study's first one if none is named
    #[arg(help_heading = ARMS, long, value_name = "NAME")]
    pub(crate) arm: Option<String>,
    /// Use an arm with these policies
    #[arg(
        help_heading = ARMS,
        long = "policy",
        value_name = "[NAME:]KEY=POLICY,..",
        conflicts_with = "arm"
    )]
    pub(crate) policies: Vec<String>,
    /// Simulate the mechanisms of this version of Linux, 5.10 to 6.19 (mmscale list linux)
    #[arg(help_heading = ARMS, long, value_name = "VERSION")]
    pub(crate) linux: Option<String>,
    /// Set a parameter of the study
    #[arg(help_heading = ARMS, long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
}
