//! A metric as a table cell: the mean, the spread over seeds, the change between arms.

use mmscale_document::Metric;

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

/// Formats the change of `metric` against `base`, in percent of `base`. A leading `~` means that
/// the 95 % intervals of both means overlap, so that the change may be noise.
pub fn change(base: Option<&Metric>, metric: Option<&Metric>) -> String {
    let (Some(base), Some(metric)) = (base, metric) else { return "-".to_owned() };
    match metric.change_percent(base) {
        None if metric.mean == 0.0 => "0.0%".to_owned(),
        None => "from 0".to_owned(),
        // All values are equal, so the change cannot be noise.
        Some(0.0) if metric.values == base.values => "0.0%".to_owned(),
        Some(x) => format!("{}{}", if metric.overlaps(base) { "~" } else { "" }, signed(x)),
    }
}
