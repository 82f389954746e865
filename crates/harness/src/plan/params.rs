//! Parameters of a plan: the keys of the call, and defaults that depend on machine and version.

use mmscale_document::{ParamValue, Target};
use mmscale_mm::versions::policies_of;

use super::machine::Usual;
use super::{CallError, Request};
use crate::param::{Length, ParamSpec, Params, Settings};
use crate::study::Study;

/// Returns an error for a key that none of the studies has. Studies that do not have a key ignore
/// it.
pub(super) fn check_keys(studies: &[Study], settings: &Settings) -> Result<(), CallError> {
    let mut known: Vec<ParamSpec> = Usual::ANY.params().into();
    for study in studies {
        for spec in study.params().iter().chain(study.params_on(Target::Live)) {
            if !known.iter().any(|other| other.name == spec.name) {
                known.push(spec.clone());
            }
        }
    }
    for key in settings.keys() {
        ParamSpec::find(&known, key)?;
    }
    Ok(())
}

/// Returns an error if a parameter is set that does not apply to this machine.
pub(super) fn check_machine(
    study: &Study,
    on: Target,
    specs: &[ParamSpec],
    settings: &Settings,
) -> Result<(), CallError> {
    let elsewhere = |key: &&str| {
        let has = |specs: &[ParamSpec]| specs.iter().any(|spec| spec.name == *key);
        let known = has(study.params()) || has(study.params_on(Target::Live));
        known && !(has(specs) && study.takes(key, on))
    };
    match settings.keys().find(elsewhere) {
        Some(key) => Err(CallError::Other(format!(
            "parameter `{key}` of `{}` does not apply to --on {on}; leave it out",
            study.name()
        ))),
        None => Ok(()),
    }
}

/// Gives parameters that the call does not set the defaults of a quick run of a large machine.
pub(super) fn shorten(params: &mut Params, study: &Study, settings: &Settings) {
    for spec in study.params_quick_large() {
        let value = spec.default(Length::Quick);
        let usual = study.params().iter().find(|usual| usual.name == spec.name);
        let differs = usual.is_some_and(|usual| usual.default(Length::Quick) != value);
        if differs && !settings.keys().any(|key| key == spec.name) {
            params.set(&spec.name, value);
        }
    }
}

/// Gives parameters that are mechanisms the policies of the requested version of Linux. Returns an
/// error if the call sets one to another policy.
pub(super) fn set_version(params: &mut Params, request: &Request) -> Result<(), CallError> {
    let Some(version) = request.linux else { return Ok(()) };
    for (mechanism, policy) in policies_of(version) {
        let key = mechanism.key;
        let Some(value) = params.values().get(key).map(ToString::to_string) else { continue };
        if value != policy.name && request.settings.keys().any(|set| set == key) {
            return Err(CallError::Other(format!(
                "--set {key}={value} contradicts --linux {version}, which has {key}={}; leave one \
                 of them out, or add an arm with --policy {key}={value}",
                policy.name
            )));
        }
        params.set(key, ParamValue::Choice(policy.name.to_owned()));
    }
    Ok(())
}
