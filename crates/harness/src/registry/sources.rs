//! Studies of their sources: a `study.toml` with a [`Workload`], or a script.

use super::file::StudyFile;
use super::scripted::{HEADLINES, Scripted, specs_of};
use crate::machine::{allocator_params, machine_params, watch_param};
use crate::names::UnknownName;
use crate::param::ParamSet;
use crate::study::versions::running;
use crate::study::{self, Arm, ArmSpec, Defaults, FileError, MetricSpec, Source, Study, StudyInfo};
use crate::workload::{Typed, Workload};
use mmscale_document::{Fingerprint, Target};
use mmscale_script::Script;
use mmscale_sim::profile::Profiles;
use std::path::Path;
use std::sync::Arc;

/// The start of a run of a script, before its window.
const SCRIPT_START: &str = "programs are created and prepare, all begin together at `start`, and \
                            warm_ms later the window opens; nothing before it counts";

/// The machine of a script that chooses none: its profile and number of CPUs.
pub(super) const SCRIPT_MACHINE: (&str, usize) = ("x86-512", 32);

/// Returns the study of a file and a workload: names, arms and defaults are from the file, programs
/// and metrics from the workload.
pub(crate) fn of_file<W: Workload>(
    source: Source,
    profiles: &Profiles,
) -> Result<Study, FileError> {
    let (text, file_hash) = source.read()?;
    let file = StudyFile::parse(source.study, &text, W::CHOICES)?;
    let profile = profiles.load(&file.profile).map_err(|why| file.error(why))?;

    let mut params = file.params(W::Params::specs())?;
    let params_quick_large = file.params_quick_large(&params)?;
    let mut params_on_live = file.params_on_live(&params)?;
    params.extend(machine_params());
    params.extend(allocator_params());
    params_on_live.push(watch_param());
    for name in W::Params::NOT_LIVE {
        assert!(params.iter().any(|spec| spec.name == *name), "there is no parameter {name}");
    }

    let info = StudyInfo {
        name: source.study.to_owned(),
        defaults: Defaults {
            machines: machines(&file.arms),
            cpus: file.cpus.unwrap_or(profile.topology.cpus),
            profile: file.profile.clone(),
            hz: 1000,
        },
        params,
        params_quick_large,
        params_on_live,
        not_live: W::Params::NOT_LIVE,
        metrics: file.metrics(W::METRICS.iter().map(|metric| metric.spec).collect())?,
        choices: Some(W::CHOICES),
        file_hash,
        script: None,
        summary: file.summary,
        start: file.start,
        report: file.report,
    };
    Ok(Study::new(info, file.arms, Typed::<W>::new(None)))
}

/// Returns the study of a script, which has the arm `stock` and those of the script. The error is
/// one of a name: a profile, a policy, or a parameter.
pub(crate) fn of_script(script: Script, profiles: &Profiles) -> Result<Study, String> {
    let profile = script.profile().unwrap_or(SCRIPT_MACHINE.0).to_owned();
    let loaded = profiles.load(Path::new(&profile)).map_err(|why| why.to_string())?;
    let cpus = match script.profile() {
        Some(_) => script.cpus().unwrap_or(loaded.topology.cpus),
        None => SCRIPT_MACHINE.1,
    };

    let [mut params, mut params_on_live] = specs_of(&script)?;
    params.extend(machine_params());
    params.extend(allocator_params());
    params_on_live.push(watch_param());

    let arms = arms_of_script(&script)?;
    let metrics = Scripted::METRICS.iter().map(|metric| MetricSpec {
        headline: HEADLINES.contains(&metric.spec.name),
        ..metric.spec
    });
    let mut hash = Fingerprint::new();
    hash.add_str(&script.content());

    let script = Arc::new(script);
    let info = StudyInfo {
        name: script.name().to_owned(),
        summary: script.summary(),
        start: Some(SCRIPT_START.to_owned()),
        report: None,
        defaults: Defaults { machines: machines(&arms), profile, cpus, hz: 1000 },
        params_quick_large: params.clone(),
        params,
        params_on_live,
        not_live: &[],
        metrics: metrics.collect(),
        choices: Some(&[]),
        file_hash: Some(hash.to_hex()),
        script: Some(Arc::clone(&script)),
    };
    Ok(Study::new(info, arms, Typed::<Scripted>::new(Some(script))))
}

fn arms_of_script(script: &Script) -> Result<Vec<ArmSpec>, String> {
    let mut arms = vec![ArmSpec::new("stock", "Linux")];
    for own in script.arms() {
        let unknown = |why: UnknownName| format!("arm {}: {why}", own.name);
        let mut choices = Arm::default();
        for (given, policy) in &own.choices {
            let key = study::keys(&[])
                .find(|key| key == given)
                .ok_or_else(|| unknown(UnknownName::new("mechanism", given, study::keys(&[]))))?;
            choices.choose(key, study::value(key, policy, &[]).map_err(unknown)?);
        }
        let list: Vec<String> =
            own.choices.iter().map(|(key, policy)| format!("{key}={policy}")).collect();
        arms.push(ArmSpec { name: own.name.clone(), help: list.join(", "), choices });
    }
    Ok(arms)
}

/// Returns the machines on which any of the arms can run, the default first.
fn machines(arms: &[ArmSpec]) -> &'static [Target] {
    if arms.iter().any(|arm| arm.choices.is_linux(running())) {
        &[Target::Sim, Target::Threads, Target::Live]
    } else {
        &[Target::Sim, Target::Threads]
    }
}
