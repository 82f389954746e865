//! File names for the documents of one call.

use std::collections::BTreeSet;

use mmscale_study::Plan;

/// What tells one plan's file from another's: the study and the machine always, and with them what
/// differs between plans of the same study and machine. Characters that are awkward in file names
/// become `_`.
pub(crate) fn stems(plans: &[Plan]) -> Vec<String> {
    let names: Vec<(String, Vec<String>)> = plans.iter().map(|p| (base(p), details(p))).collect();
    let stem = |(base, details): &(String, Vec<String>)| {
        let mut stem = base.clone();
        for (place, detail) in details.iter().enumerate() {
            let same_base = names.iter().filter(|(other, _)| other == base);
            let values: BTreeSet<&String> = same_base.map(|(_, other)| &other[place]).collect();
            if values.len() > 1 {
                stem.push('-');
                stem.push_str(detail);
            }
        }
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
    details
}
