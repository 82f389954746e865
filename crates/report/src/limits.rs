//! Which lock limits an arm, and which functions hold it.

use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, LIMITING_SHARE, LockRecord};

/// The waits for one lock class.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Limit<'a> {
    /// The lock's class.
    pub class: &'a str,
    /// Whether tasks sleep while they wait for it.
    pub sleeps: bool,
    /// The waits for it. For a spin lock: as a share of the time for which CPUs are not idle. For a
    /// sleeping lock: as a share of that time and of all waits for sleeping locks, which together
    /// are the time of tasks that run or wait for a lock. A task that spins for a sleeping lock
    /// counts in both, so this share is rather too small.
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
pub(crate) fn limits(arm: &ArmRecord) -> Option<Vec<Limit<'_>>> {
    let busy_ns = arm.cpu_time.filter(|time| time.busy_ns > 0)?.busy_ns as f64;
    let mut classes = BTreeMap::<&str, Vec<&LockRecord>>::new();
    for lock in &arm.locks {
        classes.entry(&lock.class).or_default().push(lock);
    }
    let asleep = arm.locks.iter().filter(|lock| lock.sleeps);
    let asleep_ns: u64 = asleep.map(|lock| lock.wait_total_ns).sum();
    let mut limits = vec![];
    for (class, locks) in classes {
        let sleeps = locks.iter().any(|lock| lock.sleeps);
        let wait_ns: u64 = locks.iter().map(|lock| lock.wait_total_ns).sum();
        let of_ns = if sleeps { busy_ns + asleep_ns as f64 } else { busy_ns };
        let wait_share = wait_ns as f64 / of_ns;
        limits.push(Limit { class, sleeps, wait_share, holders: holders(&locks) });
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
