//! `cargo xtask signs QUICK FULL`: checks that quick runs lead to the same conclusions as full
//! runs.
//!
//! A reader of a quick run draws conclusions from the signs of its changes. The change of an arm
//! against the first arm must not have opposite signs in the quick and the full run, if either run
//! resolves it: the 95 % interval of its pairs of seeds excludes that nothing changed. Changes
//! below 1 % are noise, and so is a quick change whose pairs of seeds disagree in direction.

use std::collections::BTreeMap;
use std::path::Path;

use mmscale_document::{ArmRecord, Document};
use mmscale_report::{MetricChange, changes};

/// Minimum change, as a share, that counts.
const LEAST: f64 = 0.01;

/// Compares the documents of two folders, by file name.
///
/// # Errors
/// The changes with opposite signs, and metrics that the quick run lacks without a reason.
pub fn check(quick: &Path, full: &Path) -> Result<String, String> {
    let quick: BTreeMap<String, Document> = crate::folder::read(quick)?;
    let full: BTreeMap<String, Document> = crate::folder::read(full)?;
    let (mut compared, mut findings) = (0, Vec::new());
    for (name, full) in &full {
        match quick.get(name) {
            None => findings.push(format!("{name}: the quick run has no such document")),
            Some(quick) => {
                let found = compare(quick, full, &mut compared);
                findings.extend(found.into_iter().map(|what| format!("{name}: {what}")));
            }
        }
    }
    if compared == 0 {
        findings.push("the folders have no documents to compare".to_owned());
    }
    if findings.is_empty() {
        return Ok(format!("signs: {compared} changes of quick and full runs, none contradicts"));
    }
    Err(findings.join("\n"))
}

fn compare(quick: &Document, full: &Document, compared: &mut usize) -> Vec<String> {
    let mut findings = Vec::new();
    let (Some(full_base), Some(quick_base)) = (full.arms.first(), quick.arms.first()) else {
        return vec!["the quick document has no arm".to_owned()];
    };
    for name in full_base.metrics.keys() {
        if !quick_base.metrics.contains_key(name) && !quick.left_out.contains_key(name) {
            findings.push(format!("{name} is missing in the quick run without a reason"));
        }
    }
    for full_arm in full.arms.iter().skip(1) {
        let Some(quick_arm) = quick.arms.iter().find(|arm| arm.arm == full_arm.arm) else {
            findings.push(format!("the quick run has no arm {}", full_arm.arm));
            continue;
        };
        let quick_changes = changes(quick_base, quick_arm);
        for (name, full) in changes(full_base, full_arm) {
            let Some(quick) = quick_changes.get(name) else { continue };
            let (quick, full) = (change(quick), change(&full));
            *compared += 1;
            if quick.contradicts(full) && pairs_agree(quick_base, quick_arm, name) {
                let arm = &full_arm.arm;
                findings.push(format!("{arm}: {name}: quick {quick}, full {full}"));
            }
        }
    }
    findings
}

/// Returns whether a metric changes in the same direction in all pairs of seeds. A quick run has
/// two seeds; if they disagree, its reader draws no conclusion.
fn pairs_agree(base: &ArmRecord, arm: &ArmRecord, name: &str) -> bool {
    let by_seed = |arm: &ArmRecord| -> BTreeMap<u64, f64> {
        let values = arm.metrics.get(name).map_or(&[][..], |metric| &metric.values[..]);
        let values = arm.seeds.iter().copied().zip(values.iter().copied());
        values.filter_map(|(seed, value)| Some((seed, value?.as_f64()))).collect()
    };
    let after = by_seed(arm);
    let pairs = by_seed(base).into_iter();
    let up = pairs.filter_map(|(seed, value)| Some(*after.get(&seed)? > value));
    let up: Vec<bool> = up.collect();
    up.iter().all(|&one| one == up[0])
}

/// The change of a metric against the first arm.
#[derive(Clone, Copy)]
struct Change {
    /// The change as a share; 1 from a mean of 0.
    share: f64,
    resolved: bool,
}

impl Change {
    fn contradicts(self, other: Self) -> bool {
        let claims = |change: Self| change.resolved && change.share.abs() >= LEAST;
        self.share * other.share < 0.0 && (claims(self) || claims(other))
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.resolved { "" } else { "~" };
        write!(f, "{mark}{:+.1} %", self.share * 100.0)
    }
}

fn change(found: &MetricChange) -> Change {
    let change = &found.change;
    // From 0, any change is a whole one.
    let from_none = if change.unchanged { 0.0 } else { change.estimate.signum() };
    let share = change.percent().map_or(from_none, |percent| percent / 100.0);
    Change { share, resolved: change.is_clear() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(share: f64, resolved: bool) -> Change {
        Change { share, resolved }
    }

    #[test]
    fn opposite_signs_contradict_if_either_is_resolved() {
        assert!(of(0.7, true).contradicts(of(-0.4, true)));
        assert!(of(0.7, false).contradicts(of(-0.4, true)));
        assert!(!of(0.7, false).contradicts(of(-0.4, false)));
        assert!(!of(0.7, true).contradicts(of(0.4, true)));
        assert!(!of(0.0, true).contradicts(of(-0.4, true)));
        assert!(!of(0.005, true).contradicts(of(-0.4, false)));
    }
}
