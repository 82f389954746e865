//! What one CPU's tracepoints say about the end of an address space.

use mmscale_mm::arch::{Probe, Trace, TraceGroup, ZapBy};
use std::any::Any;
use std::collections::BTreeSet;

/// One CPU's view of a run, from the signal on.
#[derive(Debug)]
pub(super) struct ReapProbe {
    /// What happens from here on counts.
    from_ns: u64,
    /// When pages came back: time and how many.
    pub(super) freed: Vec<(u64, u32)>,
    /// Page tables that this CPU has taken pages out of, by address space.
    pub(super) tables: BTreeSet<(usize, u32)>,
    pub(super) flushes: u64,
    /// Waits for mmap_lock at the end of an address space.
    pub(super) exit_lock_wait_ns: u64,
}

impl ReapProbe {
    pub(super) fn new(from_ns: u64) -> Self {
        let (freed, tables) = (Vec::new(), BTreeSet::new());
        Self { from_ns, freed, tables, flushes: 0, exit_lock_wait_ns: 0 }
    }
    /// Pages that came back until `until_ns`.
    pub(super) fn pages(&self, until_ns: u64) -> u64 {
        let counts = |&&(at_ns, _): &&(u64, u32)| at_ns <= until_ns;
        self.freed.iter().filter(counts).map(|&(_, pages)| u64::from(pages)).sum()
    }
    /// When the last page came back until then.
    pub(super) fn last_ns(&self, until_ns: u64) -> Option<u64> {
        self.freed.iter().map(|&(at_ns, _)| at_ns).filter(|&at_ns| at_ns <= until_ns).max()
    }
}

impl Probe for ReapProbe {
    fn hears(&self, group: TraceGroup) -> bool {
        matches!(group, TraceGroup::Frames | TraceGroup::Seldom)
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        if now_ns < self.from_ns {
            return;
        }
        match *event {
            Trace::PageFree { order, .. } => {
                let pages = order.pages() as u32;
                match self.freed.last_mut() {
                    // Within a microsecond it is all the same.
                    Some((at_ns, count)) if now_ns / 1000 == *at_ns / 1000 => {
                        (*at_ns, *count) = (now_ns, *count + pages);
                    }
                    _ => self.freed.push((now_ns, pages)),
                }
            }
            Trace::TableZap { asid, unit, by: ZapBy::Walk } => {
                self.tables.insert((asid.index(), unit));
            }
            Trace::TlbFlush { .. } => self.flushes += 1,
            Trace::ExitLockWait { ns } => self.exit_lock_wait_ns += u64::from(ns),
            _ => {}
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Page tables that more than one CPU has taken pages out of.
pub(super) fn visited_twice(probes: &[ReapProbe]) -> u64 {
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for table in probes.iter().flat_map(|probe| &probe.tables) {
        if !seen.insert(table) {
            twice.insert(table);
        }
    }
    twice.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_mm::arch::{Asid, Order, Pfn};

    #[test]
    fn a_table_counts_once_however_many_came_by_it() {
        let zap = |unit, by| Trace::TableZap { asid: Asid::new(3), unit, by };
        let mut probes: Vec<ReapProbe> = (0..3).map(|_| ReapProbe::new(100)).collect();
        probes[0].event(99, &zap(7, ZapBy::Walk));
        probes[0].event(100, &zap(8, ZapBy::Walk));
        probes[0].event(101, &zap(8, ZapBy::Walk));
        probes[1].event(102, &zap(7, ZapBy::Walk));
        probes[1].event(103, &zap(9, ZapBy::Claim));
        assert_eq!(visited_twice(&probes), 0);
        probes[1].event(104, &zap(8, ZapBy::Walk));
        probes[2].event(105, &zap(8, ZapBy::Walk));
        probes[2].event(106, &zap(9, ZapBy::Walk));
        assert_eq!(visited_twice(&probes), 1);
    }

    #[test]
    fn pages_count_from_the_signal_to_the_end() {
        let mut probe = ReapProbe::new(1_000);
        let free = |order| Trace::PageFree { pfn: Pfn::new(0), order: Order::new(order).unwrap() };
        probe.event(999, &free(0));
        probe.event(1_100, &free(0));
        probe.event(1_200, &free(1));
        probe.event(2_000, &free(9));
        assert_eq!((probe.pages(1_999), probe.pages(2_000)), (3, 515));
        assert_eq!((probe.last_ns(1_999), probe.last_ns(9_999)), (Some(1_200), Some(2_000)));
        assert_eq!(probe.last_ns(500), None);
    }
}
