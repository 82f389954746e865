//! The JSON document of one run.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::is_zero;
use crate::{
    BlameRecord, Build, CallRecord, CriticalPath, LineRecord, LockRecord, Metric, NamedLockRecord,
    ParamValue, SectionRecord, Topology, machine_name,
};

/// The name and version of the document format, as in its `schema` field.
pub const SCHEMA: &str = "mmscale/run/3";

/// The machine that a study runs on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The simulated machine.
    Sim,
    /// This computer's threads.
    Threads,
    /// The live kernel.
    #[serde(alias = "linux")]
    Live,
}

impl Target {
    /// The name on the command line and in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Threads => "threads",
            Self::Live => "live",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One run of one study with one set of parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Always `mmscale/run/3`.
    #[schemars(regex(pattern = r"^mmscale/run/3$"))]
    pub schema: String,
    /// The mmscale that made the run.
    pub build: Build,
    /// The program that contains mmscale, if it is not the `mmscale` binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Build>,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The name of the study.
    pub study: String,
    /// A hash of the study's `study.toml`, if a development build read it from the source tree.
    /// Other builds contain the file among their sources. For a script, a hash of its text without
    /// comments and blanks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub study_file_hash: Option<String>,
    /// The text of the script, if the study is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The machine it ran on.
    pub on: Target,
    /// The name of the machine profile; `host` for a machine that is this computer.
    pub profile: String,
    /// A hash over the numbers of the profile's file: profiles with equal numbers have equal
    /// hashes. Simulated machines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub profile_hash: Option<String>,
    /// The bases of a profile from a file, the nearest first. Absent for a built-in profile, whose
    /// bases are part of the build.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile_bases: Vec<String>,
    /// The version of Linux whose mechanisms were chosen with `--linux`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxRecord>,
    /// Number of CPUs of the machine.
    pub cpus: u32,
    /// How the CPUs are grouped. Simulated machines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// Timer interrupts per second on each CPU.
    pub hz: u32,
    /// Length of the measured window, in ns of the machine's time. Absent if a run ends when its
    /// work is done, or if arms have windows of different lengths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// All parameters of the study, given or default. `--hold` among them has the class and the
    /// factor of holds that a call scaled, as in `zone=0.5`; `--cost KEY` has a cost of the machine
    /// that differs from its profile's.
    pub params: BTreeMap<String, ParamValue>,
    /// Metrics that no arm has, each with what it needs: a longer run, another machine, or
    /// something to measure.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, String>,
    /// Locks and mechanisms of Linux on the paths of the calls that the programs made, without a
    /// counterpart in the memory manager that ran. Absent for the live kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_simulated: Vec<GapRecord>,
    /// The computer that executed the run.
    pub host: Host,
    /// 16 hexadecimal digits over the results of all arms and seeds. `host_metrics` and all names
    /// that an author chose (of the study, the arms, the profile) are excluded. Covers a script's
    /// text without comments and blanks, results and
    /// seeds only, not the build, command, topology, window or policies. The simulated machine
    /// gives the same fingerprint for the same binary, profile, topology, parameters and seeds.
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub fingerprint: String,
    /// How the number of seeds was chosen. Absent if the call or a default stated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<Looks>,
    /// All arms. The other arms are compared with the first.
    pub arms: Vec<ArmRecord>,
    /// Runs without a result. Means, intervals and sums of an arm are over its `seeds`, which
    /// exclude these runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureRecord>,
    /// 16 hexadecimal digits over all other fields. A document whose values have another checksum
    /// was damaged or changed after it was written. Absent in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub checksum: Option<String>,
}

impl Document {
    /// Returns the name of the machine: its profile, with the costs that differ from it.
    pub fn machine(&self) -> String {
        machine_name(&self.profile, &self.params)
    }
    /// Returns whether the runs replayed the recording of a kernel image: the study has the name of
    /// its file.
    pub fn is_recording(&self) -> bool {
        self.study.ends_with(".lift")
    }
}

/// A version of Linux whose mechanisms a simulated machine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinuxRecord {
    /// The version, such as `6.6`.
    pub version: String,
    /// The version of the last known change up to it; all versions since then are simulated alike.
    pub unchanged_since: String,
}

/// A lock or mechanism of Linux that is not simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GapRecord {
    /// The name in Linux.
    pub name: String,
    /// Which CPUs meet there: all of the `machine`, all `users` of one object, those of a
    /// `process`, or none (`work`).
    pub shared_by: String,
    /// Its use in Linux, in a few words.
    pub what: String,
    /// The file of Linux in which it does that.
    pub file: String,
}

