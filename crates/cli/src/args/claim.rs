//! The options of `claim`, which makes items of the gallery.

use std::path::PathBuf;

use super::FileArgs;

/// Examples of `claim`.
const CLAIM_EXAMPLES: &str = "\
Examples:
  mmscale claim mail.txt
  mmscale claim mail.txt --only page_fault1 -o item.toml
  mmscale claim mail.txt --machine skylake-2s-104 --linux 6.12 --set tasks=104 -o item.toml
  mmscale claim mail.txt --policy patched:lru=lazy -o item.toml
  mmscale profile fidelity ./item.toml";

#[derive(Debug, clap::Args)]
#[command(after_help = CLAIM_EXAMPLES)]
pub(crate) struct ClaimArgs {
    /// A mail, a page or a file with tables before and after a change, with lists of changes
    /// (`page_fault1: +34.3 %`), or the file that will-it-scale writes; `-` is stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only tables and rows whose name has this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// The columns to compare, the first one is the base; if their names do not say so
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) sides: Vec<String>,
    /// The machine that was measured: a profile by name, or its file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) machine: Option<String>,
    /// The workload: a script or study by name, or the file of a script
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) script: Option<String>,
    /// The version of Linux whose mechanisms the base has
    #[arg(long, value_name = "VERSION")]
    pub(crate) linux: Option<String>,
    /// A parameter of the script: number of tasks, placement, sizes; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    /// The parameter of the script along which a curve goes
    #[arg(long, value_name = "KEY")]
    pub(crate) x: Option<String>,
    /// The metric of the script that is compared, if it is not a rate
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Option<String>,
    /// The policies of a side, in which it differs from the base; may be repeated
    #[arg(long = "policy", value_name = "SIDE:KEY=POLICY,..")]
    pub(crate) policies: Vec<String>,
    /// The machine that was measured: sockets, CPUs, memory, kernel, conditions
    #[arg(long, value_name = "TEXT")]
    pub(crate) measured_on: Option<String>,
    /// The publisher, the place and the date
    #[arg(long, value_name = "TEXT")]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) out: FileArgs,
}
