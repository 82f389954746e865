//! File names for the documents of one call.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_harness::Plan;

/// Returns file name stems that distinguish plans: study and machine always, and parameters that
/// differ between plans of the same study and machine. Special characters become `_`.
pub(crate) fn stems(plans: &[Plan]) -> Vec<String> {
    let names: Vec<(String, Vec<String>)> = plans.iter().map(|p| (base(p), details(p))).collect();
    // The values of each detail in plans of the same study and machine.
    let mut values: BTreeMap<&str, Vec<BTreeSet<&str>>> = BTreeMap::new();
    for (base, details) in &names {
        let values = values.entry(base).or_default();
        values.resize(details.len().max(values.len()), BTreeSet::new());
        values.iter_mut().zip(details).for_each(|(values, detail)| _ = values.insert(detail));
    }
    let stem = |(base, details): &(String, Vec<String>)| {
        let differing = details.iter().zip(&values[base.as_str()]);
        let differing = differing.filter(|(_, values)| values.len() > 1);
        let stem = differing.fold(base.clone(), |stem, (detail, _)| format!("{stem}-{detail}"));
        let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        stem.chars().map(plain).collect()
    };
    names.iter().map(stem).collect()
}

fn base(plan: &Plan) -> String {
    format!("{}-{}", plan.study.name(), plan.profile_name)
}

fn details(plan: &Plan) -> Vec<String> {
    let mut details = vec![format!("cpus{}", plan.cpus), format!("hz{}", plan.hz)];
    let values = plan.params.values().iter();
    details.extend(values.map(|(name, value)| format!("{name}-{value}")));
    details.extend(plan.costs.iter().map(|(name, value)| format!("{name}-{value}")));
    details
}
