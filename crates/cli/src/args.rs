//! The command line's words.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use mmscale_harness::Shape;

/// The version, with the sources that it is of.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("MMSCALE_SOURCES"), ")");

/// A run of some seconds whose answer stays the same in longer ones. The README shows it, too.
const FIRST: &str = "Try first: mmscale run churn --set madvise=none --cpus 32 --arm stock,lazy";

/// An example of each group of options.
const RUN_EXAMPLES: &str = "\
Examples:
  mmscale run churn --set madvise=none --cpus 32 --arm stock,lazy
  mmscale run churn --cpus 1,8,32,128 --arm stock --seeds 8
  mmscale run vmstat --policy tick=phased,caches=blockmap
  mmscale run pcp --profile ./mine.toml -o results
  mmscale run pcp --set workload=purger --arm stock \\
      --ab vm.percpu_pagelist_high_fraction=0,100000";

/// A workbench for the scalability of memory management.
#[derive(Debug, Parser)]
#[command(name = "mmscale", version = VERSION, after_help = FIRST)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run studies and show their results
    Run(Box<RunArgs>),
    /// List studies, policies and machine profiles; describe one of them
    List(ListArgs),
    /// Compare predictions with measurements: published ones, and this computer's own
    Fidelity(FidelityArgs),
    /// Watch the running kernel and report which of the contention problems it shows
    Live(LiveArgs),
    /// Show what this computer allows, and how to enable the rest
    Doctor(FormatArgs),
    /// Measure single steps on this computer and write a machine profile
    Calibrate(CalibrateArgs),
    /// Write a machine profile of another computer; check and show profiles
    #[command(subcommand)]
    Profile(ProfileCommand),
}

/// The form of results on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For readers and mails, 72 columns
    Text,
    /// For programs; one document a line
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FormatArgs {
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// A study, `policies` or `profiles`; all of them if none is named
    #[arg(value_name = "STUDY|LIST")]
    pub(crate) what: Vec<String>,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LiveArgs {
    /// How long: 30s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub(crate) length: String,
    /// Only what these studies are about, of vmstat, churn, reap, pcp, ipi; all if none is named
    #[arg(long = "study", value_name = "A,B", value_delimiter = ',')]
    pub(crate) studies: Vec<String>,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// The subject of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileOf {
    /// Its threads as a machine, to hold against --on threads
    Threads,
    /// Its kernel, to hold against --on linux
    Kernel,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CalibrateArgs {
    /// The part of this computer that the profile describes
    #[arg(long, value_enum, default_value_t = ProfileOf::Threads)]
    pub(crate) of: ProfileOf,
    /// The file to write, such as this-computer.toml; stdout if not given
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(long, requires = "output")]
    pub(crate) replace: bool,
    /// Half a second instead of some seconds: for a first look
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FidelityArgs {
    /// A profile of this computer, as `mmscale calibrate` writes it: compares its threads too
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Write a profile of another computer: its CPUs, and a base that has the other numbers
    New(Box<NewArgs>),
    /// Say what is behind the numbers of a profile, and what is wrong; 1 if anything is
    Check(CheckArgs),
    /// Show every number of a profile with its source, as a file that needs no base
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct NewArgs {
    /// The profile that has the other numbers: a built-in one, or the path of a file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) base: String,
    /// CPUs, hardware threads counted
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<usize>,
    /// Memory nodes; the base's if not given
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    /// CPUs behind one last-level cache, hardware threads counted; the base's if not given
    #[arg(long, value_name = "N")]
    pub(crate) cluster: Option<usize>,
    /// Hardware threads of a core; the base's if not given
    #[arg(long, value_name = "N")]
    pub(crate) smt: Option<usize>,
    /// Take all of these from the output of `lscpu -J -e` (or `lscpu -J`) there; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cpus", "nodes", "smt"])]
    pub(crate) lscpu: Option<PathBuf>,
    /// Take line_*_ns from a matrix in ns one way, as `core-to-core-latency --csv` (nviennot)
    /// writes it: medians by distance. Halve round trips first. Rows are CPUs by Linux's numbers if
    /// --lscpu says where each is, and otherwise in the order of a profile
    #[arg(long, value_name = "FILE")]
    pub(crate) latencies: Option<PathBuf>,
    /// A description of the machine
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// The file to write, such as epyc192.toml; stdout if not given
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(long, requires = "output")]
    pub(crate) replace: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// A built-in profile, or the path of a profile file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) profile: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// A built-in profile, or the path of a profile file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) profile: PathBuf,
    /// The form of the output: a profile file, or JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Where a study runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Machine {
    /// The simulated machine of a profile
    Sim,
    /// This computer's threads
    Threads,
    /// The live kernel: real processes and system calls, and what it tells of its locks
    Linux,
}

/// How the CPUs of a simulated machine are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShapeArg {
    /// As in the profile: its nodes, its threads of a core, its cache size; only such --cpus
    Keep,
    /// The first CPUs of the profile's machine, as when they are brought online in order
    Fill,
    /// One node, one cache, one thread a core
    Flat,
}

impl From<ShapeArg> for Shape {
    fn from(arg: ShapeArg) -> Self {
        match arg {
            ShapeArg::Keep => Self::Keep,
            ShapeArg::Fill => Self::Fill,
            ShapeArg::Flat => Self::Flat,
        }
    }
}

/// The program whose workload is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// The stress-ng that is installed here
    StressNg,
}

