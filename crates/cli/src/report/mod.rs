//! `mmscale report`: saved runs as one page with pictures, or as the block for a cover letter.

mod calls;
mod letter;
mod page;

use mmscale_harness::Registry;

use crate::args::ReportArgs;
use crate::failure::Failure;

/// Writes the page, or prints the letter.
pub(crate) fn report(registry: &Registry, args: &ReportArgs) -> Result<(), Failure> {
    if args.letter { letter::letter(registry, args) } else { page::page(registry, args) }
}
