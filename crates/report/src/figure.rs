//! A metric as a table cell: the mean, the spread over seeds, the change between arms.

use mmscale_document::Metric;

use crate::changes::MetricChange;
use crate::number::{change as signed, percent, scaled};

/// Formats the mean in a unit of convenient size; `-` without a metric.
pub fn mean(metric: Option<&Metric>) -> String {
    metric.map_or("-".to_owned(), |m| scaled(m.mean, &m.unit))
}

/// Formats the sample standard deviation in percent of the mean. `None` for a single seed or a mean
/// of 0.
pub fn spread(metric: Option<&Metric>) -> Option<String> {
    metric.and_then(Metric::stddev_percent).map(percent)
}

/// Formats the paired change in percent. A leading `~` means that no change is shown: its 95 %
/// interval includes that nothing changed. Without an interval there is no mark.
pub fn change(found: Option<&MetricChange>) -> String {
    let Some(found) = found else { return "-".to_owned() };
    let unclear = found.change.ci95.is_some() && !found.change.is_clear();
    let mark = if unclear && !found.change.unchanged { "~" } else { "" };
    format!("{mark}{}", estimate(found))
}

/// Returns the mark of a change that holds over seeds.
pub(crate) fn star(found: Option<&MetricChange>) -> &'static str {
    if found.is_some_and(|found| found.holds == Some(true)) { "*" } else { "" }
}

/// Formats the paired change in percent, without a mark.
pub(crate) fn estimate(found: &MetricChange) -> String {
    match found.change.percent() {
        None if found.change.unchanged => "0.0%".to_owned(),
        None => "from 0".to_owned(),
        Some(x) => signed(x),
    }
}

/// Formats the 95 % interval of the paired change in percent; empty without one, or if all pairs
/// are equal.
pub(crate) fn interval(found: &MetricChange) -> String {
    let ends = found.change.percent_ci95().filter(|_| !found.change.unchanged);
    let Some(ends) = ends else { return String::new() };
    let [low, high] = ends.map(signed).map(|end| end.trim_end_matches('%').to_owned());
    format!("{low}..{high}")
}
