//! The options of analyses: `robust` and `whatif`.

use std::path::PathBuf;

use super::costs::CostArgs;
use super::{ARMS, Format, MACHINE, OUTPUT, OneArm, SIZE, ShapeArg, whole};

/// Number of machines that an analysis draws, and of seeds that each of them runs.
pub(crate) const MACHINES: u16 = 40;
pub(crate) const SEEDS: u64 = 2;

/// Examples of `robust`.
const ROBUST_EXAMPLES: &str = "\
Examples:
  mmscale robust churn --set madvise=none --arm stock,lazy
  mmscale robust vmstat --machines 200 -o results";

#[derive(Debug, clap::Args)]
#[command(after_help = ROBUST_EXAMPLES)]
pub(crate) struct RobustArgs {
    /// Studies and scripts by name, and files of scripts; all studies if none is named
    #[arg(value_name = "STUDY", default_value = "all")]
    pub(crate) studies: Vec<String>,
    /// CPUs of the machine, 1 to 4096; several values make an analysis each
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// How CPUs are grouped where --cpus is not the profile's
    #[arg(help_heading = MACHINE, long, value_enum, default_value_t = ShapeArg::Keep)]
    pub(crate) shape: ShapeArg,
    /// The machine whose costs move: a built-in profile, or the path of a profile file
    #[arg(help_heading = MACHINE, long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) costs: CostArgs,
    /// Timer interrupts a second: 100, 250, 300 or 1000
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) hz: Option<String>,
    /// The arms to compare, the one to compare with first; all if none is named
    #[arg(help_heading = ARMS, long = "arm", value_name = "A,B", value_delimiter = ',')]
    pub(crate) arms: Vec<String>,
    /// Add an arm with these policies to the study's first arm, or to those of --arm; may be
    /// repeated
    #[arg(help_heading = ARMS, long = "policy", value_name = "[NAME:]KEY=POLICY,..")]
    pub(crate) policies: Vec<String>,
    /// Simulate the mechanisms of this version of Linux, 5.10 to 6.19 (mmscale list linux).
    /// Policies of an arm and of --policy replace them; an arm that is another version is left out
    #[arg(help_heading = ARMS, long, value_name = "VERSION")]
    pub(crate) linux: Option<String>,
    /// Set a parameter of the study; several values (key=8,16) make an analysis each
    #[arg(help_heading = ARMS, long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    /// How many machines to draw, each with all costs from their ranges
    #[arg(help_heading = SIZE, long, value_name = "N", default_value_t = MACHINES)]
    pub(crate) machines: u16,
    /// How many seeds each machine runs
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "N",
        default_value_t = SEEDS,
        value_parser = whole
    )]
    pub(crate) seeds: u64,
    /// The first seed; the others follow it
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "BASE",
        default_value_t = 1,
        value_parser = whole
    )]
    pub(crate) seed: u64,
    /// Runs as short as those of `mmscale run --quick`; this is the default
    #[arg(help_heading = SIZE, long, conflicts_with = "full")]
    quick: bool,
    /// Runs of full length
    #[arg(help_heading = SIZE, long)]
    pub(crate) full: bool,
    /// The form of the output
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Also write each analysis to the folder DIR, as text and as JSON; a name that ends in .json
    /// is the file of the only analysis
    #[arg(help_heading = OUTPUT, short = 'o', long = "output", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Replace files of the same names in DIR; otherwise they are an error
    #[arg(help_heading = OUTPUT, long, requires = "output")]
    pub(crate) replace: bool,
    /// Where results of runs are kept, so that equal ones are not run again;
    /// $XDG_CACHE_HOME/mmscale or ~/.cache/mmscale if not given
    #[arg(help_heading = OUTPUT, long, value_name = "DIR", conflicts_with = "no_cache")]
    pub(crate) cache: Option<PathBuf>,
    /// Keep no results and use none
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) no_cache: bool,
}

/// Examples of `whatif`.
const WHATIF_EXAMPLES: &str = "\
Examples:
  mmscale whatif churn --set madvise=none --cpus 32
  mmscale whatif vmstat --arm posted --of zone,handoff";

#[derive(Debug, clap::Args)]
#[command(after_help = WHATIF_EXAMPLES)]
pub(crate) struct WhatIfArgs {
    /// The studies by name; all of them if none is named
    #[arg(value_name = "STUDY", default_value = "all")]
    pub(crate) studies: Vec<String>,
    /// Lock classes (their holds), `handoff`, `lines`, operations of the profile; the locks that
    /// CPUs wait for, `handoff` and `lines` if none is named
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) of: Vec<String>,
    #[command(flatten)]
    pub(crate) of_arm: OneArm,
    /// How many seeds each point runs
    #[arg(help_heading = SIZE, long, value_name = "N", default_value_t = 2, value_parser = whole)]
    pub(crate) seeds: u64,
    /// The first seed; the others follow it
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "BASE",
        default_value_t = 1,
        value_parser = whole
    )]
    pub(crate) seed: u64,
    /// Runs as short as those of `mmscale run --quick`; this is the default
    #[arg(help_heading = SIZE, long, conflicts_with = "full")]
    quick: bool,
    /// Runs of full length
    #[arg(help_heading = SIZE, long)]
    pub(crate) full: bool,
    /// The form of the output
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Also write each analysis to the folder DIR, as text and as JSON; a name that ends in .json
    /// is the file of the only analysis
    #[arg(help_heading = OUTPUT, short = 'o', long = "output", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Replace files of the same names in DIR; otherwise they are an error
    #[arg(help_heading = OUTPUT, long, requires = "output")]
    pub(crate) replace: bool,
}
