//! The form of a what-if analysis: the same seeds on machines where one thing is shorter or longer.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Build, ParamValue};

/// The name and version of the form, as in its `schema` field.
pub const WHATIF_SCHEMA: &str = "mmscale/whatif/1";

/// The results of one arm of a study with one thing after another scaled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhatIf {
    /// Always `mmscale/whatif/1`.
    #[schemars(regex(pattern = r"^mmscale/whatif/1$"))]
    pub schema: String,
    /// The mmscale that made the analysis.
    pub build: Build,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The name of the study.
    pub study: String,
    /// The name of the arm.
    pub arm: String,
    /// The name of the machine profile.
    pub profile: String,
    /// A hash over the numbers of the profile's file.
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub profile_hash: String,
    /// Number of CPUs of the machine.
    pub cpus: u32,
    /// The parameters of the study.
    pub params: BTreeMap<String, ParamValue>,
    /// The seeds that all runs share.
    pub seeds: Vec<u64>,
    /// The metrics when nothing is scaled, in the study's order.
    pub metrics: Vec<PlainMetric>,
    /// The locks that CPUs wait for when nothing is scaled, the longest wait first.
    pub limits: Vec<WaitShare>,
    /// Rounds of its loop that the slowest program begins in the window when nothing is scaled.
    /// Absent if the programs count none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_min: Option<f64>,
    /// The things that were scaled.
    pub scaled: Vec<Scaled>,
}

/// The mean of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlainMetric {
    /// The name.
    pub name: String,
    /// The unit, as in [`crate::Metric::unit`].
    pub unit: String,
    /// The mean over seeds.
    pub mean: f64,
}

/// The waits for one class of locks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitShare {
    /// The lock's class.
    pub class: String,
    /// The wait, 0 to 1: of a spin lock as a share of the CPU time that is not idle, of a sleeping
    /// one as a share of that and of the waits for sleeping locks.
    pub share: f64,
}

/// One thing, and the results with it shorter and longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scaled {
    /// Its name: `hold zone`, `handoff`, `lines`, or an operation.
    pub what: String,
    /// The results, in the order of factors.
    pub points: Vec<ScaledPoint>,
}

/// The results with one factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaledPoint {
    /// The factor by which the thing takes longer.
    pub factor: f64,
    /// The change of each metric over pairs of runs with one seed, in percent. A metric whose mean
    /// is 0 is left out.
    pub percent: BTreeMap<String, f64>,
    /// The locks that CPUs wait for then, the longest wait first.
    pub limits: Vec<WaitShare>,
}

impl Scaled {
    /// Returns the elasticity of a metric between half and twice the time: the change of its
    /// logarithm by that of the factor. -1: half the time doubles it. `None` without both points.
    pub fn slope(&self, metric: &str) -> Option<f64> {
        let of = |factor: f64| {
            let point = self.points.iter().find(|point| point.factor == factor)?;
            Some((1.0 + point.percent.get(metric)? / 100.0).ln())
        };
        let slope = (of(2.0)? - of(0.5)?) / 4.0_f64.ln();
        slope.is_finite().then_some(slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_logarithms() {
        let point = |factor, percent| ScaledPoint {
            factor,
            percent: BTreeMap::from([("ops_per_s".to_owned(), percent)]),
            limits: vec![],
        };
        let what = "hold zone".to_owned();
        let scaled = Scaled { what, points: vec![point(0.5, 100.0), point(2.0, -50.0)] };
        assert_eq!(scaled.slope("ops_per_s"), Some(-1.0));
        assert_eq!(scaled.slope("other"), None);
    }
}
