//! The options of `live`: what the kernel of this computer is asked.

use clap::{Subcommand, ValueEnum};
use std::path::PathBuf;

use super::groups::FirstSeed;
use super::{Format, whole};

/// Examples of `live`.
const LIVE_EXAMPLES: &str = "\
Examples (as root):
  mmscale live doctor
  mmscale live watch --for 30s
  mmscale live counts
  mmscale live ab pcp vm.percpu_pagelist_high_fraction=0,100000 --arm stock";

#[derive(Debug, Subcommand)]
#[command(after_help = LIVE_EXAMPLES)]
pub(crate) enum LiveCommand {
    /// Show what this computer allows, and how to enable the rest
    Doctor(DoctorArgs),
    /// Watch the running kernel and report which of the contention problems it shows
    Watch(WatchArgs),
    /// Compare how often this kernel and the simulator do things for one program
    Counts(CountsArgs),
    /// Run two values of a kernel setting or of a parameter in turn, and compare them
    Ab(AbArgs),
    /// Run an installed stress-ng in place of a study's own workload (vmstat, churn)
    Stress(StressArgs),
}

/// Examples of `live doctor`.
const DOCTOR_EXAMPLES: &str = "\
Examples:
  mmscale live doctor
  mmscale live doctor --format json";

#[derive(Debug, clap::Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Examples of `live watch`.
const WATCH_EXAMPLES: &str = "\
Examples (as root):
  mmscale live watch --for 30s
  mmscale live watch --study churn,pcp --format json";

#[derive(Debug, clap::Args)]
#[command(after_help = WATCH_EXAMPLES)]
pub(crate) struct WatchArgs {
    /// How long: 30s, 500ms, 2min
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub(crate) length: String,
    /// Observe only the problems of these studies: vmstat, churn, reap, pcp, ipi; all if not given
    #[arg(long = "study", value_name = "A,B", value_delimiter = ',')]
    pub(crate) studies: Vec<String>,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Examples of `live counts`.
const COUNTS_EXAMPLES: &str = "\
Examples (as root, on an idle computer):
  mmscale live counts
  mmscale live counts --for 60s --format json
  mmscale live counts --of seen.gz";

#[derive(Debug, clap::Args)]
#[command(after_help = COUNTS_EXAMPLES)]
pub(crate) struct CountsArgs {
    /// How long every CPU is kept busy first, so that its upkeep ticks are seen: 10s to 10m
    #[arg(long = "for", value_name = "TIME", default_value = "30s")]
    pub(crate) length: String,
    /// Write what this kernel did to standard output, compressed, and compare nothing
    #[arg(long, conflicts_with = "of")]
    pub(crate) record: bool,
    /// Compare what another computer's kernel did, as `--record` wrote it, with the simulator
    #[arg(long, value_name = "FILE", conflicts_with = "length")]
    pub(crate) of: Option<PathBuf>,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Examples of `live ab`.
const AB_EXAMPLES: &str = "\
Examples (as root):
  mmscale live ab pcp vm.percpu_pagelist_high_fraction=0,100000 --set workload=purger --arm stock
  mmscale live ab churn madvise=none,mix --seeds 15";

#[derive(Debug, clap::Args)]
#[command(after_help = AB_EXAMPLES)]
pub(crate) struct AbArgs {
    /// The study or script by name, or the file of a script
    #[arg(value_name = "STUDY")]
    pub(crate) study: String,
    /// The setting of the kernel (vm.swappiness) or the parameter, with its two values
    #[arg(value_name = "KEY=A,B")]
    pub(crate) question: String,
    /// CPUs that the workload uses; all if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// The arm; the study's first one that this kernel has if not given
    #[arg(long, value_name = "NAME")]
    pub(crate) arm: Option<String>,
    /// Set a parameter of the study
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    /// Number of pairs, a seed each: 9 if not given, 6 at least for an interval
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    pub(crate) seeds: Option<u64>,
    #[command(flatten)]
    pub(crate) first: FirstSeed,
    /// Shorter runs, for a first look
    #[arg(long)]
    pub(crate) quick: bool,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// The size of the workload of stress-ng.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workers {
    /// As many for each CPU as in the report
    Machine,
    /// As many as in the report
    Report,
}

/// Examples of `live stress`.
const STRESS_EXAMPLES: &str = "\
Examples (as root):
  mmscale live stress vmstat --quick
  mmscale live stress churn --workers report --for 1m --runs 5";

#[derive(Debug, clap::Args)]
#[command(after_help = STRESS_EXAMPLES)]
pub(crate) struct StressArgs {
    /// The study whose report has a workload of stress-ng: vmstat or churn
    #[arg(value_name = "STUDY")]
    pub(crate) study: String,
    /// CPUs that the workload uses; all if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// Number of stress-ng workers: for this machine, or as in the report
    #[arg(long, value_enum, default_value_t = Workers::Machine)]
    pub(crate) workers: Workers,
    /// Duration of each run: 30s, 2m; 30s if not given, 5s with --quick
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) length: Option<String>,
    /// Number of runs: 3 if not given, 1 with --quick
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    pub(crate) runs: Option<u64>,
    /// One short run, for a first look
    #[arg(long)]
    pub(crate) quick: bool,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}
