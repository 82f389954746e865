//! Rates between two snapshots of one machine.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Snapshot, SnapshotError};

/// The rate of one event.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The event, in words.
    pub what: &'static str,
    /// The counters of `/proc/vmstat` whose sum it is: names, or their beginnings with a `*`.
    pub counters: &'static [&'static str],
    /// Events a second.
    pub per_s: f64,
}

/// The rates of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Seconds between the snapshots.
    pub seconds: f64,
    /// Events that happened, in a fixed order.
    pub all: Vec<Rate>,
}

/// Why two snapshots have no rates.
#[derive(Debug, Error)]
pub enum RatesError {
    /// A file is missing or damaged.
    #[error("{which}: {why}")]
    Snapshot {
        /// Which snapshot: the first or the second.
        which: &'static str,
        /// The error.
        why: SnapshotError,
    },
    /// The time between the snapshots is not known.
    #[error("the time between the snapshots is not known: no /proc/uptime; give --seconds")]
    Time,
    /// The second snapshot is not later.
    #[error(
        "the second snapshot is not later than the first ({before} s and {after} s after boot): \
         give them in their order, of one boot"
    )]
    Order {
        /// Seconds from boot to the first.
        before: f64,
        /// Seconds from boot to the second.
        after: f64,
    },
    /// A counter is smaller in the second snapshot, or below zero.
    #[error("`{counter}` goes from {before} to {after}: the snapshots are not of one boot")]
    Back {
        /// The name of the counter.
        counter: String,
        /// Its value in the first.
        before: u64,
        /// Its value in the second.
        after: u64,
    },
}

/// The most events between two snapshots.
const MOST: u64 = i64::MAX as u64;

/// Events with their counters.
const EVENTS: [(&str, &[&str]); 17] = [
    ("page faults", &["pgfault"]),
    ("major faults", &["pgmajfault"]),
    ("faults with a huge page", &["thp_fault_alloc"]),
    ("huge pages that were not available", &["thp_fault_fallback"]),
    ("pages allocated", &["pgalloc_*"]),
    ("pages freed", &["pgfree"]),
    ("pages scanned by kswapd", &["pgscan_kswapd", "pgscan_khugepaged"]),
    ("pages scanned by direct reclaim", &["pgscan_direct"]),
    ("pages reclaimed", &["pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged"]),
    ("stalls in direct reclaim", &["allocstall_*"]),
    ("stalls in compaction", &["compact_stall"]),
    ("pages swapped in", &["pswpin"]),
    ("pages swapped out", &["pswpout"]),
    ("pages migrated", &["pgmigrate_success"]),
    ("faults of NUMA balancing", &["numa_hint_faults"]),
    ("shootdowns of TLBs, sent", &["nr_tlb_remote_flush"]),
    ("shootdowns of TLBs, received", &["nr_tlb_remote_flush_received"]),
];

impl Rates {
    /// Returns the rate of an event by its first counter; 0 if it did not happen.
    pub fn of(&self, counter: &str) -> f64 {
        let found = self.all.iter().find(|rate| rate.counters.first() == Some(&counter));
        found.map_or(0.0, |rate| rate.per_s)
    }

    /// Returns the rates between two snapshots. `seconds` replaces the time by the machine's clock.
    pub fn between(
        before: &Snapshot,
        after: &Snapshot,
        seconds: Option<f64>,
    ) -> Result<Self, RatesError> {
        let of = |which, snapshot: &Snapshot| match snapshot.counters() {
            Ok(counters) => {
                Ok(counters.into_iter().map(|(name, n)| (name.to_owned(), n)).collect())
            }
            Err(why) => Err(RatesError::Snapshot { which, why }),
        };
        let first: BTreeMap<String, u64> = of("the first", before)?;
        let second: BTreeMap<String, u64> = of("the second", after)?;
        let clock = before.uptime_s().zip(after.uptime_s());
        if let Some((before, after)) = clock.filter(|(before, after)| after <= before) {
            return Err(RatesError::Order { before, after });
        }
        let seconds = seconds.or(clock.map(|(before, after)| after - before));
        let seconds = seconds.ok_or(RatesError::Time)?;
        let mut all = Vec::new();
        for (what, counters) in EVENTS {
            let mut events: u64 = 0;
            for (name, &now) in second.iter().filter(|(name, _)| matches(counters, name)) {
                let then = first.get(name).copied().unwrap_or(now);
                // A counter below zero is printed without its sign.
                let more = now.checked_sub(then).filter(|more| *more <= MOST - events);
                events += more.ok_or_else(|| RatesError::Back {
                    counter: name.clone(),
                    before: then,
                    after: now,
                })?;
            }
            if events > 0 {
                all.push(Rate { what, counters, per_s: events as f64 / seconds });
            }
        }
        Ok(Self { seconds, all })
    }
}

fn matches(counters: &[&str], name: &str) -> bool {
    counters.iter().any(|counter| match counter.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => *counter == name,
    })
}
