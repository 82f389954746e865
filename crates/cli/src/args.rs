//! The commands and options of the command line.

mod analyses;
mod claim;
mod derived;
mod explain;
mod groups;
mod kernel;
mod lift;
mod live;
mod one_arm;
#[cfg(test)]
mod pages;
mod pictures;
mod settle;
mod sweep;

use std::path::PathBuf;

pub(crate) use analyses::{AblateArgs, CacheArgs, MACHINES, RobustArgs, WhatIfArgs};
pub(crate) use claim::ClaimArgs;
use clap::builder::{EnumValueParser, TypedValueParser as _};
use clap::{Parser, Subcommand, ValueEnum};
pub(crate) use derived::{FitArgs, KnownArgs, NewArgs};
pub(crate) use explain::{ExplainArgs, SourceArgs};
pub(crate) use groups::{
    AnalysisArgs, ArmArgs, ChangeArgs, DocumentsArgs, FileArgs, FirstSeed, MachineArgs, SEEDS, Size,
};
#[cfg(feature = "live")]
pub(crate) use kernel::{BootArgs, InstructionsArgs, RoundsArgs, TurnsArgs, VmArgs};
pub(crate) use kernel::{KernelCommand, ReproduceArgs};
#[cfg(feature = "live")]
pub(crate) use lift::RecordArgs;
pub(crate) use lift::{
    LiftCommand, LiftCurveArgs, LiftDiffArgs, LiftFitArgs, LiftShowArgs, LiftSplitArgs,
};
pub(crate) use live::LiveCommand;
#[cfg(feature = "live")]
pub(crate) use live::{AbArgs, CountsArgs, StressArgs, WatchArgs, Workers};
use mmscale_document::Target;
use mmscale_harness::{Shape, Unit};
pub(crate) use one_arm::OneArm;
pub(crate) use pictures::{LetterForm, ReportArgs, TraceArgs};
pub(crate) use settle::SettleArgs;
pub(crate) use sweep::SweepArgs;

/// The version, and the sources that the program was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("MMSCALE_SOURCES"), ")");

/// A run of some seconds whose answer stays the same in longer ones. The README shows it too.
const FIRST: &str = "Try first: mmscale run churn --set madvise=none --cpus 64 --arm stock,lazy";

/// Examples of `run`, one of each group of options.
const RUN_EXAMPLES: &str = "\
Examples:
  mmscale run churn --set madvise=none --cpus 64 --arm stock,lazy
  mmscale run churn --cpus 1,8,32,128 --arm stock --seeds 8
  mmscale run all --seeds auto
  mmscale run ./mine.mms --cpus 1,8,32,96
  mmscale run vmstat --policy tick=phased,caches=blockmap --robust
  mmscale run churn --cpus 32 --arm stock,lazy --cost handoff_lines=1.5,2,5
  mmscale run pcp --profile ./mine.toml -o results
  mmscale run vmstat --cpus 8,72 --format csv";
const LIST_EXAMPLES: &str = "\
Examples:
  mmscale list churn
  mmscale list policies
  mmscale list limits --cpus 64 --memory 8GiB --linux 6.12
  mmscale list limits --from machine.snap";
const FIDELITY_EXAMPLES: &str = "\
Examples:
  mmscale profile fidelity --quick
  mmscale profile fidelity A4-2s-skl A6-2x2
  mmscale profile fidelity --kept --format md
  mmscale profile fidelity --profile ./this-computer.toml";
const CALIBRATE_EXAMPLES: &str = "\
Examples:
  mmscale profile calibrate -o this-computer.toml
  mmscale profile calibrate --of kernel --quick";
const PROFILE_EXAMPLES: &str = "\
Examples:
  mmscale profile new --base x86-512 --cpus 192 --nodes 2 --smt 2 -o mine.toml
  mmscale profile fit --base x86-512 --cpus 192 --rate page_fault1=720k -o mine.toml
  mmscale profile check ./mine.toml
  mmscale profile show x86-26";
const SNAPSHOT_EXAMPLES: &str = "\
Examples:
  mmscale profile snapshot

On the other machine: sh snapshot.sh > a.snap";
const CHECK_EXAMPLES: &str = "\
Examples:
  mmscale profile check x86-26
  mmscale profile check ./mine.toml";
