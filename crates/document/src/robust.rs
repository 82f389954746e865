//! The form of a robustness analysis: how conclusions depend on the numbers of a machine profile.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Build, ParamValue, WaitShare};

/// The name and version of the form, as in its `schema` field.
pub const ROBUST_SCHEMA: &str = "mmscale/robust/1";

/// The numbers of a machine profile on which the conclusions of one study depend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Robustness {
    /// Always `mmscale/robust/1`.
    #[schemars(regex(pattern = r"^mmscale/robust/1$"))]
    pub schema: String,
    /// The mmscale that made the analysis.
    pub build: Build,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The name of the study.
    pub study: String,
    /// The name of the machine profile.
    pub profile: String,
    /// A hash over the numbers of the profile's file.
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub profile_hash: String,
    /// Number of CPUs of the machine.
    pub cpus: u32,
    /// The parameters of the study.
    pub params: BTreeMap<String, ParamValue>,
    /// The seeds that all machines share.
    pub seeds: Vec<u64>,
    /// The arm that the others are compared with.
    pub base: String,
    /// The conclusions: each other arm's change of each headline metric.
    pub claims: Vec<Claim>,
    /// The level of each headline metric of the base arm, where no arm is compared with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Level>,
    /// Numbers of the profile with a range that were moved.
    pub numbers: u32,
    /// Those among them that change no result of any arm.
    pub without_effect: Vec<String>,
    /// Number of machines that were drawn, each with all costs from their ranges.
    pub machines: u32,
    /// The seeds on the profile's own machine, which show how far seeds alone move a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_seeds: Vec<u64>,
    /// The lock that limits the base arm on the profile's machine, or a line, as `line of DATA`.
    /// Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<WaitShare>,
    /// The ends of ranges with which another lock or line limits the base arm, or none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_limits: Vec<MovedLimit>,
    /// The limits of the base arm on the machines that were drawn, the most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn_limits: Vec<DrawnLimit>,
    /// Rounds of its loop that the slowest program begins in the window, in the arm with the
    /// fewest.
    /// Absent if the programs count none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_min: Option<f64>,
    /// Machines without a result, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// 16 hexadecimal digits over all other fields. A document whose values have another checksum
    /// was damaged or changed after it was written. Absent in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub checksum: Option<String>,
}

/// One conclusion: the change of one metric in one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The name of the arm.
    pub arm: String,
    /// The name of the metric.
    pub metric: String,
    /// The change against the base arm on the machine of the profile, in percent.
    pub percent: f64,
    /// The 95 % interval of the change over `own_seeds` on the machine of the profile, in percent.
    /// Absent with too few of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// The effect of each number that has one, the largest first.
    pub moved: Vec<MovedNumber>,
    /// The changes on the machines that were drawn, in percent, in the order of drawing.
    pub drawn_percent: Vec<f64>,
}

impl Claim {
    /// Returns whether a change has the sign that it has on the profile's machine.
    pub fn agrees(&self, percent: f64) -> bool {
        percent.total_cmp(&0.0) == self.percent.total_cmp(&0.0)
    }
    /// Returns the share of drawn machines on which the change has the same sign. `None` if none
    /// was drawn.
    pub fn holds_share(&self) -> Option<f64> {
        let all = self.drawn_percent.len();
        let agree = self.drawn_percent.iter().filter(|&&percent| self.agrees(percent)).count();
        (all > 0).then(|| agree as f64 / all as f64)
    }
    /// Returns the change in percent below which a share of the drawn machines is, by nearest rank.
    /// `None` if none was drawn.
    pub fn drawn_quantile(&self, share: f64) -> Option<f64> {
        quantile(&self.drawn_percent, share)
    }
    /// Returns whether the interval over seeds includes that nothing changed: then other seeds
    /// reverse the change, on the same machine.
    pub fn is_noise(&self) -> bool {
        self.ci95.is_some_and(|[low, high]| low <= 0.0 && 0.0 <= high)
    }
    /// Returns the numbers that alone reverse the change or undo it at an end of their range, each
    /// with the value at which the change is zero, on a straight line from the profile's value to
    /// that end, and whether that end is the high one. None do if seeds alone do, and none whose
    /// effect is no larger than theirs.
    pub fn reversed_by(&self) -> impl Iterator<Item = (&MovedNumber, f64, bool)> {
        let width = self.ci95.map_or(0.0, |[low, high]| high - low);
        let moved = self.moved.iter().filter(|_| !self.is_noise());
        moved.filter_map(move |number| {
            let mut ends = number.percent.into_iter().zip(number.range);
            let reverses =
                |percent: f64| !self.agrees(percent) && (percent - self.percent).abs() > width;
            let (percent, end) = ends.find(|&(percent, _)| reverses(percent))?;
            let way = self.percent / (self.percent - percent);
            Some((number, number.value + way * (end - number.value), end > number.value))
        })
    }
}

