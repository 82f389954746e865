//! The arms of a plan: those of the study or the call, and whether they can run.

use mmscale_document::Target;
use mmscale_frames::page_alloc::AllocConfig;
use mmscale_mm::policy::MECHANISMS;

use super::{CallError, Plan, Request};
use crate::machine::{BATCH, BATCH_SCALE, HIGH_FRACTION, MachineSpec, allocator_params};
use crate::names::UnknownName;
use crate::param::Length;
use crate::study::guest;
use crate::study::versions::{self, OtherVersion};
use crate::study::{ArmId, Interrupt, PolicyError, Progress, RunContext, Study};

/// Returns the study with the policies of the requested version of Linux.
pub(super) fn on_version(study: &Study, on: Target, request: &Request) -> Result<Study, CallError> {
    let Some(version) = request.linux else { return Ok(study.clone()) };
    if on == Target::Live {
        return Err(CallError::Other(format!(
            "--linux {version} chooses the mechanisms of a simulated kernel, and --on live runs \
             the installed one, Linux {}; leave one of them out",
            versions::running()
        )));
    }
    Ok(study.on_version(version)?)
}

/// Returns the requested arms, and the study extended by arms that the call creates.
pub(super) fn arms_of(
    study: Study,
    on: Target,
    request: &Request,
) -> Result<(Study, Vec<ArmId>), CallError> {
    let mut arms = named_arms(&study, on, &request.arms)?;
    if request.policies.is_empty() {
        return Ok((study, arms));
    }
    if request.arms.is_empty() {
        arms.truncate(1);
    }
    let own = study.arms().len();
    let study = study.with_arms(&request.policies)?;
    for (at, arm) in request.policies.iter().enumerate() {
        let id = ArmId(own + at);
        if !study.has_arm(id, on) {
            return Err(PolicyError::NotLive { arm: arm.to_string() }.into());
        }
        arms.push(id);
    }
    Ok((study, arms))
}

fn named_arms(study: &Study, on: Target, names: &[String]) -> Result<Vec<ArmId>, CallError> {
    let all = study.arms();
    let there: Vec<ArmId> =
        (0..all.len()).map(ArmId).filter(|&arm| study.has_arm(arm, on)).collect();
    if names.is_empty() {
        return Ok(there);
    }
    let mut arms = Vec::new();
    for name in names {
        let place = all
            .iter()
            .position(|arm| arm.name == *name)
            .ok_or_else(|| UnknownName::new("arm", name, all.iter().map(|arm| &*arm.name)))?;
        let arm = ArmId(place);
        if let Some(OtherVersion { chosen: (key, policy), has }) = study.of_another_version(arm)
            && on != Target::Live
        {
            return Err(CallError::Other(format!(
                "arm `{name}` of study `{}` has {key}={policy}, and the version of --linux has \
                 {key}={has}; leave the arm or --linux out, or choose another version \
                 (`mmscale list linux`)",
                study.name()
            )));
        }
        if !there.contains(&arm) {
            let here: Vec<_> = there.iter().map(|arm| &*all[arm.0].name).collect();
            return Err(CallError::Other(format!(
                "arm `{name}` does not exist on --on {on}, which runs the installed kernel; \
                 available: {}",
                here.join(", ")
            )));
        }
        if arms.contains(&arm) {
            return Err(CallError::Other(format!("arm `{name}` is named twice; name it once")));
        }
        arms.push(arm);
    }
    Ok(arms)
}

/// Policies that ignore parameters: mechanism, policy, parameters, and why.
const IGNORED: [(&str, &str, &[&str], &str); 3] = [
    ("caches", "blockmap", &[HIGH_FRACTION, BATCH, BATCH_SCALE], "CPUs own blocks of bits"),
    ("high", "watermark", &[BATCH_SCALE], "a refill has one batch"),
    ("high", "batches", &[BATCH_SCALE], "a refill has one batch"),
];

impl Plan {
    /// Returns an error if no run of the plan can give a result.
    pub(super) fn check(&self) -> Result<(), CallError> {
        let ctx = self.context(&Interrupt::default(), Progress::default());
        self.study.refuse(&ctx).map_err(|why| {
            let name = self.study.name();
            CallError::Other(format!("study `{name}` cannot run with these parameters: {why}"))
        })?;
        self.fits_pages(&ctx).and_then(|()| self.heeds(&ctx)).map_err(CallError::Other)
    }

    /// Returns an error for the first arm whose page allocator refuses the pages of a simulated
    /// machine.
    fn fits_pages(&self, ctx: &RunContext) -> Result<(), String> {
        let Some(profile) = &ctx.profile else { return Ok(()) };
        let base = MachineSpec::new(ctx, 1).mm;
        for &arm in &self.arms {
            let policies = self.study.policies(arm, &ctx.params, ctx.on);
            let mut mm = base.clone();
            for mechanism in MECHANISMS {
                let chosen = policies.get(mechanism.key).and_then(|name| mechanism.policy(name));
                if let Some(policy) = chosen {
                    mechanism.choose(&mut mm, policy);
                }
            }
            // Other settings are the workload's own.
            let pages = AllocConfig { page_kib: mm.alloc.page_kib, ..AllocConfig::default() };
            let file = policies.get(guest::KEY).and_then(|policy| guest::file_of(policy));
            let guest = file.and_then(|file| guest::load(file).ok());
            AllocConfig { caches: mm.alloc.caches, guest, ..pages }.check().map_err(|why| {
                format!(
                    "arm `{}` of study `{}` cannot run on profile `{}`: {why}; leave the arm out, \
                     or use a profile with pages of 4 KiB (`mmscale list profiles`)",
                    self.study.arms()[arm.0].name,
                    self.study.name(),
                    profile.name
                )
            })?;
        }
        Ok(())
    }

    /// Returns an error for the first arm in which a parameter that was set has no effect.
    fn heeds(&self, ctx: &RunContext) -> Result<(), String> {
        let specs = allocator_params();
        let set = |name: &str| {
            let spec = specs.iter().find(|spec| spec.name == name)?;
            let value = ctx.params.values().get(name)?;
            (*value != spec.default(Length::Full)).then_some(value)
        };
        for &arm in &self.arms {
            let policies = self.study.policies(arm, &ctx.params, ctx.on);
            for (mechanism, policy, ignored, why) in IGNORED {
                let has = policies.get(mechanism).is_some_and(|name| name == policy);
                let Some(name) = ignored.iter().find(|name| has && set(name).is_some()) else {
                    continue;
                };
                return Err(format!(
                    "{name} has no effect in arm `{}` of study `{}`, which has \
                     {mechanism}={policy}: {why}; leave the arm out, as in --arm {}",
                    self.study.arms()[arm.0].name,
                    self.study.name(),
                    self.study.arms()[0].name
                ));
            }
        }
        Ok(())
    }
}