const SHOW_EXAMPLES: &str = "\
Examples:
  mmscale profile show x86-26
  mmscale profile show ./mine.toml --format json";

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
    /// Run a study on many machines, with many policies and seeds; keep each run, and continue
    Sweep(SweepArgs),
    /// Say which costs of the machine the conclusions of studies depend on
    Robust(Box<RobustArgs>),
    /// Say what a study gains if a lock is held for less time, or a cost is smaller
    Whatif(Box<WhatIfArgs>),
    /// Say which of some policies contributes what to their change
    Ablate(Box<AblateArgs>),
    /// Say where which arm is best: a map over CPUs, parameters and costs, from few runs
    Settle(Box<SettleArgs>),
    /// Run a seed again and write what happened around its worst wait, for Perfetto
    Trace(Box<TraceArgs>),
    /// Compare two saved runs, before and after a change; or measured waits with a run
    Compare(CompareArgs),
    /// Write one HTML page with the pictures of saved runs; or the block for a cover letter
    Report(ReportArgs),
    /// Say which known problem a report or a mail resembles, and how to reproduce it
    Explain(ExplainArgs),
    /// Make items of the gallery from tables before and after a change, or from a list of changes
    Claim(Box<ClaimArgs>),
    /// List studies, policies, versions of Linux and machine profiles; describe one of them
    List(ListArgs),
    /// Observe, measure and check the kernel of this computer
    #[command(subcommand)]
    Live(LiveCommand),
    /// Boot images of kernels and count their instructions; write a workload as a C program
    #[command(subcommand)]
    Kernel(KernelCommand),
    /// Record what a kernel image does in an operation, for replays on machines of any size
    #[command(subcommand)]
    Lift(LiftCommand),
    /// Write, fit, check and show machine profiles; measure this computer; test predictions
    #[command(subcommand)]
    Profile(Box<ProfileCommand>),
}

/// The form of results on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For readers and mails, 72 columns
    Text,
    /// For programs; one document a line
    Json,
}

/// The form of the results of runs on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunFormat {
    /// For readers and mails, 72 columns
    Text,
    /// For programs; one document a line
    Json,
    /// Markdown tables
    Md,
    /// A row for each arm, seed and metric
    Csv,
}

/// The form of the gallery on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GalleryFormat {
    /// For readers and mails, 72 columns
    Text,
    /// A Markdown table, misses first
    Md,
    /// For programs; one document
    Json,
}

/// The form of a comparison on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// For readers and mails, 72 columns
    Text,
    /// Markdown, a table for each arm
    Md,
    /// A row for each metric of each arm
    Csv,
}

/// Examples of `compare`.
const COMPARE_EXAMPLES: &str = "\
Examples:
  mmscale run vmstat -o before
  mmscale compare before after
  mmscale compare before after --fail-on-regression 'zone_lock_*=5%'
  mmscale compare before after --exact
  mmscale compare production.json after
  mmscale compare after --base stock";

#[derive(Debug, clap::Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArgs {
    /// A document that `mmscale run -o` or `mmscale explain --save` wrote, or a folder of them
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The document or folder to compare with it; the arms of BEFORE with each other if not given
    #[arg(value_name = "AFTER")]
    pub(crate) after: Option<PathBuf>,
    /// Without AFTER: the arm to compare the other arms with; the first if not given
    #[arg(long, value_name = "ARM", conflicts_with = "after")]
    pub(crate) base: Option<String>,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub(crate) format: CompareFormat,
    /// Exit with 1 unless all results are equal bit for bit, as after a change of structure
    #[arg(long, requires = "after", conflicts_with = "fail_on_regression")]
    pub(crate) exact: bool,
    /// Exit with 1 if a metric is worse by more than this; `*` stands for any text; may be repeated
    #[arg(long, value_name = "PATTERN=5%")]
    pub(crate) fail_on_regression: Vec<String>,
}

/// The machine of `list limits`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LimitsArgs {
    /// With `limits`: CPUs of the machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) cpus: Option<u32>,
    /// With `limits`: memory of the machine, such as 8GiB
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| Unit::Bytes.parse_count(text))]
    pub(crate) memory: Option<u64>,
    /// With `limits`: memory nodes; 1 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) nodes: Option<u32>,
    /// With `limits`: the version of Linux, 5.0 to 7.3; that of the snapshot, or 6.18
    #[arg(long, value_name = "VERSION")]
    pub(crate) linux: Option<String>,
    /// With `limits`: files of a machine (`mmscale profile snapshot`, sosreport), whose limits are
    /// compared; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cpus", "memory", "nodes"])]
    pub(crate) from: Option<PathBuf>,
}

