//! Replacements for commands that need the live kernel, in a program that was built without it.

use mmscale_harness::{Registry, Request};

use crate::args::{CountsArgs, Format, LiveArgs, RunArgs};
use crate::failure::Failure;

fn refused(what: &str) -> Result<(), Failure> {
    Err(Failure::Call(anyhow::anyhow!(
        "this program was built without the feature `live`, which {what} needs: build it on Linux \
         with default features"
    )))
}

pub(crate) fn ab(_: &Registry, _: &Request, _: &str, _: Format) -> Result<(), Failure> {
    refused("--ab")
}
pub(crate) fn with(_: &RunArgs, _: Format) -> Result<(), Failure> {
    refused("--with")
}
pub(crate) fn counts(_: &mmscale_document::Build, _: &CountsArgs) -> Result<(), Failure> {
    refused("`counts`")
}
pub(crate) fn live(_: &LiveArgs) -> Result<(), Failure> {
    refused("`live`")
}
pub(crate) fn doctor(_: Format) -> Result<(), Failure> {
    refused("`doctor`")
}
/// Nothing to clean up: there were no runs on a live kernel.
pub(crate) fn clear() {}
/// Nothing to report: planning refuses the live kernel.
pub(crate) fn tell() {}
