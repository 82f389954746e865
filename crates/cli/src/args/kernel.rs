//! The options of `kernel`: an image of a kernel, in a virtual machine.

use clap::Subcommand;
use mmscale_harness::Unit;
use std::path::PathBuf;

use super::{Format, MACHINE, OUTPUT};

/// Examples of `kernel`.
const KERNEL_EXAMPLES: &str = "\
Examples:
  mmscale kernel boot --kernel debian:6.12 -- live doctor
  mmscale kernel boot --kernel arch/x86/boot/bzImage --cpus 64 -- run churn --on live --quick
  mmscale kernel instructions --kernel debian:6.1,debian:6.12
  mmscale kernel reproduce page_fault1 -o repro";

#[derive(Debug, Subcommand)]
#[command(after_help = KERNEL_EXAMPLES)]
pub(crate) enum KernelCommand {
    /// Boot an image in a virtual machine, and run a command of this program there
    Boot(BootArgs),
    /// Count an image's instructions, by function and by hold of a lock; or compare two images
    Instructions(InstructionsArgs),
    /// Write a workload as a program in C with a Makefile and a README, for a mail to the list
    Reproduce(ReproduceArgs),
    /// Run scripts for a number of rounds between marks: what `instructions` runs in the machine
    #[command(hide = true)]
    Rounds(RoundsArgs),
    /// Run a script on all CPUs in turns between marks: what `lift record` runs in the machine
    #[command(hide = true)]
    Turns(TurnsArgs),
}

/// A virtual machine.
#[derive(Debug, clap::Args)]
pub(crate) struct VmArgs {
    /// CPUs of the virtual machine, 1 to 255
    #[arg(help_heading = MACHINE, long, value_name = "N", default_value_t = 4)]
    pub(crate) cpus: usize,
    /// Its memory nodes, which divide CPUs and memory
    #[arg(help_heading = MACHINE, long, value_name = "N", default_value_t = 1)]
    pub(crate) nodes: usize,
    /// The distance between two nodes, as firmware gives it
    #[arg(help_heading = MACHINE, long, value_name = "N", default_value_t = 21)]
    pub(crate) distance: u32,
    /// Its memory, of which only what is touched is used
    #[arg(
        help_heading = MACHINE,
        long,
        value_name = "SIZE",
        default_value = "4GiB",
        value_parser = |text: &str| Unit::Bytes.parse_count(text)
    )]
    pub(crate) memory: u64,
    /// Further parameters of the kernel, such as `nohz=off transparent_hugepage=never`
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
}

/// Examples of `kernel boot`.
const BOOT_EXAMPLES: &str = "\
Examples:
  mmscale kernel boot --kernel debian:6.12 -- live doctor
  mmscale kernel boot --kernel ./linux.deb --cpus 64 --icount -- live counts --for 10s
  mmscale kernel boot --kernel ./bzImage -- run ./mine.mms --on live --quick
Files that the command names are there under the same path. The exit code is that of the command, \
or 1 if the machine failed.";

