//! Stretches of time in which a CPU could run no other task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One stretch in which preemption or interrupts were off, among the longest of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SectionRecord {
    /// The seed of the run that it belongs to.
    pub seed: u64,
    /// The CPU.
    pub cpu: u32,
    /// When it began, in ns since the start of the run.
    pub begin_ns: u64,
    /// How long it was, in ns.
    pub ns: u64,
    /// Functions from the root of the call path to the one in which most of it passed.
    pub path: Vec<String>,
    /// What it waited for, the longest first; the rest is work.
    pub waits: Vec<SectionWait>,
}

/// What a section waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SectionWait {
    /// A lock by its class, another CPU, the machine itself.
    pub what: String,
    /// For how long in all, in ns.
    pub ns: u64,
}
