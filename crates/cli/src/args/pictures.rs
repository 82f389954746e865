//! The options of the commands that draw: `report` and `trace`.

use std::path::PathBuf;

use super::{ARMS, MACHINE, OUTPUT, SIZE, ShapeArg, whole};

/// Examples of `report`.
const PAGE_EXAMPLES: &str = "\
Examples:
  mmscale run churn --set madvise=none --cpus 1,8,32 --blame -o results
  mmscale report results -o report.html";

#[derive(Debug, clap::Args)]
#[command(after_help = PAGE_EXAMPLES)]
pub(crate) struct PageArgs {
    /// Documents that `mmscale run -o` or `mmscale robust -o` wrote, and folders of them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The file to write
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "report.html")]
    pub(crate) output: PathBuf,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(long)]
    pub(crate) replace: bool,
}

/// Examples of `trace`.
const TRACE_EXAMPLES: &str = "\
Examples:
  mmscale trace churn --set madvise=none --cpus 32 --around worst:lruvec
  mmscale trace vmstat --arm posted --around worst:zone_lock_wait_max_ns -o tick.perfetto-trace";

#[derive(Debug, clap::Args)]
#[command(after_help = TRACE_EXAMPLES)]
pub(crate) struct TraceArgs {
    /// The study or script by name, or the file of a script
    #[arg(value_name = "STUDY")]
    pub(crate) study: String,
    /// The moment: the worst wait for a lock, by its class or by a metric of it
    #[arg(long, value_name = "worst:LOCK")]
    pub(crate) around: String,
    /// CPUs of the machine, 1 to 4096
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// How CPUs are grouped where --cpus is not the profile's
    #[arg(help_heading = MACHINE, long, value_enum, default_value_t = ShapeArg::Keep)]
    pub(crate) shape: ShapeArg,
    /// The simulated machine: a built-in profile, or the path of a profile file
    #[arg(help_heading = MACHINE, long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<PathBuf>,
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
    /// Simulate the mechanisms of this version of Linux: 5.10, 5.15, 6.1, 6.12 or 6.18
    #[arg(help_heading = ARMS, long, value_name = "VERSION")]
    pub(crate) linux: Option<String>,
    /// Set a parameter of the study
    #[arg(help_heading = ARMS, long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    /// The seed
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "SEED",
        default_value_t = 1,
        value_parser = whole
    )]
    pub(crate) seed: u64,
    /// A shorter run
    #[arg(help_heading = SIZE, long)]
    pub(crate) quick: bool,
    /// The file of the trace
    #[arg(
        help_heading = OUTPUT,
        short = 'o',
        long = "output",
        value_name = "FILE",
        default_value = "trace.perfetto-trace"
    )]
    pub(crate) output: PathBuf,
    /// Also write the call paths of that time, with their times, as folded stacks (FILE.folded)
    #[arg(help_heading = OUTPUT, long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,
    /// Replace the files if they exist; otherwise that is an error
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) replace: bool,
}
