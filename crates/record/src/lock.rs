//! Lock statistics, as machines collect them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The locks of one class taken on one call path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockRow {
    /// The lock's class: `zone`, `pcp`, ...
    pub class: String,
    /// Functions from the root of the call path to the one that took the lock.
    pub path: Vec<String>,
    /// Times the lock was taken.
    pub acquisitions: u64,
    /// Times it was not free at once.
    pub contentions: u64,
    /// Time spent waiting, in ns.
    pub wait_total_ns: u64,
    /// The longest wait, in ns.
    pub wait_max_ns: u64,
    /// Time held, in ns.
    pub hold_total_ns: u64,
}