impl LimitsArgs {
    /// Returns whether the call has one of them.
    pub(crate) fn is_given(&self) -> bool {
        let Self { cpus, memory, nodes, linux, from } = self;
        let any_count = cpus.is_some() || nodes.is_some() || memory.is_some();
        any_count || linux.is_some() || from.is_some()
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// A study or script, `policies`, `linux`, `profiles`, or `limits` of a machine; an overview if
    /// none is given
    #[arg(value_name = "STUDY|LIST")]
    pub(crate) what: Vec<String>,
    #[command(flatten)]
    pub(crate) limits: LimitsArgs,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// The subject of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileOf {
    /// Its threads as a machine, for comparison with --on threads
    Threads,
    /// Its kernel, for comparison with --on live
    Kernel,
}

#[derive(Debug, clap::Args)]
#[command(after_help = CALIBRATE_EXAMPLES)]
pub(crate) struct CalibrateArgs {
    /// The part of this computer that the profile describes
    #[arg(long, value_enum, default_value_t = ProfileOf::Threads)]
    pub(crate) of: ProfileOf,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Take half a second instead of some seconds, for a first look
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = FIDELITY_EXAMPLES)]
pub(crate) struct FidelityArgs {
    /// Items of the gallery by name, or files of items (`./item.toml`, as `mmscale claim` writes
    /// them); all of the gallery with a published result if none is named
    #[arg(value_name = "ITEM", conflicts_with_all = ["profile", "blind"])]
    pub(crate) items: Vec<String>,
    /// Only the ends of curves, no intervals, and no item that takes long
    #[arg(long)]
    pub(crate) quick: bool,
    /// The predictions of measurements whose results are not known here
    #[arg(long, conflicts_with = "profile")]
    pub(crate) blind: bool,
    /// Show the results that were kept with the sources, without runs
    #[arg(long, conflicts_with_all = ["profile", "quick", "output", "machines"])]
    pub(crate) kept: bool,
    /// Show the results in FILE, which -o wrote, without runs
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["kept", "profile", "quick", "output", "machines"])]
    pub(crate) read: Option<PathBuf>,
    /// Show what differs from the results in FILE, which -o wrote
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub(crate) against: Option<PathBuf>,
    /// A folder of profiles (NAME.toml), which replace those of the same name
    #[arg(long, value_name = "DIR", conflicts_with = "profile")]
    pub(crate) machines: Option<PathBuf>,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = GalleryFormat::Text)]
    pub(crate) format: GalleryFormat,
    /// Also write the results to FILE, as JSON; `--kept` shows them after the next build if FILE is
    /// gallery/kept.json
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    /// Also compare this computer's threads with the prediction of its profile, as `mmscale
    /// profile calibrate` writes it
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(after_help = PROFILE_EXAMPLES)]
pub(crate) enum ProfileCommand {
    /// Write a profile of another computer: its CPUs, and a base for all other numbers
    New(NewArgs),
    /// Write a profile of another computer as `new` does, and fit its costs to rates of programs
    /// that were measured there on one CPU
    Fit(FitArgs),
    /// Count the numbers of a profile by the kind of source, and list errors (exit code 1)
    Check(CheckArgs),
    /// Show every number of a profile with its source, as a file that needs no base
    Show(ShowArgs),
    /// Print a script that collects the files of a machine, for --from of `new`, `fit` and `list
    /// limits`, and for `explain`
    #[command(after_help = SNAPSHOT_EXAMPLES)]
    Snapshot,
    /// Measure single steps on this computer and write its profile
    Calibrate(CalibrateArgs),
    /// Compare predictions with measurements: published ones, and those of this computer
    Fidelity(FidelityArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {
    /// A built-in profile, or the path of a profile file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) profile: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = SHOW_EXAMPLES)]
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
enum Machine {
    /// The simulated machine of a profile
    Sim,
    /// This computer's threads
    Threads,
    /// The live kernel: real processes and system calls, and the waits for its locks
    Live,
    /// The earlier word for `live`, which is refused
    #[value(hide = true)]
    Linux,
}

/// Returns the target of `machine`, or says which word replaces the one that was given.
fn target(machine: Machine) -> Result<Target, &'static str> {
    match machine {
        Machine::Sim => Ok(Target::Sim),
        Machine::Threads => Ok(Target::Threads),
        Machine::Live => Ok(Target::Live),
        Machine::Linux => Err("use --on live for the live kernel, or --linux VERSION for the \
                               mechanisms of a simulated one"),
    }
}

/// How the CPUs of a simulated machine are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShapeArg {
    #[default]
    /// With the profile's nodes, threads of a core and cache size; other --cpus are refused
    Keep,
    /// The first CPUs of the profile's machine, as if they came online in order
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

/// The headings of the groups of options, in the order of the help text.
const MACHINE: &str = "Where it runs";
const ARMS: &str = "What is compared";
const SIZE: &str = "How much";
const OUTPUT: &str = "Output";

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Studies and scripts by name, or files (`./NAME.mms`, `A.lift`, or `A.lift,B.lift` to compare
    /// two recordings); all studies if none is given
    #[arg(value_name = "STUDY", default_value = "all")]
    pub(crate) studies: Vec<String>,
    /// The machine; the simulator if not given
    #[arg(help_heading = MACHINE, long)]
    #[arg(value_parser = EnumValueParser::<Machine>::new().try_map(target))]
    pub(crate) on: Option<Target>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) arms: ArmArgs,
    /// Number of seeds, one run each: 7 if not given, 2 with --quick. `auto`: 3, and 7 if these do
    /// not settle every headline
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "N|auto",
        allow_negative_numbers = true,
        value_parser = seed_count
    )]
    pub(crate) seeds: Option<SeedCount>,
    #[command(flatten)]
    pub(crate) first: FirstSeed,
    /// The form of the output
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = RunFormat::Text)]
    pub(crate) format: RunFormat,
    #[command(flatten)]
    pub(crate) documents: DocumentsArgs,
    /// Show everything: all metrics, locks, call paths, distributions
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) details: bool,
    /// Show only metrics and locks that match one of the patterns; `*` is any text
    #[arg(help_heading = OUTPUT, long, value_name = "PATTERN,..", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Also move the costs of the machine, as `mmscale robust` does with these options, and say
    /// whether the conclusions hold
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) robust: bool,
    /// Run with checkers (lock order, frame ownership, leaks); a violation fails the run
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) check: bool,
    /// Show the work of the holders of locks while others waited
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) blame: bool,
    /// Holds of spin locks of a class take FACTOR times as long: operations and lines, not the
    /// handoff. Simulated machines only
    #[arg(help_heading = MACHINE, long, value_name = "CLASS=FACTOR", conflicts_with = "robust")]
    pub(crate) hold: Option<String>,
    /// Fewer seeds and shorter runs, for a first look
    #[arg(help_heading = SIZE, long)]
    pub(crate) quick: bool,
}

