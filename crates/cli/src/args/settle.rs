//! The options of `settle`.

use std::path::PathBuf;

use super::groups::{ArmArgs, FirstSeed, MachineArgs};
use super::{OUTPUT, SEEDS, SIZE, whole};
use crate::args::Format;

/// Number of runs of a map.
const RUNS: u32 = 300;
/// Number of machines at each place near the boundary.
const MACHINES: u16 = 10;
/// The least difference that matters, in percent.
const MATTERS: f64 = 1.0;

/// Examples of `settle`.
const EXAMPLES: &str = "\
Examples:
  mmscale settle churn --arm stock,lazy --knob cpus=4..128 --knob processes=4..64 -o map
  mmscale settle fault-io.mms --knob readers=2..64 --knob pause=100us..100ms \\
    --knob read_ns=50us..200us --runs 400 -o map
  mmscale settle fault-io.mms --knob readers=2..64 --knob pause=100us..100ms \\
    --metric cpu_ns_per_op --robust -o map";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SettleArgs {
    /// The study or script by name, or the file of a script
    #[arg(value_name = "STUDY")]
    pub(crate) study: String,
    /// A knob and its range: `cpus`, a parameter of the study, or a cost of the profile; one to
    /// six. Equal steps are equal ratios if HIGH is 8 times LOW and more; `:log` and `:linear`
    /// choose. If `cpus` moves, --shape keep is --shape fill
    #[arg(long = "knob", value_name = "NAME=LOW..HIGH", required = true)]
    pub(crate) knobs: Vec<String>,
    /// The metric by which arms are compared; the study's first headline if not given
    #[arg(long, value_name = "METRIC")]
    pub(crate) metric: Option<String>,
    /// Arms that differ by less than this, in percent, are equally good
    #[arg(long, value_name = "PERCENT", default_value_t = MATTERS)]
    pub(crate) matters: f64,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) arms: ArmArgs,
    /// How many runs: points times arms times seeds. More runs continue with those of fewer
    #[arg(help_heading = SIZE, long, value_name = "N", default_value_t = RUNS)]
    pub(crate) runs: u32,
    /// How many seeds each point runs
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "N",
        default_value_t = SEEDS,
        value_parser = whole
    )]
    pub(crate) seeds: u64,
    #[command(flatten)]
    pub(crate) first: FirstSeed,
    /// Runs of full length; otherwise they are as short as those of `mmscale run --quick`
    #[arg(help_heading = SIZE, long)]
    pub(crate) full: bool,
    /// How many runs at a time; as many as this computer has CPUs if not given
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) jobs: Option<u16>,
    /// Also say whether places near the boundary have the same best arms on machines whose costs
    /// are drawn from their ranges
    #[arg(help_heading = SIZE, long)]
    pub(crate) robust: bool,
    /// With --robust: how many machines to draw at each place
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "N",
        default_value_t = MACHINES,
        requires = "robust",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) machines: u16,
    /// The folder for runs and results. Runs that it has are not repeated, so that the same call
    /// continues an interrupted one
    #[arg(help_heading = OUTPUT, short = 'o', long = "output", value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Run nothing; list the next runs that DIR does not have, as `mmscale sweep --plan` does. No
    /// runs are left if the list is empty
    #[arg(help_heading = OUTPUT, long)]
    #[arg(conflicts_with_all = ["jobs", "robust", "collect", "format"])]
    pub(crate) plan: bool,
    /// Run nothing; show the map of the runs that DIR has
    #[arg(help_heading = OUTPUT, long, conflicts_with_all = ["jobs", "robust"])]
    pub(crate) collect: bool,
    /// The form of the output
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}