/// The number of seeds as the runs chose it, with `--seeds auto`. After the `first` seeds
/// the headlines of each arm are looked at. If each of them has changed, or its change is known to
/// `margin_percent`, the runs end; otherwise each arm runs `second` seeds. The first look spends a
/// sixteenth of the 5 % by which both together may err.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Looks {
    /// Number of seeds at the first look.
    pub first: u32,
    /// Number of seeds at the second look.
    pub second: u32,
    /// The precision that is aimed at, in percent. No interval at the first look is narrower.
    pub margin_percent: f64,
    /// The headlines because of which there was a second look. Empty if the runs ended at the
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsettled: Vec<Unsettled>,
}

/// A headline of an arm whose change was not settled at the first look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unsettled {
    /// The name of the arm.
    pub arm: String,
    /// The name of the metric.
    pub metric: String,
}

/// CPU time of all CPUs while locks were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuTimeRecord {
    /// Time of all CPUs, idle or not, in ns.
    pub all_ns: u64,
    /// The part that was not idle, in ns.
    pub busy_ns: u64,
    /// The part of `busy_ns` in which CPUs waited for cache lines from other CPUs, in ns. Waits for
    /// locks are not included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lines_ns: u64,
    /// The part of the idle time that tasks which waited for other CPUs could have used, in ns:
    /// over all moments, the smaller of the numbers of idle CPUs and of waiting tasks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stranded_ns: u64,
}

impl CpuTimeRecord {
    /// Returns the sum with another time.
    pub fn and(self, other: Self) -> Self {
        Self {
            all_ns: self.all_ns + other.all_ns,
            busy_ns: self.busy_ns + other.busy_ns,
            lines_ns: self.lines_ns + other.lines_ns,
            stranded_ns: self.stranded_ns + other.stranded_ns,
        }
    }
}

/// A run without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureRecord {
    /// The name of the arm.
    pub arm: String,
    /// The seed of the run.
    pub seed: u64,
    /// The reason why there is no result.
    pub why: String,
}

/// The computer that executed the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Operating system, release and architecture.
    pub kernel: String,
    /// Model name of the processor.
    pub cpu: String,
}

/// The results of one arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    /// The name of the arm, which is a named set of policies.
    pub arm: String,
    /// The policy of each mechanism and the workload variants, by the arm's keys. The policies of a
    /// live kernel are not known and not included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, String>,
    /// The seeds with a result, one run each.
    pub seeds: Vec<u64>,
    /// Whether the runs ended at the first look ([`Looks`]). Intervals are then those of Student's
    /// t at 99.6875 %. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_look: bool,
    /// All metrics, by name.
    pub metrics: BTreeMap<String, Metric>,
    /// CPU time while locks were counted, summed over seeds. Simulated machines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<CpuTimeRecord>,
    /// Lock statistics by class and site, summed over seeds.
    pub locks: Vec<LockRecord>,
    /// The work of the holders of locks while others waited, the longest total first. Empty if the
    /// run did not record it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blame: Vec<BlameRecord>,
    /// The waits by lock, the longest total first; with `blame`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named_locks: Vec<NamedLockRecord>,
    /// The time of each operation of the programs, the longest total first; with `blame`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical_paths: Vec<CriticalPath>,
    /// CPU time by call path, summed over seeds. Empty if the study does not collect it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// Transfers of cache lines between CPUs by what the lines hold, summed over seeds, in
    /// descending order of their time. Simulated machines only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineRecord>,
    /// Values of single CPUs, by name. Empty if the study does not collect them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_cpu: BTreeMap<String, PerCpu>,
    /// Distributions, by name, summed over seeds. Empty if the study does not collect them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Histogram>,
    /// The longest sections with preemption off, over all seeds. Empty if the study does not
    /// collect them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<SectionRecord>,
    /// Functions with the times at which they ran. Empty if the study does not collect them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
    /// The cost of the runs on the host: means over seeds. These differ from run to run, and are
    /// therefore outside the fingerprint.
    pub host_metrics: BTreeMap<String, f64>,
}

/// One value per CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerCpu {
    /// The unit, as in [`Metric::unit`].
    pub unit: String,
    /// Means over seeds, indexed by CPU number.
    pub values: Vec<f64>,
}

/// A distribution: counts of values by bucket.
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
    /// Adds the counts of another run. Two buckets are the same if both bounds are equal.
    pub fn merge(&mut self, other: &Self) {
        let mut counts: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for &[low, high, count] in self.buckets.iter().chain(&other.buckets) {
            *counts.entry((low, high)).or_default() += count;
        }
        self.buckets = counts.into_iter().map(|((low, high), n)| [low, high, n]).collect();
    }
}

/// One execution of a function on a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the CPU.
    pub cpu: u32,
    /// The kernel name of the function.
    pub name: String,
    /// Start time, in ns since the start of the run.
    pub begin_ns: u64,
    /// End time, in ns since the start of the run.
    pub end_ns: u64,
}

/// Returns the JSON schema of [`Document`].
pub fn schema_json() -> serde_json::Value {
    schemars::schema_for!(Document).to_value()
}
