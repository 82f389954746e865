//! Locks by class and site.
//!
//! Every lock that was contended in some arm has one line per arm. If a class is taken in several
//! functions, a sum over them follows, so that both sides of a race and their sum can be read.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_document::{ArmRecord, Document, LockRecord, Target};

use super::only::is_shown;
use super::table::beside;
use super::{Notes, wrap};
use crate::number::scaled;

/// The site name in the rows of sums over a class.
const ALL_SITES: &str = "(all sites)";

type Key<'a> = (&'a str, &'a str);

/// Returns the lines on locks; none if no lock was recorded.
pub(super) fn lines(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    let several = with_several_sites(document);
    let arms: Vec<BTreeMap<Key<'_>, LockRecord>> =
        document.arms.iter().map(|arm| with_sums(arm, &several)).collect();
    let mut keys: Vec<Key<'_>> = arms.iter().flat_map(|arm| arm.keys().copied()).collect();
    // Sites by name, then the sum of the class.
    keys.sort_by_key(|&(class, site)| (class, site == ALL_SITES, site));
    keys.dedup();
    keys.retain(|(class, site)| is_shown(&notes.only, &format!("{class} {site}")));
    if keys.is_empty() {
        return vec![];
    }
    let waited = |key: &Key<'_>| arms.iter().any(|a| a.get(key).is_some_and(|l| l.contentions > 0));
    let (shown, quiet): (Vec<Key<'_>>, Vec<Key<'_>>) = keys.into_iter().partition(waited);
    let mut lines = vec![String::new()];
    if !shown.is_empty() {
        lines.extend(wrap("locks, summed over seeds; max is the longest wait of any", "", "  "));
        lines.push(cells(["taken", "waited", "wait", "max", "hold avg"].map(str::to_owned), ""));
    }
    for key in shown {
        lines.push(format!("{} {}", key.0, key.1));
        for (arm, locks) in document.arms.iter().zip(&arms) {
            let none = LockRecord::default();
            lines.push(row(document.on, &arm.arm, locks.get(&key).unwrap_or(&none)));
        }
    }
    let quiet: Vec<String> = quiet
        .into_iter()
        .filter(|key| key.1 != ALL_SITES)
        .map(|(class, site)| format!("{class} {site}"))
        .collect();
    if !quiet.is_empty() {
        lines.extend(wrap(&quiet.join(", "), "taken and never waited for: ", "  "));
    }
    lines
}

/// Returns the classes that are taken in several functions, in one arm or in different arms. An arm
/// that takes such a class in only one function has a sum, too.
fn with_several_sites(document: &Document) -> BTreeSet<&str> {
    let mut sites = BTreeMap::<&str, BTreeSet<&str>>::new();
    for lock in document.arms.iter().flat_map(|arm| &arm.locks) {
        sites.entry(&lock.class).or_default().insert(&lock.site);
    }
    sites.into_iter().filter(|(_, sites)| sites.len() > 1).map(|(class, _)| class).collect()
}

/// Returns an arm's locks by class and site, with a sum for each class in `several`.
fn with_sums<'a>(arm: &'a ArmRecord, several: &BTreeSet<&str>) -> BTreeMap<Key<'a>, LockRecord> {
    let mut locks = BTreeMap::<Key<'a>, LockRecord>::new();
    for lock in &arm.locks {
        if several.contains(lock.class.as_str()) {
            let sum = locks.entry((&lock.class, ALL_SITES)).or_default();
            sum.acquisitions += lock.acquisitions;
            sum.contentions += lock.contentions;
            sum.wait_total_ns += lock.wait_total_ns;
            sum.wait_max_ns = sum.wait_max_ns.max(lock.wait_max_ns);
            sum.hold_total_ns += lock.hold_total_ns;
        }
        locks.insert((&lock.class, &lock.site), lock.clone());
    }
    locks
}

fn row(on: Target, arm: &str, lock: &LockRecord) -> String {
    let hold = match lock.acquisitions {
        0 => "-".to_owned(),
        n => scaled(lock.hold_total_ns as f64 / n as f64, "ns"),
    };
    let mut counts = [lock.acquisitions, lock.contentions].map(|n| scaled(n as f64, "1"));
    // The live kernel reports waits only, so the number of acquisitions is unknown.
    if on == Target::Live {
        counts[0] = "-".to_owned();
    }
    let times = [lock.wait_total_ns, lock.wait_max_ns].map(|ns| scaled(ns as f64, "ns"));
    let [taken, waited] = counts;
    let [wait, max] = times;
    cells([taken, waited, wait, max, hold], arm)
}

fn cells(cells: [String; 5], name: &str) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
    beside(&super::cut(&format!("  {name}"), 22), &cells).concat()
}
