//! Sections of execution during which a CPU could not switch to another task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One section with preemption or interrupts off, among the longest of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SectionRecord {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the CPU.
    pub cpu: u32,
    /// Start time, in ns since the start of the run.
    pub begin_ns: u64,
    /// Length of the section, in ns.
    pub ns: u64,
    /// The call path, from the root, on which the CPU spent the largest part of the section.
    pub path: Vec<String>,
    /// Waits within the section, the longest total first. The rest of the section is work.
    pub waits: Vec<SectionWait>,
}

/// Waits of a section for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SectionWait {
    /// The cause: a lock (its class), another CPU, or the machine itself.
    pub what: String,
    /// Total wait, in ns.
    pub ns: u64,
}
