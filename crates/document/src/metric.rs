//! One metric of one arm.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Value;

/// A metric of one arm: the value of each seed, the mean and its confidence interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The unit: `1` for plain counts and ratios, `ns`, `pages`, `1/s`, ...
    pub unit: String,
    /// The arithmetic mean over the seeds with a value.
    pub mean: f64,
    /// The 95 % bootstrap confidence interval of the mean: low, high. Null with fewer than two
    /// values, because one value has no spread.
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
        let sum: f64 = values.iter().map(|x| (x - self.mean).powi(2)).sum();
        let sd = (sum / (values.len() - 1) as f64).sqrt();
        Some(100.0 * sd / self.mean.abs())
    }

    /// Returns the difference between this mean and the mean of `base`, in percent of the latter.
    /// `None` if the mean of `base` is zero.
    pub fn change_percent(&self, base: &Self) -> Option<f64> {
        (base.mean != 0.0).then(|| 100.0 * (self.mean - base.mean) / base.mean.abs())
    }

    /// Returns whether the two confidence intervals overlap, in which case the difference of the
    /// means may be noise. Returns true if an interval is missing.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self.ci95, other.ci95) {
            (Some([lo, hi]), Some([low, high])) => lo <= high && low <= hi,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(mean: f64, ci95: Option<[f64; 2]>, values: &[u64]) -> Metric {
        let values = values.iter().map(|&n| Some(Value::Count(n))).collect();
        Metric { unit: "1".into(), mean, ci95, values }
    }

    #[test]
    fn spread_is_the_sample_deviation_of_the_mean() {
        let m = metric(4.0, None, &[2, 4, 6]);
        assert_eq!(m.stddev_percent(), Some(50.0));
        assert_eq!(metric(4.0, None, &[4]).stddev_percent(), None);
        assert_eq!(metric(0.0, None, &[0, 0]).stddev_percent(), None);
    }

    #[test]
    fn change_is_relative_to_the_base_and_keeps_its_sign() {
        let base = metric(200.0, Some([190.0, 210.0]), &[190, 210]);
        let less = metric(50.0, Some([45.0, 55.0]), &[45, 55]);
        assert_eq!(less.change_percent(&base), Some(-75.0));
        assert_eq!(base.change_percent(&metric(0.0, None, &[0])), None);
        assert!(!less.overlaps(&base));
        assert!(less.overlaps(&metric(54.0, Some([50.0, 60.0]), &[50, 60])));
        assert!(less.overlaps(&metric(500.0, None, &[500])));
    }
}
