//! The options of `lift`: recordings of a kernel image's operations.

use clap::Subcommand;
use mmscale_harness::Unit;
use std::path::PathBuf;

use super::{Format, MACHINE, OUTPUT};

/// The heading of the options of replays.
const REPLAY: &str = "What it is replayed on";

/// Examples of `lift`.
const LIFT_EXAMPLES: &str = "\
Examples:
  mmscale lift curve --kernel debian:6.12 mmap1 -o mmap1.lift
  mmscale lift record --kernel debian:6.12 mmap1 -o again.lift
  mmscale lift show mmap1.lift
  mmscale lift diff before.lift after.lift
  mmscale run mmap1.lift --profile x86-512 --cpus 1,16,64,256";

#[derive(Debug, Subcommand)]
#[command(after_help = LIFT_EXAMPLES)]
pub(crate) enum LiftCommand {
    /// Record what a kernel image does in the rounds of a script, in a virtual machine
    Record(RecordArgs),
    /// Record, then replay on machines of 1 to 512 CPUs: from an image to a curve
    Curve(LiftCurveArgs),
    /// Show what an operation of a recording does: locks, holds, shared lines
    Show(LiftShowArgs),
    /// Compare the operations of two recordings: two images, or two settings of one
    Diff(LiftDiffArgs),
    /// Move words to lines of their own: what another layout of a structure would change
    Split(LiftSplitArgs),
    /// Fit recordings of several numbers of CPUs: what grows with it, for larger machines
    Fit(LiftFitArgs),
}

/// Examples of `lift record`.
const RECORD_EXAMPLES: &str = "\
Examples:
  mmscale lift record --kernel debian:6.12 page_fault1 --set bytes=2MiB -o pf1.lift
  mmscale lift record --kernel ./bzImage --cpus 4 --nodes 1 ./mine.mms -o mine.lift
  mmscale lift record --kernel debian:6.12 --append cgroup_disable=memory mmap1 -o nocg.lift
  mmscale lift record --kernel debian:6.12 --in-c fork1 -o fork1.lift
Programs on all CPUs take turns, round by round, so that no lock is found taken. Waits are not \
recorded: a replay with `mmscale run` has them.";

#[derive(Debug, clap::Args)]
#[command(after_help = RECORD_EXAMPLES)]
pub(crate) struct RecordArgs {
    /// The image: a bzImage, a vmlinux with CONFIG_PVH, a Debian package, or debian:VERSION
    #[arg(long, value_name = "IMAGE")]
    pub(crate) kernel: String,
    /// The script by name, or its file; with a `loop`, whose rounds are recorded
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: String,
    /// The value of a parameter of the script, such as bytes=2MiB; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Rounds of each program that are recorded, after twice as many that are not; 4 to 50 if not
    /// given, fewer if a round has many operations
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
    /// Run the script as its program in C (`mmscale kernel reproduce`), whose processes are small;
    /// needs `cc` and a static C library
    #[arg(long)]
    pub(crate) in_c: bool,
    /// CPUs of the virtual machine, 2 to 255
    #[arg(help_heading = MACHINE, long, value_name = "N", default_value_t = 16)]
    pub(crate) cpus: usize,
    /// Its memory nodes, which divide CPUs and memory; one node does not show what belongs to a
    /// node
    #[arg(help_heading = MACHINE, long, value_name = "N", default_value_t = 2)]
    pub(crate) nodes: usize,
    /// Its memory, of which only what is touched is used; 1GiB a CPU if not given. Sizes of page
    /// caches and of batches of counters follow it
    #[arg(
        help_heading = MACHINE,
        long,
        value_name = "SIZE",
        value_parser = |text: &str| Unit::Bytes.parse_count(text)
    )]
    pub(crate) memory: Option<u64>,
    /// Further parameters of the kernel, such as `cgroup_disable=memory`
    #[arg(
        help_heading = MACHINE,
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) append: String,
    /// The most CPU time that the machine may use; 5min and 10 s a CPU if not given
    #[arg(help_heading = MACHINE, long, value_name = "TIME")]
    pub(crate) limit: Option<String>,
    /// The file to write, whose name ends in .lift, or a folder for it
    #[arg(help_heading = OUTPUT, short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) replace: bool,
}

