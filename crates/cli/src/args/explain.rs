//! The options of `import` and `explain`, which read a report of another tool.

use std::path::PathBuf;

use mmscale_harness::Unit;

/// Examples of `import`.
const IMPORT_EXAMPLES: &str = "\
Examples:
  mmscale import contention.txt --cpus 72 --seconds 10 -o production.json
  mmscale import lock_stat.txt --cpus 72 -o production.json
  mmscale import live.json -o production.json";

/// Examples of `explain`.
const EXPLAIN_EXAMPLES: &str = "\
Examples:
  mmscale explain contention.txt --cpus 72 --seconds 10
  mmscale explain mail.txt --run
  mmscale explain -";

/// A report of another tool, and what it may not have.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The report: output of `perf lock contention`, /proc/lock_stat, klockstat of bcc, or `mmscale
    /// live --format json`; `-` is stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// CPUs of the computer, if the report does not have them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) cpus: Option<u32>,
    /// Duration of the measurement, if the report does not have it: 10, 10s, 2min
    #[arg(long, value_name = "S", value_parser = |text: &str| Unit::Seconds.parse_real(text))]
    pub(crate) seconds: Option<f64>,
    /// The number of the table, in the order of the file, if the file has several
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) table: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// The file to write, such as production.json, or a folder for it; stdout if not given
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(long, requires = "output")]
    pub(crate) replace: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// Run the study that the report resembles, and show its waits next to the measured ones
    #[arg(long)]
    pub(crate) run: bool,
}