/// The level of one metric of an arm that is compared with no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// The name of the metric.
    pub metric: String,
    /// Its unit, as in [`crate::Metric::unit`].
    pub unit: String,
    /// The mean over `seeds` on the machine of the profile.
    pub mean: f64,
    /// The 95 % interval of the mean over `own_seeds` on that machine. Absent with too few of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// The effect of each number that has one, the largest first; as a change of the mean in
    /// percent.
    pub moved: Vec<MovedNumber>,
    /// The means on the machines that were drawn, in the order of drawing.
    pub drawn: Vec<f64>,
}

impl Level {
    /// Returns the mean below which a share of the drawn machines is, by nearest rank. `None` if
    /// none was drawn.
    pub fn drawn_quantile(&self, share: f64) -> Option<f64> {
        quantile(&self.drawn, share)
    }
}

/// A limit of the base arm, with the number of drawn machines that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrawnLimit {
    /// The class of the lock, or `line of DATA`. Absent where neither limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Number of these machines.
    pub machines: u32,
}

/// Returns the value below which a share of `values` is, by nearest rank.
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

/// An end of a number's range with which the base arm has another limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MovedLimit {
    /// The key in the profile.
    pub name: String,
    /// The end of its range.
    pub value: f64,
    /// The lock or line that limits then. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<WaitShare>,
}

/// A number of the profile and its effect on a conclusion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MovedNumber {
    /// The key in the profile.
    pub name: String,
    /// The value in the profile.
    pub value: f64,
    /// Its range: low, high.
    pub range: [f64; 2],
    /// The basis of the number: whether it is an assumption, derived, published or measured.
    pub basis: String,
    /// The change of the metric with the number at each end of its range, in percent.
    pub percent: [f64; 2],
}

impl MovedNumber {
    /// Returns the difference that the number makes, in percentage points.
    pub fn span(&self) -> f64 {
        (self.percent[1] - self.percent[0]).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(ci95: Option<[f64; 2]>, end: f64) -> Claim {
        let number = MovedNumber {
            name: "lock_ns".to_owned(),
            value: 9.0,
            range: [5.0, 20.0],
            basis: "assumed".to_owned(),
            percent: [3.0, end],
        };
        Claim {
            arm: "lazy".to_owned(),
            metric: "ops_per_s".to_owned(),
            percent: 2.0,
            ci95,
            moved: vec![number],
            drawn_percent: vec![],
        }
    }

    #[test]
    fn a_cost_reverses_only_what_seeds_do_not() {
        let reversing = |ci95, end| -> Vec<(f64, bool)> {
            claim(ci95, end).reversed_by().map(|(_, value, above)| (value, above)).collect()
        };
        // From +2 % with 9 to -2 % with 20.
        assert_eq!(reversing(None, -2.0), [(14.5, true)], "nothing is known of seeds");
        assert_eq!(reversing(Some([1.5, 2.5]), -2.0), [(14.5, true)]);
        assert_eq!(reversing(Some([1.5, 2.5]), 1.0), [], "the sign is the same");
        assert_eq!(reversing(Some([0.5, 4.5]), -1.0), [], "seeds move it as far");
        assert_eq!(reversing(Some([-3.0, 4.5]), -60.0), [], "seeds alone reverse it");
    }
}
