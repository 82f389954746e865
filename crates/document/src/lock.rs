//! Lock statistics: raw rows as machines collect them ([`LockRow`]), sums as documents show them
//! ([`LockRecord`]).

use std::collections::BTreeMap;

use crate::call::is_zero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Minimum share of the waits for a lock that limits an arm.
pub const LIMITING_SHARE: f64 = 0.05;

/// Statistics of the locks of one class, taken on one call path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockRow {
    /// The lock's class: `zone`, `pcp`, ...
    pub class: String,
    /// Whether tasks sleep while they wait for it (mutex, rwsem), so that waits are not CPU time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sleeps: bool,
    /// Functions from the root of the call path to the one that took the lock.
    pub path: Vec<String>,
    /// Times the lock was taken.
    pub acquisitions: u64,
    /// Times the lock was not free when it was requested.
    pub contentions: u64,
    /// Total time spent waiting, in ns.
    pub wait_total_ns: u64,
    /// The part of `wait_total_ns` after the end of the window in which locks are counted, in ns:
    /// a wait counts in full if it begins in the window.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wait_after_ns: u64,
    /// The longest wait, in ns.
    pub wait_max_ns: u64,
    /// Waits behind another waiting CPU. Of a queue lock's waits, tracepoints of Linux
    /// (`contention_begin`), and so `perf lock contention`, have only these: the first waiter spins
    /// on the lock word, without an event (`queued_spin_lock_slowpath`).
    pub queued: u64,
    /// Total time of the waits behind another waiting CPU, in ns.
    pub queued_total_ns: u64,
    /// The longest wait behind another waiting CPU, in ns.
    pub queued_max_ns: u64,
    /// Total time held, in ns.
    pub hold_total_ns: u64,
}

/// The waits for the locks of one class.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassWaits<'a> {
    /// The class.
    pub class: &'a str,
    /// Whether tasks sleep while they wait.
    pub sleeps: bool,
    /// The waits in the windows, 0 to 1. For a spin lock: as a share of the time for which CPUs are
    /// not idle. For a sleeping lock: as a share of that time and of all waits for sleeping locks,
    /// which together are the time of tasks that run or wait for a lock. A task that spins for a
    /// sleeping lock counts in both, so this share is rather too small.
    pub share: f64,
    /// Its records.
    pub locks: Vec<&'a LockRecord>,
}

/// Returns the classes of locks with waits, in descending order of their shares. CPUs are not idle
/// for `busy_ns`.
pub fn class_waits(locks: &[LockRecord], busy_ns: u64) -> Vec<ClassWaits<'_>> {
    let mut classes = BTreeMap::<&str, Vec<&LockRecord>>::new();
    for lock in locks {
        classes.entry(&lock.class).or_default().push(lock);
    }
    let asleep = locks.iter().filter(|lock| lock.sleeps);
    let asleep_ns: u64 = asleep.map(LockRecord::wait_within_ns).sum();
    let mut waits = Vec::with_capacity(classes.len());
    for (class, locks) in classes {
        let sleeps = locks.iter().any(|lock| lock.sleeps);
        let wait_ns: u64 = locks.iter().map(|lock| lock.wait_within_ns()).sum();
        let of_ns = if sleeps { busy_ns + asleep_ns } else { busy_ns };
        let share = wait_ns as f64 / of_ns.max(1) as f64;
        waits.push(ClassWaits { class, sleeps, share, locks });
    }
    waits.retain(|waits| waits.share > 0.0);
    waits.sort_by(|a, b| b.share.total_cmp(&a.share));
    waits
}

impl LockRow {
    /// Returns the time of waits within the window in which locks are counted, in ns.
    pub fn wait_within_ns(&self) -> u64 {
        self.wait_total_ns.saturating_sub(self.wait_after_ns)
    }
    /// Returns whether a function, by its kernel name, is anywhere on the call path.
    pub fn passes_through(&self, function: &str) -> bool {
        self.path.iter().any(|step| step == function)
    }
}

/// Statistics of the locks of one class, taken in one function: over all call paths to that
/// function and all seeds of an arm. Counts and times are sums; `wait_max_ns` is the maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LockRecord {
    /// The lock's class: `zone`, `pcp`, ...
    pub class: String,
    /// Whether tasks sleep while they wait for it (mutex, rwsem), so that waits are not CPU time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sleeps: bool,
    /// The function that took the lock: the innermost one of the call path.
    pub site: String,
    /// Times the lock was taken, summed over seeds.
    pub acquisitions: u64,
    /// Times the lock was not free when it was requested, summed over seeds.
    pub contentions: u64,
    /// Total time spent waiting, in ns, summed over seeds.
    pub wait_total_ns: u64,
    /// The part of `wait_total_ns` after the windows in which locks are counted, in ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wait_after_ns: u64,
    /// The longest single wait over all seeds, in ns.
    pub wait_max_ns: u64,
    /// Total time held, in ns, summed over seeds.
    pub hold_total_ns: u64,
}

