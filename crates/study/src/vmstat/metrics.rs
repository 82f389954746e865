//! From probes, lock rows and tallies to the figures of the study.

use super::probe::TickProbe;
use super::workload::Tally;
use mmscale_document::LockRow;
use std::collections::BTreeMap;

/// Contentions and waits of a set of lock rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Waits {
    pub(crate) contentions: u64,
    pub(crate) total_ns: u64,
    pub(crate) max_ns: u64,
}

impl Waits {
    /// The zone lock, taken with all of `functions` on the call path: what
    /// `perf lock contention -S FUNCTION` counts.
    pub(crate) fn of_zone_lock(rows: &[LockRow], functions: &[&str]) -> Self {
        let on_path = |row: &&LockRow| {
            row.class == "zone" && functions.iter().all(|f| row.path.iter().any(|p| p == f))
        };
        rows.iter().filter(on_path).fold(Self::default(), |sum, row| Self {
            contentions: sum.contentions + row.contentions,
            total_ns: sum.total_ns + row.wait_total_ns,
            max_ns: sum.max_ns.max(row.wait_max_ns),
        })
    }
    /// Mean wait of a contended acquisition; 0 without one.
    pub(crate) fn mean_ns(self) -> f64 {
        self.total_ns as f64 / (self.contentions.max(1)) as f64
    }
}

/// Firings of the tick per interval, over CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FiringRate {
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// One CPU's firings per interval: (firings - 1) * interval / (last - first), over its stretches.
/// `None` if no stretch has two firings.
pub(crate) fn firing_rate_of(probe: &TickProbe, interval_ns: u64) -> Option<f64> {
    let (gaps, span_ns) =
        probe.stretches.iter().filter(|s| s.len() > 1).fold((0, 0), |(gaps, span_ns), stretch| {
            (gaps + stretch.len() as u64 - 1, span_ns + stretch[stretch.len() - 1] - stretch[0])
        });
    (span_ns > 0).then(|| gaps as f64 * interval_ns as f64 / span_ns as f64)
}

/// Firing rates over all CPUs that have one; `NaN`s if none has.
pub(crate) fn firing_rate(probes: &[TickProbe], interval_ns: u64) -> FiringRate {
    let rates: Vec<f64> = probes.iter().filter_map(|p| firing_rate_of(p, interval_ns)).collect();
    FiringRate {
        mean: rates.iter().sum::<f64>() / rates.len() as f64,
        min: rates.iter().copied().reduce(f64::min).unwrap_or(f64::NAN),
        max: rates.iter().copied().reduce(f64::max).unwrap_or(f64::NAN),
    }
}

/// CPUs that fire in the same jiffy as a given firing, itself included, on the mean.
pub(crate) fn cofiring_mean(probes: &[TickProbe], hz: u32) -> f64 {
    let mut in_jiffy = BTreeMap::<u64, u64>::new();
    let firings = probes.iter().flat_map(|p| p.stretches.iter().flatten());
    for &at_ns in firings {
        let jiffy = (u128::from(at_ns) * u128::from(hz) / 1_000_000_000) as u64;
        *in_jiffy.entry(jiffy).or_default() += 1;
    }
    let firings: u64 = in_jiffy.values().sum();
    let pairs: u64 = in_jiffy.values().map(|n| n * n).sum();
    pairs as f64 / firings as f64
}

/// The largest distance of a zone's free-page counter from the truth at any grid point, in pages.
pub(crate) fn drift_max(probes: &[TickProbe]) -> u64 {
    let mut worst = 0;
    let zones: std::collections::BTreeSet<u16> =
        probes.iter().flat_map(|p| p.drift.keys().copied()).collect();
    for zone in zones {
        let grids: Vec<&Vec<i32>> = probes.iter().filter_map(|p| p.drift.get(&zone)).collect();
        let points = grids.iter().map(|g| g.len()).max().unwrap_or(0);
        for point in 0..points {
            let sum: i64 =
                grids.iter().map(|g| i64::from(g.get(point).copied().unwrap_or(0))).sum();
            worst = worst.max(sum.unsigned_abs());
        }
    }
    worst
}

/// Mean pages in all page caches of the machine over `[0, end_ns]`.
pub(crate) fn pcp_pages_mean(probes: &[TickProbe], end_ns: u64) -> f64 {
    let page_ns: i128 = probes.iter().map(|p| p.page_ns(end_ns)).sum();
    page_ns as f64 / end_ns.max(1) as f64
}

