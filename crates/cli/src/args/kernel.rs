//! The commands of `mmscale kernel`.

use std::path::PathBuf;

use clap::Subcommand;

/// Examples of `kernel`.
const KERNEL_EXAMPLES: &str = "\
Examples:
  mmscale kernel reproduce page_fault1 -o repro";

/// Examples of `kernel reproduce`.
const REPRODUCE_EXAMPLES: &str = "\
Examples:
  mmscale kernel reproduce page_fault1 -o repro
  mmscale kernel reproduce page_fault1 --set in_threads=1 --set bytes=128MiB -o repro
  mmscale kernel reproduce churn -o repro
  mmscale kernel reproduce ./mine.mms -o repro
Then: make -C repro run";

#[derive(Debug, Subcommand)]
#[command(after_help = KERNEL_EXAMPLES)]
pub(crate) enum KernelCommand {
    /// Write a workload as a program in C with a Makefile and a README, for a mail to the list
    Reproduce(ReproduceArgs),
}

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