#[derive(Debug, clap::Args)]
#[command(after_help = BOOT_EXAMPLES)]
pub(crate) struct BootArgs {
    /// The image: a bzImage, a vmlinux with CONFIG_PVH, a Debian package, or debian:VERSION
    #[arg(long, value_name = "IMAGE")]
    pub(crate) kernel: String,
    #[command(flatten)]
    pub(crate) machine: VmArgs,
    /// Let time pass with instructions, not with this computer's clock: jiffies are exact then, and
    /// the machine takes two to three times as long
    #[arg(help_heading = MACHINE, long)]
    pub(crate) icount: bool,
    /// Emulate, even if this computer has KVM
    #[arg(help_heading = MACHINE, long)]
    pub(crate) emulate: bool,
    /// Write all that the kernel says to FILE
    #[arg(help_heading = OUTPUT, long, value_name = "FILE")]
    pub(crate) console: Option<PathBuf>,
    /// A command of this program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Examples of `kernel instructions`.
const INSTRUCTIONS_EXAMPLES: &str = "\
Examples:
  mmscale kernel instructions --kernel debian:6.12
  mmscale kernel instructions --kernel before/bzImage,after/bzImage
  mmscale kernel instructions --kernel ./bzImage page_fault1 ./mine.mms --format json
  mmscale kernel instructions --kernel debian:6.12 --profile x86-2 --rows 5
  mmscale kernel instructions --kernel ./bzImage --profile x86-512 -o mine.toml
  mmscale kernel instructions --kept 6.1,6.12 touch";

#[derive(Debug, clap::Args)]
#[command(after_help = INSTRUCTIONS_EXAMPLES)]
pub(crate) struct InstructionsArgs {
    /// The image, or two to compare: bzImages, vmlinux with CONFIG_PVH, Debian packages, or
    /// debian:VERSION
    #[arg(
        long,
        value_name = "A[,B]",
        value_delimiter = ',',
        required_unless_present = "kept",
        conflicts_with = "kept"
    )]
    pub(crate) kernel: Vec<String>,
    /// Show counts that were kept with the sources, or compare two, without a machine: 6.1, 6.12,
    /// 7.3 (Debian's kernels)
    #[arg(long, value_name = "A[,B]", value_delimiter = ',', conflicts_with = "profile")]
    pub(crate) kept: Vec<String>,
    /// Scripts by name or files, each with a `loop`; one for each basic operation if none is given
    #[arg(value_name = "SCRIPT")]
    pub(crate) scripts: Vec<String>,
    /// Rounds of the outermost `loop` that are counted, after two that are not; with 31, as many as
    /// a folio batch has folios, every state of the batch at the begin of a round is counted
    #[arg(long, value_name = "N", default_value_t = 31)]
    pub(crate) rounds: usize,
    /// Also run the scripts on one simulated CPU of this profile, and show ns next to instructions,
    /// for operations, holds and costs; one image
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) machine: VmArgs,
    /// Rows of each table
    #[arg(help_heading = OUTPUT, long, value_name = "N", default_value_t = 12)]
    pub(crate) rows: usize,
    /// The form of the output
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Also write a profile with this image's instructions, whose base is that of --profile, to
    /// FILE or into a folder
    #[arg(
        help_heading = OUTPUT,
        short = 'o',
        long = "output",
        value_name = "FILE",
        requires = "profile"
    )]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(help_heading = OUTPUT, long, requires = "output")]
    pub(crate) replace: bool,
}

/// Examples of `kernel rounds`.
const ROUNDS_EXAMPLES: &str = "\
Examples:
  mmscale kernel rounds page_fault1 --rounds 3";

#[derive(Debug, clap::Args)]
#[command(after_help = ROUNDS_EXAMPLES)]
pub(crate) struct RoundsArgs {
    /// Scripts by name or files
    #[arg(value_name = "SCRIPT", required = true)]
    pub(crate) scripts: Vec<String>,
    /// Rounds that count
    #[arg(long, value_name = "N")]
    pub(crate) rounds: usize,
}

/// Examples of `kernel turns`.
const TURNS_EXAMPLES: &str = "\
Examples:
  mmscale kernel turns page_fault1 --ops 3";

#[derive(Debug, clap::Args)]
#[command(after_help = TURNS_EXAMPLES)]
pub(crate) struct TurnsArgs {
    /// The script by name, or its file
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: String,
    /// The value of a parameter of the script; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Rounds of each program that count
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
    /// The script as a program that takes turns by itself
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
}

/// Examples of `kernel reproduce`.
const REPRODUCE_EXAMPLES: &str = "\
Examples:
  mmscale kernel reproduce page_fault1 -o repro
  mmscale kernel reproduce page_fault1 --set in_threads=1 --set bytes=128MiB -o repro
  mmscale kernel reproduce churn -o repro
  mmscale kernel reproduce ./mine.mms -o repro
Then: make -C repro run";

#[derive(Debug, clap::Args)]
#[command(after_help = REPRODUCE_EXAMPLES)]
pub(crate) struct ReproduceArgs {
    /// The study or script by name, or the file of a script
    #[arg(value_name = "STUDY|SCRIPT")]
    pub(crate) study: String,
    /// The folder for repro.c, Makefile and README: a new one, or an empty one
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Replace these files if they exist; otherwise files in DIR are an error
    #[arg(long)]
    pub(crate) replace: bool,
    /// Set a parameter of the script to another value than its default; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
}
