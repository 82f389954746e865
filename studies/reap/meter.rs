//! The events of one CPU about the teardown of an address space.

use super::{Plan, Reap};
use mmscale_arch::{CpuId, ExitEvent, OomEvent, PageEvent, TlbEvent, Trace, TraceGroup, ZapBy};
use mmscale_harness::{Env, Meter};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Counters of one CPU, after the signal.
#[derive(Debug)]
pub struct ReapMeter {
    /// Start of the time that counts.
    from_ns: u64,
    /// Frees of pages: time and number.
    pub(super) freed: Vec<(u64, u32)>,
    /// Page tables from which this CPU has removed pages, by address space.
    pub(super) tables: BTreeSet<(usize, u32)>,
    /// Times of TLB flushes.
    flushed: Vec<u64>,
    /// Time at which the OOM killer chose the victim.
    pub(super) marked_ns: Option<u64>,
    /// Waits for mmap_lock in the exit of an address space.
    pub(super) exit_lock_wait_ns: u64,
}

impl ReapMeter {
    pub(super) fn new(from_ns: u64) -> Self {
        let (freed, tables) = (Vec::new(), BTreeSet::new());
        let flushed = Vec::new();
        Self { from_ns, freed, tables, flushed, marked_ns: None, exit_lock_wait_ns: 0 }
    }
    /// Returns the number of pages freed within a time range.
    pub(super) fn pages(&self, within: &RangeInclusive<u64>) -> u64 {
        let meant = self.freed.iter().filter(|(at_ns, _)| within.contains(at_ns));
        meant.map(|&(_, pages)| u64::from(pages)).sum()
    }
    /// Returns the time of the last free within a time range.
    pub(super) fn last_ns(&self, within: &RangeInclusive<u64>) -> Option<u64> {
        self.freed.iter().map(|&(at_ns, _)| at_ns).filter(|at_ns| within.contains(at_ns)).max()
    }
    /// Returns the number of TLB flushes within a time range.
    pub(super) fn flushes(&self, within: &RangeInclusive<u64>) -> u64 {
        self.flushed.iter().filter(|at_ns| within.contains(at_ns)).count() as u64
    }
}

impl Meter<Reap> for ReapMeter {
    fn of_cpus(_: &Env<Reap>, plan: &Plan) -> impl FnMut(CpuId) -> Self {
        let kill_ns = plan.kill_ns;
        move |_| Self::new(kill_ns)
    }
    fn hears(&self, group: TraceGroup) -> bool {
        matches!(group, TraceGroup::Page | TraceGroup::Exit | TraceGroup::Tlb | TraceGroup::Oom)
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        if now_ns < self.from_ns {
            return;
        }
        match *event {
            Trace::Page(PageEvent::Free { order, .. }) => {
                let pages = order.pages() as u32;
                match self.freed.last_mut() {
                    // Events within the same microsecond are combined.
                    Some((at_ns, count)) if now_ns / 1000 == *at_ns / 1000 => {
                        (*at_ns, *count) = (now_ns, *count + pages);
                    }
                    _ => self.freed.push((now_ns, pages)),
                }
            }
            Trace::Exit(ExitEvent::TableZap { asid, unit, by: ZapBy::Walk }) => {
                self.tables.insert((asid.index(), unit));
            }
            Trace::Tlb(TlbEvent::Flush { .. }) => self.flushed.push(now_ns),
            Trace::Oom(OomEvent::MarkVictim { .. }) => {
                self.marked_ns = self.marked_ns.or(Some(now_ns))
            }
            Trace::Exit(ExitEvent::LockWait { ns }) => self.exit_lock_wait_ns += u64::from(ns),
            _ => {}
        }
    }
}

/// Returns the number of page tables from which more than one CPU has removed pages.
pub(super) fn visited_twice(meters: &[ReapMeter]) -> u64 {
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for table in meters.iter().flat_map(|meter| &meter.tables) {
        if !seen.insert(table) {
            twice.insert(table);
        }
    }
    twice.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_arch::{Asid, Order, Pfn};

    #[test]
    fn a_table_counts_once_however_many_came_by_it() {
        let zap = |unit, by| Trace::Exit(ExitEvent::TableZap { asid: Asid::new(3), unit, by });
        let mut meters: Vec<ReapMeter> = (0..3).map(|_| ReapMeter::new(100)).collect();
        meters[0].event(99, &zap(7, ZapBy::Walk));
        meters[0].event(100, &zap(8, ZapBy::Walk));
        meters[0].event(101, &zap(8, ZapBy::Walk));
        meters[1].event(102, &zap(7, ZapBy::Walk));
        meters[1].event(103, &zap(9, ZapBy::Claim));
        assert_eq!(visited_twice(&meters), 0);
        meters[1].event(104, &zap(8, ZapBy::Walk));
        meters[2].event(105, &zap(8, ZapBy::Walk));
        meters[2].event(106, &zap(9, ZapBy::Walk));
        assert_eq!(visited_twice(&meters), 1);
    }

    #[test]
    fn what_comes_before_the_signal_and_after_the_end_does_not_count() {
        let mut meter = ReapMeter::new(1_000);
        let free = |order| {
            Trace::Page(PageEvent::Free { pfn: Pfn::new(0), order: Order::new(order).unwrap() })
        };
        meter.event(999, &free(0));
        meter.event(1_100, &free(0));
        meter.event(1_200, &free(1));
        meter.event(2_000, &free(9));
        assert_eq!((meter.pages(&(1_000..=1_999)), meter.pages(&(1_000..=2_000))), (3, 515));
        assert_eq!(meter.pages(&(1_500..=2_000)), 512);
        assert_eq!(meter.last_ns(&(1_000..=1_999)), Some(1_200));
        assert_eq!(meter.last_ns(&(1_500..=9_999)), Some(2_000));
        assert_eq!(meter.last_ns(&(1_000..=1_100)), None);
        let flush = Trace::Tlb(TlbEvent::Flush { pages: 1, interrupted: 0 });
        (0..4).for_each(|nth| meter.event(900 + nth * 100, &flush));
        assert_eq!(meter.flushes(&(1_050..=1_100)), 1);
        assert_eq!(meter.flushes(&(0..=9_999)), 3);
        let mark = Trace::Oom(OomEvent::MarkVictim { asid: Asid::new(3), pages: 7 });
        [5_000, 6_000].into_iter().for_each(|at_ns| meter.event(at_ns, &mark));
        assert_eq!(meter.marked_ns, Some(5_000));
    }
}
