//! Metrics: each is one row with its name, its unit, its help, and how it is computed.

use super::{Missing, Seen, Workload};
use crate::study::MetricSpec;
use mmscale_document::Value;

/// A metric's value in a run.
pub type Measured = Result<Value, Missing>;

/// A row of a study's table of metrics.
#[derive(Debug)]
pub struct Metric<W: Workload> {
    /// Name, unit and help.
    pub spec: MetricSpec,
    /// Computes it from what a run left.
    pub measure: fn(&Seen<'_, W>) -> Measured,
}

/// A row: name in snake_case with the unit last, unit, help, and how it is computed.
pub const fn metric<W: Workload>(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    measure: fn(&Seen<'_, W>) -> Measured,
) -> Metric<W> {
    Metric { spec: MetricSpec { name, unit, help }, measure }
}

/// A value; the mean of nothing (0/0) is [`Missing::Nothing`].
pub fn value(value: impl Into<Value>) -> Measured {
    match value.into() {
        Value::Real(x) if x.is_nan() => Err(Missing::Nothing),
        value => Ok(value),
    }
}
