//! A metric in a cell of a table: its mean, how far seeds lie apart, how far arms do.

use mmscale_document::Metric;

use crate::number::{change as signed, percent, scaled};

/// The mean in a unit of convenient size; `-` where nothing was measured.
pub fn mean(metric: Option<&Metric>) -> String {
    metric.map_or("-".to_owned(), |m| scaled(m.mean, &m.unit))
}

/// The sample standard deviation in percent of the mean; none of a single seed and of a mean of 0.
pub fn spread(metric: Option<&Metric>) -> Option<String> {
    metric.and_then(Metric::stddev_percent).map(percent)
}

/// How far `metric` lies from `base`, in percent of that. `~` before it: the 95 % intervals of both
/// means overlap, so that it may be noise.
pub fn change(base: Option<&Metric>, metric: Option<&Metric>) -> String {
    let (Some(base), Some(metric)) = (base, metric) else { return "-".to_owned() };
    match metric.change_percent(base) {
        None if metric.mean == 0.0 => "0.0%".to_owned(),
        None => "from 0".to_owned(),
        // Equal to the last digit: there is nothing to doubt.
        Some(0.0) if metric.values == base.values => "0.0%".to_owned(),
        Some(x) => format!("{}{}", if metric.overlaps(base) { "~" } else { "" }, signed(x)),
    }
}
