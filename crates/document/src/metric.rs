//! One metric of one arm.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Value;

/// The metric of scripts that tells how many rounds of the slowest program's loop the window
/// covers.
pub const ROUNDS_METRIC: &str = "rounds_min";
/// The name of the metric of a recording by how much replays of its halves differ: its own error.
pub const HALVES_METRIC: &str = "halves_differ";
/// Its minimum for figures that do not depend on where in a round the window begins.
pub const ENOUGH_ROUNDS: f64 = 3.0;

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A lower value is better.
    Lower,
    /// A higher value is better.
    Higher,
}

/// The kind of a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Average {
    /// The sum of the values, divided by their number.
    #[default]
    Arithmetic,
    /// The number of values, divided by the sum of their reciprocals.
    Harmonic,
}

impl Average {
    fn is_arithmetic(&self) -> bool {
        *self == Self::Arithmetic
    }
}

/// A metric of one arm: the value of each seed, the mean and its confidence interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The unit: `1` for plain counts and ratios, `ns`, `pages`, `1/s`, ...
    pub unit: String,
    /// The direction in which the metric improves. Absent if neither direction is better by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
    /// Whether the metric is one of the at most three that the study tests. Changes of all other
    /// metrics are exploratory. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub headline: bool,
    /// The kind of `mean`: harmonic for rates (units that end in `/s`) that are positive in every
    /// run of every arm. Absent for the arithmetic mean.
    #[serde(default, skip_serializing_if = "Average::is_arithmetic")]
    pub average: Average,
    /// The mean over the seeds with a value.
    pub mean: f64,
    /// The 95 % bootstrap confidence interval of the mean: low, high. Null with fewer than two
    /// values, because one value has no spread. If the arm ended at the first look, the interval of
    /// Student's t at 99.6875 %.
    pub ci95: Option<[f64; 2]>,
    /// The value of each seed, in the order of the arm's `seeds`. Null where a run had nothing to
    /// measure, such as the time to an event that did not occur.
    pub values: Vec<Option<Value>>,
}

impl Metric {
    /// Returns the values that are not null, as floats.
    pub fn present(&self) -> Vec<f64> {
        self.values.iter().flatten().map(|v| v.as_f64()).collect()
    }

    /// Returns the sample standard deviation in percent of the mean. `None` with fewer than two
    /// values or a mean of zero.
    pub fn stddev_percent(&self) -> Option<f64> {
        let values = self.present();
        if values.len() < 2 || self.mean == 0.0 {
            return None;
        }
        // Around the arithmetic mean, whichever mean is shown.
        let centre = values.iter().sum::<f64>() / values.len() as f64;
        let sum: f64 = values.iter().map(|x| (x - centre).powi(2)).sum();
        let sd = (sum / (values.len() - 1) as f64).sqrt();
        Some(100.0 * sd / self.mean.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(mean: f64, values: &[u64]) -> Metric {
        let values = values.iter().map(|&n| Some(Value::Count(n))).collect();
        let (better, headline, average) = (None, false, Average::default());
        Metric { unit: "1".into(), better, headline, average, mean, ci95: None, values }
    }

    #[test]
    fn spread_is_the_sample_deviation_in_percent_of_the_mean() {
        assert_eq!(metric(4.0, &[2, 4, 6]).stddev_percent(), Some(50.0));
        assert_eq!(metric(3.2, &[2, 4, 6]).stddev_percent(), Some(62.5));
        assert_eq!(metric(4.0, &[4]).stddev_percent(), None);
        assert_eq!(metric(0.0, &[0, 0]).stddev_percent(), None);
    }
}
