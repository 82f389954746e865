//! The options of the commands that draw: `report` and `trace`.

use std::path::PathBuf;

use super::{OUTPUT, OneArm, SIZE, whole};

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
    /// The file to write, or a folder for report.html
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
    #[command(flatten)]
    pub(crate) of_arm: OneArm,
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
    /// The file of the trace, or a folder for trace.perfetto-trace
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
