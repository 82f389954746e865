//! The form of a settlement: where which arm is best, as a map over knobs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Better, Build, ParamValue};

/// The name and version of the form, as in its `schema` field.
pub const SETTLEMENT_SCHEMA: &str = "mmscale/settle/1";

/// A map of the best arms of a study, from few runs near its boundary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// Always `mmscale/settle/1`.
    #[schemars(regex(pattern = r"^mmscale/settle/1$"))]
    pub schema: String,
    /// The mmscale that made the map.
    pub build: Build,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The name of the study.
    pub study: String,
    /// The name of the machine profile.
    pub profile: String,
    /// The parameters of the study that no knob moves.
    pub params: BTreeMap<String, ParamValue>,
    /// The seeds of each point.
    pub seeds: Vec<u64>,
    /// The arms.
    pub arms: Vec<String>,
    /// The metric by which arms are compared.
    pub metric: String,
    /// Its unit, as in [`crate::Metric::unit`].
    pub unit: String,
    /// The direction in which it improves.
    pub better: Better,
    /// Arms that differ by less than this, in percent, are equally good.
    pub matters_percent: f64,
    /// The knobs.
    pub knobs: Vec<SettledKnob>,
    /// The points that were run.
    pub points: Vec<SettledPoint>,
    /// The parts of the map by their best arms, the largest first.
    pub regions: Vec<SettledRegion>,
    /// How far the map may be wrong.
    pub error: SettledError,
    /// Sections of the map along the two knobs that decide most; one row of sections for each
    /// value of the fourth knob, and in it one for each of the third.
    pub sections: Vec<MapSection>,
    /// Whether places near the boundary stay what they are on machines with other costs. Absent
    /// if this was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<SettledCosts>,
}

/// A number that moves from point to point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettledKnob {
    /// The name of the parameter or cost, or `cpus`.
    pub name: String,
    /// The unit of its values.
    pub unit: String,
    /// The ends of its range.
    pub range: [f64; 2],
    /// Whether equal distances in the map are equal ratios.
    pub log: bool,
    /// The share of the map in which another value of it, drawn from its range, changes the best
    /// arms.
    pub decides: f64,
}

/// A point that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettledPoint {
    /// The values of the knobs.
    pub at: Vec<f64>,
    /// The geometric mean of the metric over seeds, for each arm. Empty if a run has no result, or
    /// none above 0.
    pub values: Vec<f64>,
    /// The arms that are as good as the best.
    pub best: Vec<String>,
}

/// A part of the map with the same best arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettledRegion {
    /// The arms that are as good as the best; all arms where no difference matters.
    pub best: Vec<String>,
    /// The share of the map.
    pub share: f64,
    /// The limits of a simple part of the map nearly all of which belongs to the region.
    pub limits: Vec<SettledLimit>,
    /// The share of the region that this part has; absent without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<f64>,
}

/// One limit of a part of the map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettledLimit {
    /// The name of the knob.
    pub knob: String,
    /// Whether the knob is above the value.
    pub above: bool,
    /// The value.
    pub value: f64,
}

/// How far a map may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettledError {
    /// The share of the map that is expected to have other best arms than it says.
    pub share: f64,
    /// Points whose best arms all other points together predict wrong.
    pub missed: u32,
    /// Number of points with a result.
    pub points: u32,
    /// The standard deviation of the place of the boundary, as a share of the ranges of the knobs.
    /// Absent without a boundary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<f64>,
}

/// A section of the map along two knobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapSection {
    /// The knobs from left to right, and from the bottom to the top; one only if there is one.
    pub along: Vec<String>,
    /// The values of the other knobs.
    pub others: BTreeMap<String, f64>,
    /// The places in `regions` of equally distant cells, rows from the bottom to the top.
    pub rows: Vec<Vec<u32>>,
    /// The places in `points` of the points that are nearest to this section.
    pub points: Vec<u32>,
}

/// Places near the boundary, on machines whose costs are drawn from their ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettledCosts {
    /// Number of machines.
    pub machines: u32,
    /// The distance of the places from the boundary, as a share of the ranges of the knobs.
    pub away: f64,
    /// The places.
    pub places: Vec<CostPlace>,
}

/// A place near the boundary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostPlace {
    /// The values of the knobs.
    pub at: Vec<f64>,
    /// The arms that are as good as the best with the costs of the profile.
    pub best: Vec<String>,
    /// Number of machines with the same best arms.
    pub same: u32,
}
