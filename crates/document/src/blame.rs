//! Blame: what the holders of a lock did while others waited for it. Raw rows as machines collect
//! them ([`BlameRows`]), sums as documents show them ([`BlameRecord`], [`NamedLockRecord`]).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A holder's occupation while another CPU waited for its lock.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It worked on its call path: operations, hits in its cache, interrupts that it handled.
    Work,
    /// It waited for a cache line that the other thread of its core had.
    MissCore,
    /// It waited for a line that another CPU with the same last-level cache had.
    MissCluster,
    /// It waited for a line that a CPU of the same node, with another cache, had.
    MissNode,
    /// It waited for a line that a CPU of another node had.
    MissRemote,
    /// It waited for a line from memory.
    MissMemory,
    /// Nothing held the lock: it was on its way from one CPU to the next.
    Handover,
    /// The hypervisor or firmware had its CPU.
    Stolen,
    /// A foreign interrupt handler ran on its CPU.
    Handler,
    /// Not known: the live kernel shows holders of some locks only.
    Unseen,
}

/// A share of the waits for the locks of one class on one call path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlameRow {
    /// The class of the lock that was waited for.
    pub class: String,
    /// The call path of the waiters, outermost function first.
    pub waiter: Vec<String>,
    /// The call path of the holder, outermost function first; empty for a handover, and for a
    /// holder that was not seen.
    pub holder: Vec<String>,
    /// The holder's occupation.
    pub doing: Doing,
    /// The class of the lock that the holder of `class` waited for itself. `holder` is then the
    /// holder of that lock.
    pub through: Option<String>,
    /// The sum of these stretches over all waits, in ps.
    pub wait_ps: u64,
}

/// The waits for one lock, or for all locks of a class that have no name of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedLockRow {
    /// Its class.
    pub class: String,
    /// Its name: `zone 1`, `lruvec of group 7 on node 0`; the class if it has none.
    pub lock: String,
    /// How often a CPU waited for it.
    pub waits: u64,
    /// The sum of these waits, in ps.
    pub wait_ps: u64,
}

/// The record of a run's waits: raw rows as machines collect them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlameRows {
    /// The holders' work meanwhile.
    pub shares: Vec<BlameRow>,
    /// These waits by lock.
    pub locks: Vec<NamedLockRow>,
}

/// The waits for one lock, summed over the seeds of an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedLockRecord {
    /// Its class: `zone`, `pcp`, ...
    pub class: String,
    /// Its name: `zone 1`, `lruvec of group 7 on node 0`. The class stands for all locks of the
    /// class that have no name.
    pub lock: String,
    /// How often a CPU waited for it.
    pub waits: u64,
    /// The sum of these waits, in ns.
    pub wait_total_ns: u64,
}

impl NamedLockRecord {
    /// Sums rows by lock. The longest total comes first.
    pub fn aggregate<'a>(rows: impl IntoIterator<Item = &'a NamedLockRow>) -> Vec<Self> {
        let mut sums = BTreeMap::<_, (u64, u64)>::new();
        for row in rows {
            let (waits, wait_ps) = sums.entry((&row.class, &row.lock)).or_default();
            *waits += row.waits;
            *wait_ps += row.wait_ps;
        }
        let mut records: Vec<_> = sums
            .into_iter()
            .map(|((class, lock), (waits, ps))| Self {
                class: class.clone(),
                lock: lock.clone(),
                waits,
                wait_total_ns: ps / 1000,
            })
            .collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.wait_total_ns));
        records
    }
}

/// A share of the waits for the locks of one class in one function, summed over the seeds of an
/// arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlameRecord {
    /// The class of the lock that was waited for: `zone`, `pcp`, ...
    pub class: String,
    /// The function that waited: the innermost one of the call path. Of a recording with its
    /// caller, `function < caller`: many functions that take a lock do only that.
    pub waiter: String,
    /// The call path of the holder, from the root; empty for a handover.
    pub holder: Vec<String>,
    /// The holder's occupation.
    pub doing: Doing,
    /// The class of the lock that the holder of `class` waited for itself. `holder` is then the
    /// holder of that lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The time that was waited for it, in ns, summed over waits and seeds.
    pub wait_total_ns: u64,
}

impl BlameRecord {
    /// Sums rows by all but the waiter's callers. The longest total comes first; shares of less
    /// than 1 ns are left out.
    pub fn aggregate<'a>(rows: impl IntoIterator<Item = &'a BlameRow>) -> Vec<Self> {
        let mut sums = BTreeMap::<_, u64>::new();
        for row in rows {
            let waiter = row.waiter.last().map_or("unknown", String::as_str);
            let key = (&row.class, waiter, &row.holder, row.doing, &row.through);
            *sums.entry(key).or_default() += row.wait_ps;
        }
        let records = sums.into_iter().map(|((class, waiter, holder, doing, through), ps)| Self {
            class: class.clone(),
            waiter: waiter.to_owned(),
            holder: holder.clone(),
            doing,
            through: through.clone(),
            wait_total_ns: ps / 1000,
        });
        let mut records: Vec<_> = records.filter(|record| record.wait_total_ns > 0).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.wait_total_ns));
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(waiter: &[&str], holder: &[&str], through: Option<&str>, wait_ps: u64) -> BlameRow {
        let names = |path: &[&str]| path.iter().map(|&name| name.to_owned()).collect();
        BlameRow {
            class: "zone".to_owned(),
            waiter: names(waiter),
            holder: names(holder),
            doing: Doing::Work,
            through: through.map(str::to_owned),
            wait_ps,
        }
    }

    #[test]
    fn callers_of_waiters_are_summed_and_the_longest_comes_first() {
        let rows = [
            row(&["fault", "rmqueue_bulk"], &["exit", "free_pcppages_bulk"], None, 1_500),
            row(&["mmap", "rmqueue_bulk"], &["exit", "free_pcppages_bulk"], None, 1_500),
            row(&["mmap", "rmqueue_bulk"], &["tick"], None, 9_000),
            row(&["mmap", "rmqueue_bulk"], &["tick"], Some("lruvec"), 999),
        ];
        let records = BlameRecord::aggregate(&rows);
        let told: Vec<_> =
            records.iter().map(|record| (record.holder.join(" "), record.wait_total_ns)).collect();
        assert_eq!(
            told,
            [("tick".to_owned(), 9), ("exit free_pcppages_bulk".to_owned(), 3)],
            "less than 1 ns is left out"
        );
    }
}
