//! The options of `sweep`.

use std::path::PathBuf;

use super::{OUTPUT, SIZE};
use crate::args::Format;

/// Examples of `sweep`.
const EXAMPLES: &str = "\
Examples:
  mmscale sweep spec.toml -o results
  mmscale sweep spec.toml -o results --jobs 4
  mmscale sweep spec.toml --plan

A spec has the options of `mmscale run` as keys, each with one value or several:

  study = \"churn\"
  profile = [\"x86-16\", \"arm64-72\", \"./mine.toml\"]
  policy = [\"lru=stock\", \"lru=lazy\"]
  seeds = 8
  quick = true
  set = { madvise = [\"none\", \"mix\"] }";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SweepArgs {
    /// The runs, as TOML or JSON; `-` is stdin
    #[arg(value_name = "SPEC")]
    pub(crate) spec: PathBuf,
    /// The folder for results. Runs that it has are not repeated, so that the same call continues
    /// an interrupted sweep
    #[arg(
        help_heading = OUTPUT,
        short = 'o',
        long = "output",
        value_name = "DIR",
        required_unless_present = "plan"
    )]
    pub(crate) output: Option<PathBuf>,
    /// How many runs at a time; as many as this computer has CPUs if not given
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) jobs: Option<u16>,
    /// Run nothing; list all runs with their keys and a spec of each, as JSON
    #[arg(help_heading = OUTPUT, long, conflicts_with_all = ["jobs", "one", "collect", "format"])]
    pub(crate) plan: bool,
    /// Execute the only run of SPEC, if its key is KEY, and write its document
    #[arg(help_heading = OUTPUT, long, value_name = "KEY", conflicts_with_all = ["jobs", "format"])]
    pub(crate) one: Option<String>,
    /// Run nothing; show the points of finished runs
    #[arg(help_heading = OUTPUT, long, conflicts_with_all = ["jobs", "one"])]
    pub(crate) collect: bool,
    /// The form of the output: tables, or a document for each point
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}
