//! What a program without the live kernel says where it is asked for it.

use mmscale_harness::{Registry, Request};

use crate::args::{Format, LiveArgs, RunArgs};
use crate::failure::Failure;

fn refused(what: &str) -> Result<(), Failure> {
    Err(Failure::Call(anyhow::anyhow!(
        "this program was built without the live kernel, which {what} needs: build it on Linux \
         with its default features"
    )))
}

pub(crate) fn ab(_: Registry, _: &Request, _: &str, _: Format) -> Result<(), Failure> {
    refused("--ab")
}
pub(crate) fn with(_: &RunArgs) -> Result<(), Failure> {
    refused("--with")
}
pub(crate) fn live(_: &LiveArgs) -> Result<(), Failure> {
    refused("`live`")
}
pub(crate) fn doctor(_: Format) -> Result<(), Failure> {
    refused("`doctor`")
}
/// No run on a live kernel has left anything.
pub(crate) fn clear() {}
/// Plans with the live kernel are refused before.
pub(crate) fn tell() {}
