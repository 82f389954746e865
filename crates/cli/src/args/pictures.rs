//! The options of the commands that show saved runs and single ones: `report` and `trace`.

use std::path::PathBuf;

use super::groups::FirstSeed;
use super::{OUTPUT, OneArm, SIZE};

/// Examples of `report`.
const REPORT_EXAMPLES: &str = "\
Examples:
  mmscale run churn --set madvise=none --cpus 1,8,32 --arm stock,lazy -o results
  mmscale report results -o report.html
  mmscale report results -o curves.svg
  mmscale report --letter results
  mmscale report --letter results/churn-x86-512-cpus32.json results --arm lazy
  mmscale report --letter --form lkp results --arm lazy";

/// The layout of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LetterForm {
    /// The block for a cover letter
    Cover,
    /// The table of the kernel test robot: both arms, changes, waits as lines of a profile
    Lkp,
}

#[derive(Debug, clap::Args)]
#[command(after_help = REPORT_EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Documents that `mmscale run -o` or `mmscale robust -o` wrote, and folders of them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The file of the page, or a folder for report.html; a file that ends in .svg has only the
    /// headlines against the number of CPUs
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FILE",
        default_value = "report.html",
        conflicts_with = "letter"
    )]
    pub(crate) output: PathBuf,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(long, conflicts_with = "letter")]
    pub(crate) replace: bool,
    /// Print the block for the cover letter of a change, about the first document, or about the run
    /// of the first folder with the most CPUs. Documents of the other files and folders show other
    /// machines, other workloads, and robustness
    #[arg(long)]
    pub(crate) letter: bool,
    /// The layout of the letter
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t = LetterForm::Cover,
        requires = "letter"
    )]
    pub(crate) form: LetterForm,
    /// The arms that the letter is about; all if not given
    #[arg(long = "arm", value_name = "A,B", value_delimiter = ',', requires = "letter")]
    pub(crate) arms: Vec<String>,
}

/// Examples of `trace`.
const TRACE_EXAMPLES: &str = "\
Examples:
  mmscale trace churn --set madvise=none --cpus 64 --around worst:lruvec
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
    #[command(flatten)]
    pub(crate) first: FirstSeed,
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