/// Examples of `lift curve`.
const LIFT_CURVE_EXAMPLES: &str = "\
Examples:
  mmscale lift curve --kernel debian:6.12 churn --set processes=1 -o churn.lift
  mmscale lift curve --kernel ./bzImage ./mine.mms --on milan --at 1,16,64,256 -o mine.lift
FILE stays: `mmscale run FILE` replays it with other options, `lift show FILE` shows an operation.";

#[derive(Debug, clap::Args)]
#[command(after_help = LIFT_CURVE_EXAMPLES)]
pub(crate) struct LiftCurveArgs {
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// The profile of the replays' machines, by name or file
    #[arg(help_heading = REPLAY, long, value_name = "PROFILE", default_value = "x86-512")]
    pub(crate) on: String,
    /// The replays' numbers of CPUs
    #[arg(help_heading = REPLAY, long, value_name = "N,..")]
    #[arg(default_value = "1,4,16,64,128,256,512")]
    pub(crate) at: String,
    /// Seeds of each replay
    #[arg(help_heading = REPLAY, long, value_name = "N", default_value_t = 3)]
    pub(crate) seeds: u64,
}

/// Examples of `lift show`.
const LIFT_SHOW_EXAMPLES: &str = "\
Examples:
  mmscale lift show mmap1.lift
  mmscale lift show mmap1.lift --rows 40";

#[derive(Debug, clap::Args)]
#[command(after_help = LIFT_SHOW_EXAMPLES)]
pub(crate) struct LiftShowArgs {
    /// A file that `mmscale lift record` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Rows of each table
    #[arg(help_heading = OUTPUT, long, value_name = "N", default_value_t = 12)]
    pub(crate) rows: usize,
    /// The form of the output
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Examples of `lift diff`.
const LIFT_DIFF_EXAMPLES: &str = "\
Examples:
  mmscale lift diff before.lift after.lift
Rows that differ by less than 1 % are left out.";

#[derive(Debug, clap::Args)]
#[command(after_help = LIFT_DIFF_EXAMPLES)]
pub(crate) struct LiftDiffArgs {
    /// A file that `mmscale lift record` wrote
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The file to compare with it
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    /// Rows of each table
    #[arg(help_heading = OUTPUT, long, value_name = "N", default_value_t = 12)]
    pub(crate) rows: usize,
}

/// Examples of `lift split`.
const LIFT_SPLIT_EXAMPLES: &str = "\
Examples:
  mmscale lift split fork1.lift init_css_set+0:8 -o split.lift
  mmscale run fork1.lift,split.lift --profile x86-512 --cpus 64
Names with blanks need quotes: 'pglist_data per_cpu_nodestats+16:8'.";

#[derive(Debug, clap::Args)]
#[command(after_help = LIFT_SPLIT_EXAMPLES)]
pub(crate) struct LiftSplitArgs {
    /// A file that `mmscale lift record` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The name of a line in `lift show`, its first byte to move, and how many
    #[arg(value_name = "NAME+OFFSET:LENGTH")]
    pub(crate) words: String,
    /// The file to write, whose name ends in .lift, or a folder for it
    #[arg(help_heading = OUTPUT, short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) replace: bool,
}

/// Examples of `lift fit`.
const LIFT_FIT_EXAMPLES: &str = "\
Examples:
  mmscale lift fit a4.lift a8.lift a16.lift -o fitted.lift
  mmscale run fitted.lift --profile x86-512 --cpus 1,16,64,256
Record one script with --cpus 4, 8 and 16. With two sizes no error can be said.";

#[derive(Debug, clap::Args)]
#[command(after_help = LIFT_FIT_EXAMPLES)]
pub(crate) struct LiftFitArgs {
    /// Files that `mmscale lift record` wrote, of one script with different --cpus
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Rows of each table
    #[arg(help_heading = OUTPUT, long, value_name = "N", default_value_t = 12)]
    pub(crate) rows: usize,
    /// The file to write, whose name ends in .lift, or a folder for it
    #[arg(help_heading = OUTPUT, short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(help_heading = OUTPUT, long)]
    pub(crate) replace: bool,
}
