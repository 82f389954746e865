//! The options of `counts`.

use super::Format;

/// Examples of `counts`.
const EXAMPLES: &str = "\
Examples (as root, on an idle computer):
  mmscale counts
  mmscale counts --for 60s --format json";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CountsArgs {
    /// How long every CPU is kept busy first, so that its upkeep ticks are seen: 10s to 10m
    #[arg(long = "for", value_name = "TIME", default_value = "30s")]
    pub(crate) length: String,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}
