//! Requests of simulated runs, before the options of a command change them.

use mmscale_document::Target;
use mmscale_harness::{CallError, Origin, Request, Settings};

use crate::failure::Failure;

/// Returns the request of studies as they are: all arms, full runs, no checkers.
pub(crate) fn simulated(studies: Vec<String>, origin: Origin) -> Request {
    Request { on: Some(Target::Sim), origin, ..Request::of(studies) }
}

/// Returns the settings of a call: those of `--set`, with CPUs and HZ.
pub(crate) fn settings(
    set: &[String],
    cpus: Option<&str>,
    hz: Option<&str>,
) -> Result<Settings, Failure> {
    let mut settings = Settings::parse(set).map_err(CallError::from)?;
    for (key, value) in [("cpus", cpus), ("hz", hz)] {
        if let Some(value) = value {
            settings.add(key, value).map_err(CallError::from)?;
        }
    }
    Ok(settings)
}
