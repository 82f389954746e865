//! A what-if analysis as text: for each metric, what it gains if one thing takes less time.

use mmscale_document::{PlainMetric, Scaled, ScaledPoint, WaitShare, WhatIf, machine_name};

use super::{WIDTH, cut, joined, wrap};
use crate::number::{change, percent, scaled};
use crate::words;

/// Locks named of each limit.
const NAMED: usize = 2;
/// Minimum share of the CPU time for which a lock is named.
const SHOWN: f64 = 0.01;

/// Formats a what-if analysis, with lines of at most [`WIDTH`] columns.
pub fn whatif_text(whatif: &WhatIf) -> String {
    let mut lines = head(whatif);
    for metric in whatif.metrics.iter().filter(|metric| has_changes(whatif, &metric.name)) {
        lines.push(String::new());
        lines.extend(of_metric(whatif, metric));
    }
    joined(lines)
}

fn head(whatif: &WhatIf) -> Vec<String> {
    let hash = whatif.profile_hash.get(..8).unwrap_or(&whatif.profile_hash);
    let title = format!(
        "{}, {}: what if one thing took less time, or more? {} CPUs of {} ({hash}), number of \
         seeds: {}",
        whatif.study,
        whatif.arm,
        whatif.cpus,
        machine_name(&whatif.profile, &whatif.params),
        whatif.seeds.len()
    );
    let mut lines = wrap(&title, "", "  ");
    if let Some(short) = words::short_analysis(whatif.rounds_min) {
        lines.extend(wrap(&short, "", "  "));
    }
    if let Some(few) = words::too_few(whatif.seeds.len(), 1) {
        lines.extend(wrap(&few, "", "  "));
    }
    lines.extend(wrap(&format!("as it is: {}", limits(&whatif.limits)), "", "  "));
    lines
}

/// Returns whether changes of a metric can be given in percent. Those of a mean of 0 cannot.
fn has_changes(whatif: &WhatIf, metric: &str) -> bool {
    let mut points = whatif.scaled.iter().flat_map(|scaled| &scaled.points);
    points.any(|point| point.percent.contains_key(metric))
}

fn of_metric(whatif: &WhatIf, metric: &PlainMetric) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", metric.name, scaled(metric.mean, &metric.unit))];
    let factors = whatif.scaled.first().map_or(&[][..], |first| &first.points);
    let cells: String =
        factors.iter().map(|point| format!("{:>9}", format!("x {}", point.factor))).collect();
    let first = factors.first().map_or(String::new(), |point| format!("x {}", point.factor));
    lines.push(format!("  {:<18}{cells}{:>7}  at {first}", "time of", "slope"));
    lines.extend(whatif.scaled.iter().map(|scaled| row(scaled, &metric.name)));
    lines
}

fn row(scaled: &Scaled, metric: &str) -> String {
    let cell = |point: &ScaledPoint| {
        format!("{:>9}", point.percent.get(metric).map_or("-".to_owned(), |&x| change(x)))
    };
    let cells: String = scaled.points.iter().map(cell).collect();
    let slope = scaled.slope(metric).map_or("-".to_owned(), |slope| format!("{slope:+.2}"));
    let then = scaled.points.first().map_or(String::new(), |point| limits(&point.limits));
    cut(&format!("  {:<18}{cells}{slope:>7}  {then}", cut(&scaled.what, 18)), WIDTH)
}

/// Names the locks that CPUs wait for.
fn limits(limits: &[WaitShare]) -> String {
    let named: Vec<String> = limits
        .iter()
        .filter(|limit| limit.share >= SHOWN)
        .take(NAMED)
        .map(|limit| format!("{} {}", limit.class, percent(100.0 * limit.share)))
        .collect();
    if named.is_empty() { "no lock".to_owned() } else { named.join(", ") }
}
