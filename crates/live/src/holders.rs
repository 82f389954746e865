//! Holders of contended locks, from the kernel's reports of their releases.
//!
//! `lock:contended_release` fires in the task that releases a lock for which others wait. The last
//! release before a wait ended is the holder that the waiter waited for last.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mmscale_document::{Hold, Watch};
use mmscale_linux::{Plan, Sampling, WatchError, Watching, is_emulated};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;

/// Waits for a lock that ended with releases on one call path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The lock's class.
    pub class: &'static str,
    /// Functions of the holder, from the outermost to the one that released the lock.
    pub path: Vec<String>,
    /// Number of waits.
    pub waits: u64,
    /// Total of these waits, in ns.
    pub wait_total_ns: u64,
    /// The longest of them, in ns.
    pub wait_max_ns: u64,
    /// Number of holds whose whole length is known: the holder had waited itself, and the waiter
    /// already waited.
    pub holds: u64,
    /// Total of these holds, in ns.
    pub hold_total_ns: u64,
    /// The longest of them, in ns.
    pub hold_max_ns: u64,
}

impl Holder {
    /// Returns the innermost functions of the path.
    pub fn name(&self) -> String {
        short(&self.path)
    }
    /// Returns the mean of the holds, in ns; `None` if the length of none is known.
    pub fn hold_mean_ns(&self) -> Option<u64> {
        self.hold_total_ns.checked_div(self.holds)
    }
}

/// Returns the innermost functions of a path.
pub(crate) fn short(path: &[String]) -> String {
    let inner: Vec<&str> = path.iter().rev().take(5).map(String::as_str).collect();
    if inner.is_empty() { "unknown".to_owned() } else { inner.join(" < ") }
}

/// Returns the selected waits by class and holder, the largest total first.
pub(crate) fn rows(holds: &[Hold], meant: impl Fn(&Hold) -> bool) -> Vec<Holder> {
    let mut merged = BTreeMap::<(&str, &[String]), Holder>::new();
    for hold in holds.iter().filter(|hold| meant(hold)) {
        let Hold { class, waits, whole, .. } = hold;
        let empty = || Holder {
            class,
            path: hold.holder.clone(),
            waits: 0,
            wait_total_ns: 0,
            wait_max_ns: 0,
            holds: 0,
            hold_total_ns: 0,
            hold_max_ns: 0,
        };
        let row = merged.entry((class, &hold.holder)).or_insert_with(empty);
        row.waits += waits.count;
        row.wait_total_ns += waits.total_ns;
        row.wait_max_ns = row.wait_max_ns.max(waits.max_ns);
        row.holds += whole.count;
        row.hold_total_ns += whole.total_ns;
        row.hold_max_ns = row.hold_max_ns.max(whole.max_ns);
    }
    let mut rows: Vec<Holder> = merged.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.wait_total_ns));
    rows
}

/// The kernel's reports of holders of contended locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Releases {
    /// It has no tracepoint of releases.
    NotReported,
    /// It has, but no wait of the test ended with a known release.
    NoneSeen,
    /// It has, and this is a holder of the test's lock.
    Seen(Holder),
}

/// How long the test waits for a holder, and how long in an emulator, whose CPUs take turns.
const LIMIT: Duration = Duration::from_secs(1);
const LIMIT_EMULATED: Duration = Duration::from_secs(10);
/// The bytes of a write: long enough that others come while it holds the file's lock.
const WRITE_BYTES: usize = 1 << 20;

/// Examines whether the kernel reports releases: two threads write to one file in memory, whose
/// lock the kernel holds for each write.
///
/// # Errors
/// The kernel cannot be observed.
pub fn releases() -> Result<Releases, WatchError> {
    let watches = vec![Watch::Locks];
    let mut watching = Watching::begin(&Plan { watches, sampling: Sampling::All })?;
    if !watching.sees_releases() {
        return Ok(Releases::NotReported);
    }
    watching.count_all(u64::MAX)?;
    let is_over = AtomicBool::new(false);
    let limit = if is_emulated() { LIMIT_EMULATED } else { LIMIT };
    let found = || -> Result<Option<Holder>, WatchError> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            std::thread::sleep(limit / 50);
            let holds = watching.seen()?.holds.unwrap_or_default();
            let known = rows(&holds, |hold| hold.holder.iter().any(|step| step == "vfs_write"));
            if let Some(first) = known.into_iter().next() {
                return Ok(Some(first));
            }
        }
        Ok(None)
    };
    let Ok(file) = memfd_create("contended", MemfdFlags::CLOEXEC).map(File::from) else {
        return Ok(Releases::NoneSeen);
    };
    let seen = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| write_until(&file, &is_over));
        }
        let seen = found();
        is_over.store(true, Ordering::Relaxed);
        seen
    })?;
    Ok(seen.map_or(Releases::NoneSeen, Releases::Seen))
}

fn write_until(file: &File, is_over: &AtomicBool) -> io::Result<()> {
    let bytes = vec![1; WRITE_BYTES];
    while !is_over.load(Ordering::Relaxed) {
        file.write_all_at(&bytes, 0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_document::{Durations, Side};

    fn hold(class: &'static str, holder: &str, total_ns: u64, whole: &[u64]) -> Hold {
        let durations = |all: &[u64]| Durations {
            count: all.len() as u64,
            total_ns: all.iter().sum(),
            max_ns: all.iter().copied().max().unwrap_or(0),
            ..Durations::default()
        };
        Hold {
            class,
            path: vec!["do_exit".to_owned(), holder.to_owned()],
            side: Side::Ours,
            holder: vec!["kthread".to_owned(), holder.to_owned()],
            waits: durations(&[total_ns]),
            whole: durations(whole),
        }
    }

    #[test]
    fn paths_are_shown_from_the_lock_outwards() {
        let path = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        assert_eq!(short(&path), "f < e < d < c < b");
        assert_eq!(short(&[]), "unknown");
    }

    #[test]
    fn holders_of_all_waiters_are_summed_by_class() {
        let holds = [
            hold("zone", "rmqueue_bulk", 100, &[]),
            hold("zone", "free_pcppages_bulk", 300, &[40, 60]),
            hold("zone", "free_pcppages_bulk", 200, &[80]),
            hold("lruvec", "free_pcppages_bulk", 700, &[]),
        ];
        let zone = rows(&holds, |hold| hold.class == "zone");
        let names: Vec<String> = zone.iter().map(Holder::name).collect();
        assert_eq!(names, ["free_pcppages_bulk < kthread", "rmqueue_bulk < kthread"]);
        let first = &zone[0];
        assert_eq!((first.waits, first.wait_total_ns, first.wait_max_ns), (2, 500, 300));
        assert_eq!((first.holds, first.hold_mean_ns(), first.hold_max_ns), (3, Some(60), 80));
        assert_eq!(zone[1].hold_mean_ns(), None);
        assert_eq!(rows(&holds, |_| true).len(), 3);
    }
}