impl LockRecord {
    /// Returns the time of waits within the windows in which locks are counted, in ns.
    pub fn wait_within_ns(&self) -> u64 {
        self.wait_total_ns.saturating_sub(self.wait_after_ns)
    }
    /// Sums rows by class and innermost function. The result is sorted by both.
    pub fn aggregate<'a>(rows: impl IntoIterator<Item = &'a LockRow>) -> Vec<Self> {
        let record = |row: &LockRow| Self {
            class: row.class.clone(),
            sleeps: row.sleeps,
            site: row.path.last().map_or("unknown", String::as_str).to_owned(),
            acquisitions: row.acquisitions,
            contentions: row.contentions,
            wait_total_ns: row.wait_total_ns,
            wait_after_ns: row.wait_after_ns,
            wait_max_ns: row.wait_max_ns,
            hold_total_ns: row.hold_total_ns,
        };
        let records: Vec<Self> = rows.into_iter().map(record).collect();
        Self::sum(&records)
    }

    /// Sums records by class and function, as of runs with other seeds. The result is sorted by
    /// both.
    pub fn sum<'a>(records: impl IntoIterator<Item = &'a Self>) -> Vec<Self> {
        let mut sums = BTreeMap::<(&str, &str), Self>::new();
        for record in records {
            let sum = sums.entry((&record.class, &record.site)).or_insert_with(|| Self {
                class: record.class.clone(),
                sleeps: record.sleeps,
                site: record.site.clone(),
                ..Self::default()
            });
            sum.acquisitions += record.acquisitions;
            sum.contentions += record.contentions;
            sum.wait_total_ns += record.wait_total_ns;
            sum.wait_after_ns += record.wait_after_ns;
            sum.wait_max_ns = sum.wait_max_ns.max(record.wait_max_ns);
            sum.hold_total_ns += record.hold_total_ns;
        }
        sums.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(class: &str, path: &[&str], n: u64) -> LockRow {
        LockRow {
            class: class.into(),
            sleeps: class == "mutex",
            path: path.iter().map(|&step| step.to_owned()).collect(),
            acquisitions: 10 * n,
            contentions: n,
            wait_total_ns: 100 * n,
            wait_max_ns: 50 * n,
            hold_total_ns: 1000 * n,
            ..LockRow::default()
        }
    }

    #[test]
    fn waits_are_shares_of_tasks_that_run_or_wait() {
        let lock = |class: &str, sleeps, wait_total_ns, wait_after_ns| {
            let class = class.to_owned();
            LockRecord { class, sleeps, wait_total_ns, wait_after_ns, ..LockRecord::default() }
        };
        // 48 tasks in a window of 100 ns; most wait for a semaphore, beyond its end too.
        let locks = [
            lock("mmap_lock", true, 5200, 1000),
            lock("mmap_lock", true, 300, 0),
            lock("zone", false, 50, 0),
            lock("pte", false, 40, 40),
        ];
        let waits = class_waits(&locks, 300);
        let shares: Vec<(&str, f64)> = waits.iter().map(|of| (of.class, of.share)).collect();
        assert_eq!(shares, [("mmap_lock", 4500.0 / 4800.0), ("zone", 50.0 / 300.0)]);
        assert!(waits[0].sleeps && waits[0].locks.len() == 2);
    }

    #[test]
    fn paths_that_end_in_one_function_make_one_row() {
        let rows = [
            row("zone", &["root", "free_pages", "free_pcppages_bulk"], 2),
            row("pcp", &["root", "free_pages"], 1),
            row("zone", &["kworker", "vmstat_update", "free_pcppages_bulk"], 3),
        ];
        let sums = LockRecord::aggregate(&rows);
        assert_eq!(sums.len(), 2);
        assert_eq!((sums[0].class.as_str(), sums[0].site.as_str()), ("pcp", "free_pages"));
        let zone = &sums[1];
        assert_eq!(zone.site, "free_pcppages_bulk");
        assert_eq!((zone.acquisitions, zone.contentions), (50, 5));
        assert_eq!((zone.wait_total_ns, zone.wait_max_ns, zone.hold_total_ns), (500, 150, 5000));
    }

    #[test]
    fn sums_of_records_are_those_of_all_rows() {
        let rows = [row("zone", &["a", "b"], 2), row("pcp", &["a"], 1), row("zone", &["b"], 3)];
        let parts = [LockRecord::aggregate(&rows[..2]), LockRecord::aggregate(&rows[2..])];
        assert_eq!(LockRecord::sum(parts.iter().flatten()), LockRecord::aggregate(&rows));
    }

    #[test]
    fn a_function_is_found_anywhere_on_the_path() {
        let row = row("zone", &["kworker", "vmstat_update", "free_pcppages_bulk"], 1);
        assert!(row.passes_through("vmstat_update"));
        assert!(!row.passes_through("vmstat"));
    }
}
