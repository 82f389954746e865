//! Metrics: each is one row with its name, its unit, its help, and its computation.

use super::{Missing, Seen, Workload};
use crate::study::MetricSpec;
use mmscale_document::{Better, Value};

/// The value of a metric in a run, or the reason why it is missing.
pub type Measured = Result<Value, Missing>;

/// A row of a study's table of metrics.
#[derive(Debug)]
pub struct Metric<W: Workload> {
    /// Name, unit and help.
    pub spec: MetricSpec,
    /// Computes the value from the results of a run.
    pub measure: fn(&Seen<'_, W>) -> Measured,
}

/// Declares a metric: name in snake_case with the unit last, unit, help, and computation. Neither
/// direction is better by itself; otherwise use [`lower`] or [`higher`].
pub const fn metric<W: Workload>(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    measure: fn(&Seen<'_, W>) -> Measured,
) -> Metric<W> {
    Metric { spec: MetricSpec::new(name, unit, help), measure }
}

/// Declares a metric of which a lower value is better; otherwise like [`metric`].
pub const fn lower<W: Workload>(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    measure: fn(&Seen<'_, W>) -> Measured,
) -> Metric<W> {
    let spec = MetricSpec { better: Some(Better::Lower), ..MetricSpec::new(name, unit, help) };
    Metric { spec, measure }
}

/// Declares a metric of which a higher value is better; otherwise like [`metric`].
pub const fn higher<W: Workload>(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    measure: fn(&Seen<'_, W>) -> Measured,
) -> Metric<W> {
    let spec = MetricSpec { better: Some(Better::Higher), ..MetricSpec::new(name, unit, help) };
    Metric { spec, measure }
}

/// Converts a value. NaN (0/0, the mean of nothing) becomes [`Missing::Nothing`].
pub fn value(value: impl Into<Value>) -> Measured {
    match value.into() {
        Value::Real(x) if x.is_nan() => Err(Missing::Nothing),
        value => Ok(value),
    }
}
