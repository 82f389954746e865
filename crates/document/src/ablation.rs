//! The form of an ablation: which part of a change contributes what.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Build, ParamValue};

/// The name and version of the form, as in its `schema` field.
pub const ABLATION_SCHEMA: &str = "mmscale/ablation/1";

/// The results of all subsets of some policies, over one arm of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ablation {
    /// Always `mmscale/ablation/1`.
    #[schemars(regex(pattern = r"^mmscale/ablation/1$"))]
    pub schema: String,
    /// The mmscale that made the analysis.
    pub build: Build,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The name of the study.
    pub study: String,
    /// The name of the arm without any of the parts.
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
    /// Rounds of its loop that the slowest program begins in the window, in the arm with the
    /// fewest. Absent if the programs count none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_min: Option<f64>,
    /// The parts, as `KEY=POLICY`.
    pub parts: Vec<String>,
    /// The study's headlines, in its order.
    pub metrics: Vec<AblatedMetric>,
}

/// The contributions of parts to the change of one metric. They are factors: those in
/// `share` of all parts multiply to `whole`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AblatedMetric {
    /// The name.
    pub name: String,
    /// The unit, as in [`crate::Metric::unit`].
    pub unit: String,
    /// The mean over seeds without any part.
    pub base: f64,
    /// The change by all parts together. Absent if a value is not positive or missing: there are
    /// no factors then, and `parts` and `pairs` are empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Contribution>,
    /// The contribution of each part, in their order.
    pub parts: Vec<PartContribution>,
    /// The interaction of each two parts.
    pub pairs: Vec<Interaction>,
}

/// A change in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Contribution {
    /// The Hodges-Lehmann estimate over seeds.
    pub percent: f64,
    /// Its 95 % interval; absent with fewer than six seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
}

/// The contribution of one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartContribution {
    /// The part, as `KEY=POLICY`.
    pub part: String,
    /// The change by this part alone.
    pub alone: Contribution,
    /// The change by this part when all others are there already.
    pub on_top: Contribution,
    /// The Shapley value: its change on average over all orders in which the parts can be added.
    pub share: Contribution,
}

/// The interaction of two parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interaction {
    /// The parts.
    pub parts: [String; 2],
    /// The change by both next to the product of their own changes, on average over what else is
    /// there (the Shapley interaction index).
    pub effect: Contribution,
}