/// Mean time from the end of a CPU's last burst until its `high` was at its floor for good, in ns.
/// CPUs whose `high` is still raised count with the time they had: a lower bound.
pub(crate) fn high_decay_mean_ns(probes: &[TickProbe], tallies: &[Tally], end_ns: u64) -> f64 {
    let times: Vec<f64> = tallies
        .iter()
        .filter(|tally| tally.last_burst_end_ns > 0)
        .map(|tally| {
            let settled_ns = probes[tally.cpu].high_settled_ns().unwrap_or(end_ns);
            settled_ns.saturating_sub(tally.last_burst_end_ns) as f64
        })
        .collect();
    times.iter().sum::<f64>() / times.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_arch::{CounterEvent, CpuId, PcpEvent, Probe, TickEvent, Trace};

    fn rearmed() -> Trace {
        Trace::Tick(TickEvent::End {
            pages_returned: 0,
            pages_deferred: 0,
            trylock_failures: 0,
            rearmed: true,
        })
    }

    fn fired(cpu: usize, times_ns: &[u64]) -> TickProbe {
        let mut probe = TickProbe::new(CpuId::new(cpu), 0, u64::MAX);
        for &at_ns in times_ns {
            probe.event(at_ns, &Trace::Tick(TickEvent::Begin));
            probe.event(at_ns, &rearmed());
        }
        probe
    }

    #[test]
    fn firing_rate_leaves_out_the_gap_after_a_stop() {
        let mut probe = fired(0, &[0, 1_000, 2_000]);
        probe.event(
            2_000,
            &Trace::Tick(TickEvent::End {
                pages_returned: 0,
                pages_deferred: 0,
                trylock_failures: 0,
                rearmed: false,
            }),
        );
        for at_ns in [9_000, 10_000] {
            probe.event(at_ns, &Trace::Tick(TickEvent::Begin));
            probe.event(at_ns, &rearmed());
        }
        assert_eq!(firing_rate_of(&probe, 1_000), Some(1.0));
    }

    #[test]
    fn an_idle_skip_breaks_the_stretch_and_is_counted() {
        let mut probe = fired(0, &[0, 1_000]);
        probe.event(1_500, &Trace::Tick(TickEvent::PendingInIdle { expires_ns: 2_000 }));
        probe.event(5_000, &Trace::Tick(TickEvent::Begin));
        assert_eq!(probe.idle_skips, 1);
        assert_eq!(firing_rate_of(&probe, 1_000), Some(1.0));
    }

    #[test]
    fn cofiring_counts_the_firing_itself() {
        let probes = [fired(0, &[1_000_000]), fired(1, &[1_200_000]), fired(2, &[9_000_000])];
        // Two CPUs share jiffy 1, one is alone: (2 + 2 + 1) / 3.
        assert!((cofiring_mean(&probes, 1000) - 5.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn pages_in_caches_are_integrated_across_cpus() {
        let mut a = TickProbe::new(CpuId::new(0), 0, u64::MAX);
        let mut b = TickProbe::new(CpuId::new(1), 0, u64::MAX);
        let change = |cpu, old, count| {
            Trace::Pcp(PcpEvent::Count {
                cpu: CpuId::new(cpu),
                zone: 0,
                old,
                count,
                high: 100,
                high_min: 100,
            })
        };
        a.event(100, &change(0, 0, 10));
        b.event(200, &change(0, 10, 0)); // drained by another CPU
        assert!((pcp_pages_mean(&[a, b], 1_000) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn drift_adds_the_cpus_up_at_each_grid_point() {
        let delta = |cpu, old, new| {
            let cpu = CpuId::new(cpu);
            Trace::Counter(CounterEvent::Delta {
                cpu,
                domain: 0,
                item: 0,
                old,
                new,
                folded: 0,
                threshold: 125,
            })
        };
        let mut a = TickProbe::new(CpuId::new(0), 0, u64::MAX);
        a.event(100, &delta(0, 0, -40));
        a.event(2_500_000, &delta(0, -40, 0));
        let mut b = TickProbe::new(CpuId::new(1), 0, u64::MAX);
        b.event(1_500_000, &delta(1, 0, -30));
        a.event(4_900_000, &delta(1, -30, 0)); // CPU 1 died, CPU 0 folds for it
        let mut probes = [a, b];
        TickProbe::settle(&mut probes);
        probes.iter_mut().for_each(|p| p.finish(9_000_000));
        assert_eq!(drift_max(&probes), 70);
        assert_eq!(probes[0].staleness_max_ns, 2_499_900);
        assert_eq!(probes[1].staleness_max_ns, 3_400_000);
    }
}