/// The size of the external workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workers {
    /// As many for each CPU as the report had
    Machine,
    /// As many as the report had
    Report,
}

/// The headings of the groups of options, in the order of the help text.
const MACHINE: &str = "Where it runs";
const ARMS: &str = "What is compared";
const SIZE: &str = "How much";
const OUTPUT: &str = "Output";
const LIVE: &str = "Only on the live kernel";

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The studies by name; all of them if none is named
    #[arg(value_name = "STUDY", default_value = "all")]
    pub(crate) studies: Vec<String>,
    /// The machine; the simulator if not given
    #[arg(help_heading = MACHINE, long, value_enum)]
    pub(crate) on: Option<Machine>,
    /// CPUs of the machine, 1 to 4096; several values make a sweep
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// How CPUs are grouped where --cpus is not the profile's
    #[arg(help_heading = MACHINE, long, value_enum, default_value_t = ShapeArg::Keep)]
    pub(crate) shape: ShapeArg,
    /// The arms to run, the one to compare with first; all if none is named
    #[arg(help_heading = ARMS, long = "arm", value_name = "A,B", value_delimiter = ',')]
    pub(crate) arms: Vec<String>,
    /// Add an arm with these policies to the study's first arm, or to those of --arm; may be
    /// repeated. `mmscale list policies` shows all
    #[arg(help_heading = ARMS, long = "policy", value_name = "[NAME:]KEY=POLICY,..")]
    pub(crate) policies: Vec<String>,
    /// The simulated machine: a built-in profile, or the path of a profile file
    #[arg(help_heading = MACHINE, long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Timer interrupts a second: 100, 250, 300 or 1000
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) hz: Option<String>,
    /// How many seeds, one run each: 5 if not given, 2 with --quick; with --ab, 9 pairs
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = whole
    )]
    pub(crate) seeds: Option<u64>,
    /// The first seed; the others follow it
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "BASE",
        default_value_t = 1,
        allow_negative_numbers = true,
        value_parser = whole
    )]
    pub(crate) seed: u64,
    /// Set a parameter of the study; several values (key=8,16) make a sweep
    #[arg(help_heading = ARMS, long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    /// The form of the output
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Also write each document to DIR, as text and as JSON
    #[arg(help_heading = OUTPUT, short = 'o', long = "output", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Replace documents of the same names in DIR; otherwise they are an error
    #[arg(help_heading = OUTPUT, long, requires = "output")]
    pub(crate) replace: bool,
    /// Compare two values of a kernel setting or of a parameter, in turn, on the live kernel
    #[arg(help_heading = LIVE, long, value_name = "KEY=V1,V2", conflicts_with = "output")]
    pub(crate) ab: Option<String>,
    /// Run an installed stress-ng in place of the study's own workload (vmstat, churn)
    #[arg(
        help_heading = LIVE,
        long,
        value_enum,
        conflicts_with_all = ["output", "ab", "set", "check", "arms", "policies", "hz", "shape"]
    )]
    pub(crate) with: Option<Tool>,
    /// How many workers stress-ng has: for this machine, or as many as the report had
    #[arg(
        help_heading = LIVE,
        long,
        value_enum,
        requires = "with",
        default_value_t = Workers::Machine
    )]
    pub(crate) scale: Workers,
    /// How long each run of stress-ng is: 30s, 2m; 30s if not given, 5s with --quick
    #[arg(help_heading = LIVE, long = "for", value_name = "TIME", requires = "with")]
    pub(crate) length: Option<String>,
    /// Run with checkers (lock order, frame ownership, leaks); a violation fails the run
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) check: bool,
    /// Fewer seeds and shorter runs, for a first look
    #[arg(help_heading = SIZE, long)]
    pub(crate) quick: bool,
}

/// Parses a number of seeds, or a seed. The plan checks the allowed range.
fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a whole number from 0 to 2^64 - 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_run_to_try_first_is_one_of_the_readme() {
        let readme = include_str!("../../../README.md");
        let command = FIRST.split_once(": mmscale ").expect("a command").1;
        assert!(readme.contains(command), "the README does not show `{command}`");
        Args::try_parse_from(["mmscale"].into_iter().chain(command.split(' '))).unwrap();
    }

    #[test]
    fn the_words_do_not_contradict_each_other() {
        Args::command().debug_assert();
    }
}
