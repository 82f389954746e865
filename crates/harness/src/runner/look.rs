//! The first look at the runs of a plan: which headlines are not settled by a few seeds.

use mmscale_document::Unsettled;
use mmscale_stats::{first_look, holm, is_known, is_precise};

use super::Job;
use crate::plan::Plan;
use crate::study::{ArmId, SeedResult};

/// Returns the headlines that runs of more seeds must settle: those of an arm that neither have
/// changed, tested together, nor have a change that is known precisely enough. Hopeless arms are
/// left out. Without the first arm, or with no other, there are no changes: the headlines must be
/// known.
pub(super) fn unsettled(
    plan: &Plan,
    results: &[(Job, &SeedResult)],
    hopeless: &[ArmId],
) -> Vec<Unsettled> {
    let (base, others) = plan.arms.split_first().expect("a plan has an arm");
    let there = |arm: &&ArmId| !hopeless.contains(arm);
    let others: Vec<&ArmId> = others.iter().filter(there).collect();
    let headlines = || plan.study.metrics().iter().filter(|metric| metric.headline);
    let named = |arm: ArmId, metric: &str| Unsettled {
        arm: plan.study.arms()[arm.0].name.to_string(),
        metric: metric.to_owned(),
    };
    if others.is_empty() || !there(&base) {
        let unknown = |&arm: &ArmId| {
            let unknown = headlines().filter(move |metric| {
                let values = values(arm, metric.name, results);
                !values.is_empty() && !is_precise(&values.iter().map(|of| of.1).collect::<Vec<_>>())
            });
            unknown.map(|metric| named(arm, metric.name)).collect::<Vec<_>>()
        };
        return plan.arms.iter().filter(there).flat_map(unknown).collect();
    }
    let of_arm = |&arm: &ArmId| {
        let there = headlines().filter_map(|metric| {
            let before = values(*base, metric.name, results);
            let after = values(arm, metric.name, results);
            let pair = |&(seed, from): &(u64, f64)| {
                let to = after.iter().find(|of| of.0 == seed)?.1;
                Some((from, to))
            };
            let pairs: Vec<(f64, f64)> = before.iter().filter_map(pair).collect();
            let measured = !before.is_empty() || !after.is_empty();
            measured.then(|| (metric.name, first_look(&pairs)))
        });
        let (names, changes): (Vec<&str>, Vec<_>) = there.unzip();
        let held = holm(&changes.iter().map(|of| of.map_or(1.0, |of| of.p)).collect::<Vec<_>>());
        let open = names
            .into_iter()
            .zip(changes)
            .zip(held)
            .filter(|((_, change), held)| !held && !change.as_ref().is_some_and(is_known));
        open.map(|((name, _), _)| named(arm, name)).collect::<Vec<_>>()
    };
    others.into_iter().flat_map(of_arm).collect()
}

/// Returns the values of a metric of an arm, by seed.
fn values(arm: ArmId, metric: &str, results: &[(Job, &SeedResult)]) -> Vec<(u64, f64)> {
    let own = results.iter().filter(|(job, _)| job.arm == arm);
    own.filter_map(|(job, result)| Some((job.seed, result.metrics.get(metric)?.as_f64()))).collect()
}
