//! Which lock limits an arm, and which functions hold it.

use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, LockRecord};

/// Minimum share of the CPU time for which CPUs wait for a lock that limits an arm.
const LIMITING: f64 = 0.05;

/// The waits for one lock class.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Limit<'a> {
    /// The lock's class.
    pub class: &'a str,
    /// The time for which CPUs wait for it, as a share of the time that they are not idle.
    pub wait_share: f64,
    /// The functions that hold it, with their shares of its hold time; the longest first.
    pub holders: Vec<(&'a str, f64)>,
}

impl Limit<'_> {
    /// Returns whether the waits are long enough to limit the arm.
    pub(crate) fn is_limiting(&self) -> bool {
        self.wait_share >= LIMITING
    }
}

/// Returns the lock classes of an arm that CPUs waited for, in descending order of the wait. `None`
/// if the arm has no CPU time to compare the waits with.
pub(crate) fn limits(arm: &ArmRecord) -> Option<Vec<Limit<'_>>> {
    let busy_ns = arm.cpu_time.filter(|time| time.busy_ns > 0)?.busy_ns as f64;
    let mut classes = BTreeMap::<&str, Vec<&LockRecord>>::new();
    for lock in &arm.locks {
        classes.entry(&lock.class).or_default().push(lock);
    }
    let mut limits = vec![];
    for (class, locks) in classes {
        let wait_ns: u64 = locks.iter().map(|lock| lock.wait_total_ns).sum();
        let wait_share = wait_ns as f64 / busy_ns;
        limits.push(Limit { class, wait_share, holders: holders(&locks) });
    }
    limits.retain(|limit| limit.wait_share > 0.0);
    limits.sort_by(|a, b| b.wait_share.total_cmp(&a.wait_share));
    Some(limits)
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
