//! The settings of a call.

use mmscale_harness::{CallError, Settings};

use crate::failure::Failure;

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
