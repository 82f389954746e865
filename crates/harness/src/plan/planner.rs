//! From a request to plans: study, machine, version, arms, parameters.

use std::sync::Arc;

use mmscale_sim::profile::Profiles;
use mmscale_stats as stats;

use super::arms::{arms_of, on_version};
use super::machine::{Usual, check_options, is_large, machines, shaped, target};
use super::params::{check_keys, check_machine, set_version, shorten};
use super::{CallError, Plan, Request};
use crate::param::{Length, MAX_DOCUMENTS, ParamError, sweep};
use crate::registry::{NoStudy, Registry};
use crate::study::Study;

/// Default number of seeds. With seven pairs of runs, each of two or three headlines can hold
/// (`mmscale_stats::pairs_needed`); with six, only a single one.
pub const SEEDS: u64 = 7;

/// Maximum number of seeds of one call.
const MAX_SEEDS: u64 = 10_000;

/// Checks a request and returns its plans, one per document: study by study, and each combination
/// of swept values.
pub fn plan(registry: &Registry, request: &Request) -> Result<Vec<Plan>, CallError> {
    let studies = studies(registry, &request.studies)?;
    check_keys(&studies, &request.settings)?;

    let mut plans = Vec::new();
    for study in &studies {
        plans.extend(plans_of(study, registry.profiles(), request)?);
    }
    if plans.len() > MAX_DOCUMENTS {
        return Err(ParamError::TooMany { count: plans.len() }.into());
    }
    plans.iter().try_for_each(Plan::check)?;
    Ok(plans)
}

/// Returns the named studies.
fn studies(registry: &Registry, names: &[String]) -> Result<Vec<Study>, CallError> {
    let mut studies: Vec<Study> = Vec::new();
    for name in names {
        let named: Vec<_> = match (name.as_str(), registry.broken()) {
            ("all", [why, ..]) => return Err(NoStudy::Broken(why.clone()).into()),
            ("all", []) => registry.all().cloned().collect(),
            _ => vec![registry.find(name)?],
        };
        for study in named {
            if studies.iter().any(|other| other.name() == study.name()) {
                return Err(CallError::Other(format!(
                    "study `{}` is named twice; name it once, or only `all`",
                    study.name()
                )));
            }
            studies.push(study);
        }
    }
    if studies.is_empty() {
        return Err(CallError::Other("no study is named; `mmscale list` shows all".to_owned()));
    }
    Ok(studies)
}

/// Returns the plans of one study: on each of the machines, each combination of swept values.
fn plans_of(study: &Study, profiles: &Profiles, request: &Request) -> Result<Vec<Plan>, CallError> {
    let on = target(study, request)?;
    check_options(on, request)?;
    let machines = machines(study, on, profiles, request)?;
    let study = on_version(study, on, request)?;
    let (study, arms) = arms_of(study, on, request)?;
    let seeds = seeds(request)?;
    // Without headlines there is nothing to look at.
    let looks = request.look && study.metrics().iter().any(|metric| metric.headline);

    let usual = Usual::of(&study, on, &machines[0], request)?;
    let mut specs = usual.params().to_vec();
    specs.extend(study.params_on(on).iter().cloned());
    check_machine(&study, on, &specs, &request.settings)?;
    let points = sweep(&specs, &request.settings.only(&specs), request.length)?;

    let mut plans = Vec::new();
    for (costs, profile) in &machines {
        for point in &points {
            let (cpus, hz, mut params) = Usual::split(point);
            let shaped = profile.as_ref().map(|own| shaped(own, cpus, hz, request.shape));
            let (profile, topology) = shaped.transpose()?.unzip();
            set_version(&mut params, request)?;
            let is_short = is_large(on, cpus) && request.length == Length::Quick;
            if is_short {
                shorten(&mut params, &study, &request.settings);
            }
            let few = is_short && request.seeds.is_none() && !request.look;
            plans.push(Plan {
                study: study.clone(),
                on,
                usual,
                profile_name: profile.as_ref().map_or("host".to_owned(), |p| p.name.clone()),
                profile: profile.map(Arc::new),
                costs: costs.clone(),
                topology,
                cpus,
                hz,
                params,
                arms: arms.clone(),
                linux: request.linux,
                seeds: if few { seeds[..1].into() } else { Arc::clone(&seeds) },
                look: looks.then_some(stats::FIRST_LOOK),
                length: request.length,
                checks: request.checks,
                blame: request.blame,
                hold_scale: request.hold_scale,
                origin: request.origin.clone(),
            });
        }
    }
    Ok(plans)
}

/// Returns the seeds of each arm.
fn seeds(request: &Request) -> Result<Arc<[u64]>, CallError> {
    let few = match request.length {
        _ if request.look => stats::SECOND_LOOK as u64,
        Length::Quick => 2,
        Length::Full => SEEDS,
    };
    let count = request.seeds.unwrap_or(few);
    if count == 0 || count > MAX_SEEDS {
        return Err(CallError::Other(format!(
            "cannot run {count} seeds; allowed: --seeds 1 to {MAX_SEEDS}"
        )));
    }
    let end = request.first_seed.checked_add(count).ok_or_else(|| {
        CallError::Other(format!(
            "cannot run {count} seeds that start with --seed {}: seeds are 64-bit numbers",
            request.first_seed
        ))
    })?;
    Ok((request.first_seed..end).collect())
}
