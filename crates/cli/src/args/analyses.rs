//! The options of analyses: `robust`, `whatif` and `ablate`.

use std::path::PathBuf;

use super::groups::{AnalysisArgs, ArmArgs, MachineArgs};
use super::{ARMS, OUTPUT, OneArm, SIZE};

/// Number of machines that an analysis draws.
pub(crate) const MACHINES: u16 = 40;

/// Examples of `robust`.
const ROBUST_EXAMPLES: &str = "\
Examples:
  mmscale robust churn --set madvise=none --arm stock,lazy
  mmscale robust churn --arm stock --cpus 64             # its level, and what limits it
  mmscale robust vmstat --machines 200 -o results";

#[derive(Debug, clap::Args)]
#[command(after_help = ROBUST_EXAMPLES)]
pub(crate) struct RobustArgs {
    /// Studies and scripts by name, and files of scripts; all studies if none is named
    #[arg(value_name = "STUDY", default_value = "all")]
    pub(crate) studies: Vec<String>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) arms: ArmArgs,
    /// How many machines to draw, each with all costs from their ranges
    #[arg(help_heading = SIZE, long, value_name = "N", default_value_t = MACHINES)]
    pub(crate) machines: u16,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
}

/// Where results of runs are kept.
#[derive(Debug, clap::Args)]
pub(crate) struct CacheArgs {
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
  mmscale whatif churn --set madvise=none --cpus 64
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
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}

/// Examples of `ablate`.
const ABLATE_EXAMPLES: &str = "\
Examples:
  mmscale ablate churn --of lru=lazy,tick=phased,caches=blockmap --cpus 64
  mmscale ablate page_fault1 --of lru=lazy,caches=posted --seeds 7 -o parts";

#[derive(Debug, clap::Args)]
#[command(after_help = ABLATE_EXAMPLES)]
pub(crate) struct AblateArgs {
    /// Studies and scripts by name, and files of scripts
    #[arg(value_name = "STUDY", required = true)]
    pub(crate) studies: Vec<String>,
    /// The parts of the change: two to six policies, of which every subset runs (mmscale list
    /// policies)
    #[arg(long, value_name = "KEY=POLICY,..", value_delimiter = ',', required = true)]
    pub(crate) of: Vec<String>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// The arm without any of the parts; the study's first one if none is named
    #[arg(help_heading = ARMS, long, value_name = "NAME")]
    pub(crate) arm: Option<String>,
    /// Simulate the mechanisms of this version of Linux, 5.0 to 7.3, where no part replaces them
    #[arg(help_heading = ARMS, long, value_name = "VERSION")]
    pub(crate) linux: Option<String>,
    /// Set a parameter of the study; several values (key=8,16) make a sweep
    #[arg(help_heading = ARMS, long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}
