//! Detection of preemption while something was timed.

use std::fs;

/// Returns how often this thread was preempted since it began; 0 where the system does not report
/// it.
pub(crate) fn lost_processor() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