/// The number of seeds of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeedCount {
    Exactly(u64),
    /// As many as a first look shows to be needed.
    Auto,
}

impl SeedCount {
    /// Returns the number, if the call states it.
    pub(crate) fn stated(self) -> Option<u64> {
        match self {
            Self::Exactly(count) => Some(count),
            Self::Auto => None,
        }
    }
}

/// Parses a number of seeds or `auto`.
fn seed_count(text: &str) -> Result<SeedCount, String> {
    match text {
        "auto" => Ok(SeedCount::Auto),
        text => whole(text).map(SeedCount::Exactly).map_err(|why| format!("{why}, and not `auto`")),
    }
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
    fn the_definitions_are_consistent() {
        Args::command().debug_assert();
    }

    /// Parses the examples of a command and its subcommands; returns their number.
    fn parse_examples(command: &clap::Command) -> usize {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.replace("\\\n", " ");
        let examples = examples.lines().filter(|line| line.starts_with("  mmscale "));
        let own = examples.map(|example| {
            let parsed = Args::try_parse_from(example.split_whitespace());
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
        });
        let own = own.count();
        assert!(own > 0 || !help.starts_with("Examples"), "{}: {help}", command.get_name());
        let below = command.get_subcommands().map(|below| {
            let count = parse_examples(below);
            assert!(count > 0, "`{}` has no example", below.get_name());
            count
        });
        own + below.sum::<usize>()
    }

    #[test]
    fn every_command_has_examples_that_can_be_parsed() {
        assert!(parse_examples(&Args::command()) > 15);
    }
}
