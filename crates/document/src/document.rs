//! The JSON document of one run.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Build, CallRecord, LockRecord, Metric, ParamValue, SectionRecord, Topology};

/// The name and version of the document's form, in its `schema` field.
pub const SCHEMA: &str = "mmscale/run/2";

/// The machine that a study runs on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// The simulated machine.
    Sim,
    /// This computer's threads.
    Threads,
    /// The live kernel.
    Linux,
}

impl On {
    /// The name, as it is written on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Threads => "threads",
            Self::Linux => "linux",
        }
    }
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One run of one study with one set of parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Always `mmscale/run/2`.
    #[schemars(regex(pattern = r"^mmscale/run/2$"))]
    pub schema: String,
    /// The mmscale that made the run.
    pub build: Build,
    /// The program around it, where that is another than the `mmscale` binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Build>,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The study.
    pub study: String,
    /// A hash of the study's `study.toml`, if a development build read it from the source tree. In
    /// other builds it is among the sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub study_file_hash: Option<String>,
    /// The machine it ran on.
    pub on: On,
    /// The machine profile; `host` where the machine is this computer.
    pub profile: String,
    /// A hash over the numbers of the profile's file: equal numbers, equal hash. Simulated machines
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub profile_hash: Option<String>,
    /// The bases of a profile from a file, the nearest first. Not there for a built-in profile,
    /// whose bases are part of the build.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile_bases: Vec<String>,
    /// CPUs of the machine.
    pub cpus: u32,
    /// How its CPUs are grouped. Simulated machines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// Timer interrupts a second on each CPU.
    pub hz: u32,
    /// How long the window is of which figures are, in ns of the machine's time. Not there if a run
    /// ends when its work is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// Every parameter of the study, given or default.
    pub params: BTreeMap<String, ParamValue>,
    /// Metrics that no arm has, each with what it needs: a longer run, another machine, or
    /// something to measure.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, String>,
    /// The computer that did the work.
    pub host: Host,
    /// 16 hexadecimal digits over the results of all arms and seeds, `host_metrics` and all names
    /// that an author chose (the study's, the arms', the profile's) excepted. It covers results and
    /// seeds, and nothing that says what gave them: not the build, the command, the topology, the
    /// window or the policies. The simulated machine gives the same fingerprint for the same
    /// binary, profile, topology, parameters and seeds.
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub fingerprint: String,
    /// The arms; the first is what the others are compared with.
    pub arms: Vec<ArmRecord>,
    /// Runs that gave no result. Means, intervals and sums of an arm are of its `seeds`; these are
    /// not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureRecord>,
}

/// A run that gave no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureRecord {
    /// The arm.
    pub arm: String,
    /// The seed.
    pub seed: u64,
    /// Why there is no result.
    pub why: String,
}

/// The computer that did the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Operating system, release and architecture.
    pub kernel: String,
    /// The processor's model.
    pub cpu: String,
}

/// The results of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    /// The arm: a named set of policies.
    pub arm: String,
    /// The policy of each mechanism, and what the workload does differently, by the arm's keys.
    /// A live kernel has policies of its own, which are not among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, String>,
    /// The seeds of which it has results, one run each.
    pub seeds: Vec<u64>,
    /// The metrics, by name.
    pub metrics: BTreeMap<String, Metric>,
    /// Lock statistics by class and site, summed over seeds.
    pub locks: Vec<LockRecord>,
    /// CPU time by call path, summed over seeds; only where a study has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// Figures that each CPU has, by name; only where a study has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_cpu: BTreeMap<String, PerCpu>,
    /// Distributions, by name, summed over seeds; only where a study has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Histogram>,
    /// The longest stretches without preemption, of all seeds; only where a study has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<SectionRecord>,
    /// What ran when; only where a study has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
    /// What the run cost the host: means over seeds. No two runs agree on them, so they stand
    /// apart and outside the fingerprint.
    pub host_metrics: BTreeMap<String, f64>,
}

/// One figure for each CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerCpu {
    /// The unit, as in [`Metric::unit`].
    pub unit: String,
    /// The mean over seeds, by CPU number.
    pub values: Vec<f64>,
}

/// How often which values were seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// The unit of the bounds, as in [`Metric::unit`].
    pub unit: String,
    /// Non-empty buckets in ascending order: lower bound (inclusive), upper bound (exclusive),
    /// count.
    pub buckets: Vec<[u64; 3]>,
}

impl Histogram {
    /// Adds another run's counts. Buckets are equal when both bounds are.
    pub fn merge(&mut self, other: &Self) {
        let mut counts: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for &[low, high, count] in self.buckets.iter().chain(&other.buckets) {
            *counts.entry((low, high)).or_default() += count;
        }
        self.buckets = counts.into_iter().map(|((low, high), n)| [low, high, n]).collect();
    }
}

/// A function that ran on a CPU for some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// The seed of the run that it belongs to.
    pub seed: u64,
    /// The CPU.
    pub cpu: u32,
    /// The function, by its kernel name.
    pub name: String,
    /// When it began, in ns since the start of the run.
    pub begin_ns: u64,
    /// When it ended, in ns since the start of the run.
    pub end_ns: u64,
}

/// The document's JSON schema, as JSON.
pub fn schema_json() -> serde_json::Value {
    schemars::schema_for!(Document).to_value()
}
