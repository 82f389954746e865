//! Whether a saved document is what it says: its checksum, and means and intervals that are those
//! of its values.

use std::collections::BTreeSet;

use mmscale_document::{ArmRecord, Average, Document, Kept, Metric};
use mmscale_stats as stats;

/// Relative difference of two results of the same formula on different processors.
const ROUNDING: f64 = 1e-9;

/// Returns what is wrong with a document that its checksum does not fit. Documents of earlier
/// versions have none.
pub(super) fn intact(document: &impl Kept) -> Result<(), String> {
    match document.is_intact() {
        Some(false) => Err("its checksum is not that of its contents".to_owned()),
        Some(true) | None => Ok(()),
    }
}

/// Returns what is wrong with a document whose parts contradict each other.
pub fn verify(document: &Document) -> Result<(), String> {
    intact(document)?;
    let names: BTreeSet<&str> = document.arms.iter().map(|arm| arm.arm.as_str()).collect();
    if names.len() < document.arms.len() {
        return Err("two of its arms have the same name".to_owned());
    }
    document.arms.iter().try_for_each(verify_arm)
}

fn verify_arm(arm: &ArmRecord) -> Result<(), String> {
    let seeds: BTreeSet<u64> = arm.seeds.iter().copied().collect();
    if seeds.len() < arm.seeds.len() {
        return Err(format!("arm `{}` has a seed twice", arm.arm));
    }
    for (name, metric) in &arm.metrics {
        let of = format!("`{name}` of arm `{}`", arm.arm);
        if metric.values.len() != arm.seeds.len() {
            let (values, seeds) = (metric.values.len(), arm.seeds.len());
            return Err(format!("{of} has {values} values, and the arm has {seeds} seeds"));
        }
        let (mean, ci95) = summary(metric, arm.first_look);
        // A metric without a value has the mean of another document.
        if let Some(mean) = mean.filter(|&mean| !equal(mean, metric.mean)) {
            let kept = metric.mean;
            return Err(format!("the values of {of} have the mean {mean}, not {kept} as it has"));
        }
        let of_values = |kept: [f64; 2]| {
            ci95.is_some_and(|own| own.iter().zip(kept).all(|(&own, kept)| equal(own, kept)))
        };
        if metric.ci95.is_some_and(|kept| !of_values(kept)) {
            return Err(format!("the interval of {of} is not that of its values"));
        }
    }
    Ok(())
}

/// Returns the mean of a metric's values and its interval.
fn summary(metric: &Metric, first_look: bool) -> (Option<f64>, Option<[f64; 2]>) {
    let values = metric.present();
    let harmonic = metric.average == Average::Harmonic;
    let mean = if harmonic { stats::harmonic_mean(&values) } else { stats::mean(&values) };
    (mean, stats::mean_interval(&values, harmonic, first_look))
}

fn equal(one: f64, other: f64) -> bool {
    one == other || (one - other).abs() <= ROUNDING * one.abs().max(other.abs())
}
