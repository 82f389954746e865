//! The options of `explain`, which reads a report of another tool.

use std::path::PathBuf;

use mmscale_harness::Unit;

/// Examples of `explain`.
const EXPLAIN_EXAMPLES: &str = "\
Examples:
  mmscale explain contention.txt --cpus 72 --seconds 10
  mmscale explain mail.txt --run
  mmscale explain lock_stat.txt --cpus 72 --seconds 10 --save production.json
  mmscale explain perf.data
  mmscale explain a.snap b.snap
  mmscale explain -";

/// A report of another tool, and what it may not have.
#[derive(Debug, clap::Args)]
pub(crate) struct SourceArgs {
    /// The report: output of `perf lock contention`, /proc/lock_stat, klockstat of bcc, or `mmscale
    /// live watch --format json`; a trace of lock:contention_begin and lock:contention_end
    /// (perf.data, trace.dat, or as text); a snapshot of a machine (`mmscale profile snapshot`);
    /// `-` is stdin
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
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// A later snapshot of the same machine than FILE: show rates between the two
    #[arg(value_name = "LATER", conflicts_with_all = ["run", "save", "table", "cpus"])]
    pub(crate) later: Option<PathBuf>,
    /// Run the study that the report resembles, and show its waits next to the measured ones
    #[arg(long)]
    pub(crate) run: bool,
    /// Write the waits of a table to FILE, or to a folder, for `mmscale compare`; explain nothing
    #[arg(long, value_name = "FILE", conflicts_with = "run")]
    pub(crate) save: Option<PathBuf>,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(long, requires = "save")]
    pub(crate) replace: bool,
}
