//! The form of measured waits: what other tools report about the locks of a kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Build;

/// The name and version of the form, as in its `schema` field.
pub const MEASURED_SCHEMA: &str = "mmscale/measured/1";

/// Waits for locks on a kernel, as another tool reported them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// Always `mmscale/measured/1`.
    #[schemars(regex(pattern = r"^mmscale/measured/1$"))]
    pub schema: String,
    /// The mmscale that read the report.
    pub build: Build,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The tool that made the report, and the form of its tables.
    pub tool: String,
    /// The name of the file, without its folder.
    pub file: String,
    /// Number of CPUs of the computer. Absent if neither the report nor the call has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Duration of the measurement, in ns. Absent if neither the report nor the call has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// The waits, the largest total first.
    pub waits: Vec<MeasuredWait>,
    /// Limits of the report: rows that were left out, missing figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// 16 hexadecimal digits over all other fields. A document whose values have another checksum
    /// was damaged or changed after it was written. Absent in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub checksum: Option<String>,
}

/// Waits for locks of one class on one call path, or by one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredWait {
    /// The lock's class: `zone`, `lruvec`, ... `other` if the path and the name determine none.
    pub class: String,
    /// Functions from the outermost that is known to the one that requested the lock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// The kind of the lock in the tool's words: `spinlock`, `rwsem:R`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name of the lock, if the tool reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The task or memory group, if the tool reports waits by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Number of waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contentions: Option<u64>,
    /// Times the lock was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquisitions: Option<u64>,
    /// Total wait, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_total_ns: Option<u64>,
    /// The longest wait, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_max_ns: Option<u64>,
    /// Total time held, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_total_ns: Option<u64>,
    /// Functions that waited, if the tool counts them without times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiters: Vec<Site>,
    /// Functions that held the lock while others waited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Site>,
}

/// A function with a number of waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The name of the function.
    pub function: String,
    /// Number of waits in it, or for it.
    pub contentions: u64,
}

impl Measurement {
    /// Returns the time of all CPUs, in ns. `None` if the CPUs or the duration are unknown.
    pub fn cpu_time_ns(&self) -> Option<f64> {
        Some(f64::from(self.cpus?) * self.window_ns? as f64)
    }
    /// Returns the sum of all waits, in ns.
    pub fn wait_total_ns(&self) -> u64 {
        let totals = self.waits.iter().filter_map(|wait| wait.wait_total_ns);
        totals.fold(0, u64::saturating_add)
    }
}
