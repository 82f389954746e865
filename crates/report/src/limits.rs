//! The limit of an arm: a lock, with the functions that hold it, or cache lines; and tasks that
//! share CPUs while others are idle.

use std::collections::BTreeMap;

use mmscale_document::{
    ArmRecord, ClassWaits, CpuTimeRecord, LIMITING_SHARE, LineRecord, LockRecord, class_waits,
};

/// Minimum share of idle time that is worth a remark.
const IDLE: f64 = 0.5;
/// Minimum share of the time of all CPUs for which tasks waited next to idle CPUs that is worth a
/// remark.
const STRANDED: f64 = 0.02;

/// The waits for cache lines from other CPUs, those of locks that were waited for not included.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lines<'a> {
    /// As a share of the time for which CPUs are not idle.
    pub wait_share: f64,
    /// The functions that waited, with their shares of these waits; the longest first. Empty if
    /// the study does not collect call paths.
    pub functions: Vec<(&'a str, f64)>,
    /// The data in the lines, with their shares of the transfers' time; the longest first. Empty if
    /// the document does not have it.
    pub data: Vec<(&'a str, f64)>,
}

/// Returns the waits for cache lines, if they are long enough to limit the arm.
pub(crate) fn line_waits(arm: &ArmRecord) -> Option<Lines<'_>> {
    let time = arm.cpu_time?;
    let wait_share = time.lines_ns as f64 / time.busy_ns.max(1) as f64;
    let mut sums = BTreeMap::<&str, u64>::new();
    for call in arm.calls.iter().filter(|call| call.lines_ns > 0) {
        *sums.entry(call.path.last().map_or("", String::as_str)).or_default() += call.lines_ns;
    }
    let share = |(name, ns)| (name, ns as f64 / time.lines_ns.max(1) as f64);
    let mut functions: Vec<(&str, f64)> = sums.into_iter().map(share).collect();
    functions.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all_ns: u64 = arm.lines.iter().map(|line| line.wait_ns).sum();
    let share = |line: &'_ LineRecord| line.wait_ns as f64 / all_ns.max(1) as f64;
    let data = arm.lines.iter().map(|line| (line.line.as_str(), share(line))).collect();
    (wait_share >= LIMITING_SHARE).then_some(Lines { wait_share, functions, data })
}

/// Returns the share of the time of all CPUs in which they were idle.
pub(crate) fn idle_share(time: CpuTimeRecord) -> f64 {
    1.0 - time.busy_ns as f64 / time.all_ns.max(1) as f64
}

/// Returns the share of idle time, if CPUs are idle for most of the time.
pub(crate) fn mostly_idle(time: CpuTimeRecord) -> Option<f64> {
    Some(idle_share(time)).filter(|idle| *idle >= IDLE)
}

/// Returns the share of the time of all CPUs that tasks waited for a CPU while another was idle, if
/// it is worth a remark.
pub(crate) fn stranded(arm: &ArmRecord) -> Option<f64> {
    let time = arm.cpu_time?;
    let share = time.stranded_ns as f64 / time.all_ns.max(1) as f64;
    (share >= STRANDED).then_some(share)
}

/// The waits for one lock class.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Limit<'a> {
    /// The lock's class.
    pub class: &'a str,
    /// Whether tasks sleep while they wait for it.
    pub sleeps: bool,
    /// The waits for it, as [`ClassWaits`] has them.
    pub wait_share: f64,
    /// The functions that hold it, with their shares of its hold time; the longest first.
    pub holders: Vec<(&'a str, f64)>,
}

impl Limit<'_> {
    /// Returns whether the waits are long enough to limit the arm.
    pub(crate) fn is_limiting(&self) -> bool {
        self.wait_share >= LIMITING_SHARE
    }
}

/// Returns the lock classes of an arm with waits, in descending order of their shares. `None` if
/// the arm has no CPU time to compare the waits with.
pub(crate) fn limits<'a>(arm: &'a ArmRecord) -> Option<Vec<Limit<'a>>> {
    let busy_ns = arm.cpu_time.filter(|time| time.busy_ns > 0)?.busy_ns;
    let limit = |waits: ClassWaits<'a>| {
        let ClassWaits { class, sleeps, share, locks } = waits;
        Limit { class, sleeps, wait_share: share, holders: holders(&locks) }
    };
    Some(class_waits(&arm.locks, busy_ns).into_iter().map(limit).collect())
}

fn holders<'a>(locks: &[&'a LockRecord]) -> Vec<(&'a str, f64)> {
    let all_ns: u64 = locks.iter().map(|lock| lock.hold_total_ns).sum();
    let share = |lock: &&'a LockRecord| {
        (lock.site.as_str(), lock.hold_total_ns as f64 / all_ns.max(1) as f64)
    };
    let mut holders: Vec<(&str, f64)> = locks.iter().map(share).collect();
    holders.retain(|(_, share)| *share > 0.0);
    holders.sort_by(|a, b| b.1.total_cmp(&a.1));
    holders
}
