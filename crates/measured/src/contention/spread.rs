//! The distribution of waits, in bounded memory.

use std::collections::BTreeMap;

/// Parts of a power of two: a value is off by at most 1/64.
const PARTS: u32 = 64;

/// Counts of waits by their length.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Lengths {
    counts: BTreeMap<u16, u64>,
    pub(super) waits: u64,
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
}

/// Returns the number of the class of a length; lengths below [`PARTS`] have one each.
fn class(ns: u64) -> u16 {
    if ns < u64::from(PARTS) {
        return ns as u16;
    }
    let shift = ns.ilog2() - PARTS.ilog2();
    // `ns >> shift` is from PARTS to twice as much.
    ((shift + 1) * PARTS + ((ns >> shift) as u32 - PARTS)) as u16
}

/// Returns the middle of a class.
fn middle(class: u16) -> u64 {
    let class = u32::from(class);
    if class < PARTS {
        return class.into();
    }
    let (shift, part) = (class / PARTS - 1, class % PARTS);
    let low = u64::from(PARTS + part) << shift;
    low + ((1_u64 << shift) >> 1)
}

impl Lengths {
    pub(super) fn add(&mut self, ns: u64) {
        *self.counts.entry(class(ns)).or_default() += 1;
        self.waits += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }
    pub(super) fn merge(&mut self, other: &Self) {
        for (class, count) in &other.counts {
            *self.counts.entry(*class).or_default() += count;
        }
        self.waits += other.waits;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
    /// Returns the length that this part of the waits does not exceed.
    pub(super) fn quantile_ns(&self, part: f64) -> u64 {
        let rank = ((part * self.waits as f64).ceil() as u64).max(1);
        let mut below = 0;
        for (class, count) in &self.counts {
            below += count;
            if below >= rank {
                return middle(*class).min(self.max_ns);
            }
        }
        self.max_ns
    }
}
