//! Arms whose memory manager cannot have the pages of a machine, found before anything runs.

use mmscale_frames::page_alloc::AllocConfig;
use mmscale_mm::policy::MECHANISMS;

use crate::machine::MachineSpec;
use crate::study::{ArmId, RunContext, Study};

/// Returns an error for the first arm whose page allocator refuses the pages of a simulated
/// machine.
pub(crate) fn fits_pages(
    study: &dyn Study,
    arms: &[ArmId],
    ctx: &RunContext,
) -> Result<(), String> {
    let Some(profile) = &ctx.profile else { return Ok(()) };
    let base = MachineSpec::new(ctx, 1).mm;
    for &arm in arms {
        let policies = study.policies(arm, &ctx.params, ctx.on);
        let mut mm = base.clone();
        for mechanism in MECHANISMS {
            let chosen = policies.get(mechanism.key).and_then(|name| mechanism.policy(name));
            if let Some(policy) = chosen {
                mechanism.choose(&mut mm, policy);
            }
        }
        // Other settings are the workload's own.
        let pages = AllocConfig { page_kib: mm.alloc.page_kib, ..AllocConfig::default() };
        AllocConfig { caches: mm.alloc.caches, ..pages }.check().map_err(|why| {
            format!(
                "arm `{}` of study `{}` cannot run on profile `{}`: {why}; leave the arm out, or \
                 use a profile with pages of 4 KiB (`mmscale list profiles`)",
                study.arms()[arm.0].name,
                study.name(),
                profile.name
            )
        })?;
    }
    Ok(())
}
