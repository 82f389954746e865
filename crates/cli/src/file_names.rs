//! File names for the documents of one call.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_harness::Plan;

/// Returns file name stems that distinguish plans, those of other calls included: study and machine
/// always, then each setting that differs from its default or between plans of the same study and
/// machine. Special characters become `_`.
pub(crate) fn stems(plans: &[Plan]) -> Vec<String> {
    let names: Vec<(String, Vec<(String, bool)>)> = plans
        .iter()
        .map(|plan| (format!("{}-{}", plan.study.name(), plan.profile_name), plan.named_settings()))
        .collect();
    // The values of each setting in plans of the same study and machine.
    let mut values: BTreeMap<&str, Vec<BTreeSet<&str>>> = BTreeMap::new();
    for (base, settings) in &names {
        let values = values.entry(base).or_default();
        values.resize(settings.len().max(values.len()), BTreeSet::new());
        values.iter_mut().zip(settings).for_each(|(values, (word, _))| _ = values.insert(word));
    }
    let stem = |(base, settings): &(String, Vec<(String, bool)>)| {
        let named = settings.iter().zip(&values[base.as_str()]);
        let named = named.filter(|((_, differs), values)| *differs || values.len() > 1);
        let stem = named.fold(base.clone(), |stem, ((word, _), _)| format!("{stem}-{word}"));
        let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        stem.chars().map(plain).collect()
    };
    names.iter().map(stem).collect()
}
