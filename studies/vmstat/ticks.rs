//! Meters of one CPU's upkeep tick, page cache and counters, and the machine-wide metrics computed
//! from them.
//!
//! Each machine-wide value is a sum, a maximum or a list over CPUs. A meter therefore needs no data
//! of other CPUs, and results do not depend on the order in which a machine runs its CPUs.

use super::{Plan, Vmstat};
use mmscale_arch::{CounterEvent, CpuId, PcpEvent, TickEvent, Trace, TraceGroup};
use mmscale_harness::{Env, Meter};
use std::collections::{BTreeMap, BTreeSet};

/// Sampling interval of the counters' drift.
const DRIFT_GRID_NS: u64 = 1_000_000;

/// Counters of one CPU.
#[derive(Debug, Default)]
pub struct Ticks {
    cpu: usize,
    /// Start times of `vmstat_update`, grouped by periods during which the tick stayed armed.
    stretches: Vec<Vec<u64>>,
    /// Whether the next firing begins a new group.
    broken: bool,
    /// Ticks that were due while this CPU was idle.
    pub(super) idle_skips: u64,
    idle_tick_expires_ns: Option<u64>,
    /// Start of the window in which events count. Before it, the first tick of a CPU is up to two
    /// intervals after its first page, at a time that depends on the policy.
    from_ns: u64,
    pub(super) pages_returned: u64,
    pub(super) pages_deferred: u64,
    pub(super) trylock_failures: u64,
    /// Sum over changes of a page cache's count of (change * time of the change in ns). A change
    /// before the window counts as one at its start.
    count_moment: i128,
    count_change: i64,
    /// Time at which `high` of this CPU's cache last reached its minimum, and whether it is raised.
    high_back_ns: u64,
    high_raised: bool,
    /// End of the time in which `high` is recorded; afterwards processes exit.
    high_until_ns: u64,
    /// Time since which each counter delta of this CPU has been unfolded, by domain and item.
    unfolded_since_ns: BTreeMap<(u16, u8), u64>,
    /// Deltas of this CPU that were folded by another CPU: delta, and time at which it appeared.
    taken_over: Vec<((u16, u8), u64)>,
    /// Deltas of other CPUs that this CPU folded: CPU, delta, time.
    folded_for: Vec<(usize, (u16, u8), u64)>,
    pub(super) staleness_max_ns: u64,
    /// The delta of the free-pages counter at each grid point, per zone.
    drift: BTreeMap<u16, Vec<i32>>,
    deltas: BTreeMap<u16, i32>,
    pub(super) refills: u64,
    pub(super) refill_pages: u64,
    pub(super) drains: u64,
    pub(super) drain_pages: u64,
}

impl Ticks {
    /// Creates the meter of `cpu`. Only events after `from_ns` count. Changes of `high` after
    /// `high_until_ns` are ignored.
    pub(super) fn new(cpu: CpuId, from_ns: u64, high_until_ns: u64) -> Self {
        let cpu = cpu.index();
        Self { cpu, broken: true, from_ns, high_until_ns, ..Self::default() }
    }

    /// Returns the firings in the window or, if `early`, before it.
    fn firings(&self, early: bool) -> impl Iterator<Item = u64> {
        let all = self.stretches.iter().flatten().copied();
        all.filter(move |&at_ns| (at_ns < self.from_ns) == early)
    }

    /// Records a delta that appeared at `since_ns` and was folded at `at_ns`.
    fn stale(&mut self, since_ns: u64, at_ns: u64) {
        if since_ns >= self.from_ns {
            self.staleness_max_ns = self.staleness_max_ns.max(at_ns.saturating_sub(since_ns));
        }
    }

    /// Returns firings per interval in the window: (firings - 1) * interval / (last - first), over
    /// all groups. `None` if no group has two firings.
    pub(super) fn firing_rate(&self, interval_ns: u64) -> Option<f64> {
        let counted = self
            .stretches
            .iter()
            .map(|stretch| &stretch[stretch.partition_point(|&at_ns| at_ns < self.from_ns)..]);
        let (gaps, span_ns) = counted.fold((0, 0), |(gaps, span_ns), stretch| match stretch {
            [first, .., last] => (gaps + stretch.len() as u64 - 1, span_ns + last - first),
            _ => (gaps, span_ns),
        });
        (span_ns > 0).then(|| gaps as f64 * interval_ns as f64 / span_ns as f64)
    }

    /// Returns the time at which this CPU's `high` finally reached its minimum. `None`: it is still
    /// raised.
    pub(super) fn high_settled_ns(&self) -> Option<u64> {
        (!self.high_raised).then_some(self.high_back_ns)
    }

    /// Returns pages in the caches times ns, from the changes that this CPU made, from the start of
    /// the window to `end_ns`. The sum over CPUs is the integral of the machine's total.
    fn page_ns(&self, end_ns: u64) -> i128 {
        i128::from(self.count_change) * i128::from(end_ns) - self.count_moment
    }

    /// Records that another CPU folded `delta` of this CPU at `at_ns`, after this CPU went offline.
    fn folded(&mut self, delta: (u16, u8), at_ns: u64) {
        if let Some(&since_ns) = self.unfolded_since_ns.get(&delta)
            && since_ns <= at_ns
        {
            self.unfolded_since_ns.remove(&delta);
            self.stale(since_ns, at_ns);
            return;
        }
        let before = |&(which, since_ns): &((u16, u8), u64)| which == delta && since_ns <= at_ns;
        if let Some(place) = self.taken_over.iter().position(before) {
            let (_, since_ns) = self.taken_over.swap_remove(place);
            self.stale(since_ns, at_ns);
        }
    }

    fn firing(&mut self, now_ns: u64) {
        if let Some(expires_ns) = self.idle_tick_expires_ns.take()
            && now_ns >= expires_ns
        {
            self.idle_skips += u64::from(now_ns >= self.from_ns);
            self.broken = true;
        }
        if self.broken {
            self.stretches.push(Vec::new());
        }
        self.broken = false;
        self.stretches.last_mut().expect("a stretch is open").push(now_ns);
    }

    /// Records the delta of `zone` for all grid points up to `now_ns` that are not recorded yet.
    fn pass_grid(&mut self, zone: u16, now_ns: u64) {
        let delta = self.deltas.get(&zone).copied().unwrap_or(0);
        let grid = self.drift.entry(zone).or_default();
        grid.resize(((now_ns / DRIFT_GRID_NS) as usize + 1).max(grid.len()), delta);
    }

    fn counter(&mut self, now_ns: u64, cpu: CpuId, (domain, item): (u16, u8), old: i8, new: i8) {
        if cpu.index() != self.cpu {
            self.folded_for.push((cpu.index(), (domain, item), now_ns));
        } else if old == 0 && new != 0 {
            let before = self.unfolded_since_ns.insert((domain, item), now_ns);
            self.taken_over.extend(before.map(|since_ns| ((domain, item), since_ns)));
        } else if old != 0
            && new == 0
            && let Some(since_ns) = self.unfolded_since_ns.remove(&(domain, item))
        {
            self.stale(since_ns, now_ns);
        }
        if item == 0 && domain & 0x8000 == 0 {
            self.pass_grid(domain, now_ns);
            *self.deltas.entry(domain).or_default() += i32::from(new) - i32::from(old);
        }
    }
}

impl Meter<Vmstat> for Ticks {
    fn of_cpus(_: &Env<Vmstat>, plan: &Plan) -> impl FnMut(CpuId) -> Self {
        let &Plan { from_ns, until_ns, .. } = plan;
        move |cpu| Self::new(cpu, from_ns, until_ns)
    }
    fn hears(&self, group: TraceGroup) -> bool {
        matches!(group, TraceGroup::Pcp | TraceGroup::Counter | TraceGroup::Tick)
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        match *event {
            Trace::Pcp(PcpEvent::Count { cpu, old, count, high, high_min, .. }) => {
                let change = i64::from(count) - i64::from(old);
                self.count_change += change;
                self.count_moment += i128::from(change) * i128::from(now_ns.max(self.from_ns));
                if cpu.index() == self.cpu && now_ns < self.high_until_ns {
                    if self.high_raised && high <= high_min {
                        self.high_back_ns = now_ns;
                    }
                    self.high_raised = high > high_min;
                }
            }
            Trace::Counter(CounterEvent::Delta { cpu, domain, item, old, new, .. }) => {
                self.counter(now_ns, cpu, (domain, item), old, new);
            }
            Trace::Tick(TickEvent::Begin) => self.firing(now_ns),
            Trace::Tick(TickEvent::End {
                pages_returned,
                pages_deferred,
                trylock_failures,
                rearmed,
            }) => {
                if now_ns >= self.from_ns {
                    self.pages_returned += u64::from(pages_returned);
                    self.pages_deferred += u64::from(pages_deferred);
                    self.trylock_failures += u64::from(trylock_failures);
                }
                self.broken = !rearmed;
            }
            Trace::Tick(TickEvent::PendingInIdle { expires_ns }) => {
                self.idle_tick_expires_ns = Some(expires_ns)
            }
            Trace::Pcp(PcpEvent::Refill { pages, .. }) => {
                self.refills += 1;
                self.refill_pages += u64::from(pages);
            }
            Trace::Pcp(PcpEvent::Drain { pages, .. }) => {
                self.drains += 1;
                self.drain_pages += u64::from(pages);
            }
            _ => {}
        }
    }
    /// Passes to each CPU the deltas that others folded for it, then ends open periods.
    fn close(meters: &mut [Self], end_ns: u64) {
        for at in 0..meters.len() {
            for (cpu, delta, at_ns) in std::mem::take(&mut meters[at].folded_for) {
                meters[cpu].folded(delta, at_ns);
            }
        }
        for meter in meters {
            let unfolded: Vec<u64> = meter.unfolded_since_ns.values().copied().collect();
            unfolded.into_iter().for_each(|since_ns| meter.stale(since_ns, end_ns));
            let zones: Vec<u16> = meter.deltas.keys().copied().collect();
            zones.into_iter().for_each(|zone| meter.pass_grid(zone, end_ns));
        }
    }
}

/// Numbers of CPUs whose tick fires in one jiffy: a group for each jiffy with a firing.
pub(super) struct Groups(Vec<u64>);

impl Groups {
    /// Returns the groups in the window.
    pub(super) fn steady(meters: &[Ticks], hz: u32) -> Self {
        Self::of(meters.iter().flat_map(|meter| meter.firings(false)), hz)
    }
    /// Returns the groups before the window.
    pub(super) fn early(meters: &[Ticks], hz: u32) -> Self {
        Self::of(meters.iter().flat_map(|meter| meter.firings(true)), hz)
    }
    fn of(firings: impl Iterator<Item = u64>, hz: u32) -> Self {
        let mut in_jiffy = BTreeMap::<u64, u64>::new();
        for at_ns in firings {
            let jiffy = (u128::from(at_ns) * u128::from(hz) / 1_000_000_000) as u64;
            *in_jiffy.entry(jiffy).or_default() += 1;
        }
        Self(in_jiffy.into_values().collect())
    }
    /// Returns the mean number of CPUs that fire in the same jiffy as a given firing, itself
    /// included. NaN without firings.
    pub(super) fn mean(&self) -> f64 {
        let firings: u64 = self.0.iter().sum();
        let pairs: u64 = self.0.iter().map(|n| n * n).sum();
        pairs as f64 / firings as f64
    }
    /// Returns the largest group; 0 without firings.
    pub(super) fn max(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

/// Returns the maximum error of a zone's free-page counter at any grid point of the window, in
/// pages.
pub(super) fn drift_max(meters: &[Ticks]) -> u64 {
    let zones: BTreeSet<u16> =
        meters.iter().flat_map(|meter| meter.drift.keys().copied()).collect();
    let of_zone = |zone: u16| {
        let grids: Vec<&Vec<i32>> = meters.iter().filter_map(|m| m.drift.get(&zone)).collect();
        let points = grids.iter().map(|grid| grid.len()).max().unwrap_or(0);
        let first = meters.first().map_or(0, |meter| meter.from_ns.div_ceil(DRIFT_GRID_NS));
        let at = |point: usize| -> u64 {
            let deltas = grids.iter().filter_map(|grid| grid.get(point));
            deltas.map(|&delta| i64::from(delta)).sum::<i64>().unsigned_abs()
        };
        (first as usize..points).map(at).max().unwrap_or(0)
    };
    zones.into_iter().map(of_zone).max().unwrap_or(0)
}

/// Returns the mean number of pages in all page caches of the machine from the start of the window
/// to `end_ns`.
pub(super) fn pcp_pages_mean(meters: &[Ticks], end_ns: u64) -> f64 {
    let page_ns: i128 = meters.iter().map(|meter| meter.page_ns(end_ns)).sum();
    let from_ns = meters.first().map_or(0, |meter| meter.from_ns);
    page_ns as f64 / end_ns.saturating_sub(from_ns).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(rearmed: bool) -> Trace {
        Trace::Tick(TickEvent::End {
            pages_returned: 0,
            pages_deferred: 0,
            trylock_failures: 0,
            rearmed,
        })
    }

    fn silent(cpu: usize) -> Ticks {
        Ticks::new(CpuId::new(cpu), 0, u64::MAX)
    }

    fn fire(meter: &mut Ticks, times_ns: &[u64]) {
        for &at_ns in times_ns {
            meter.event(at_ns, &Trace::Tick(TickEvent::Begin));
            meter.event(at_ns, &ended(true));
        }
    }

    fn fired(cpu: usize, times_ns: &[u64]) -> Ticks {
        let mut meter = silent(cpu);
        fire(&mut meter, times_ns);
        meter
    }

    #[test]
    fn firing_rate_leaves_out_the_gap_after_a_stop() {
        let mut meter = fired(0, &[0, 1_000, 2_000]);
        meter.event(2_000, &ended(false));
        fire(&mut meter, &[9_000, 10_000]);
        assert_eq!(meter.firing_rate(1_000), Some(1.0));
    }

    #[test]
    fn an_idle_skip_breaks_the_stretch_and_is_counted() {
        let mut meter = fired(0, &[0, 1_000]);
        meter.event(1_500, &Trace::Tick(TickEvent::PendingInIdle { expires_ns: 2_000 }));
        meter.event(5_000, &Trace::Tick(TickEvent::Begin));
        assert_eq!(meter.idle_skips, 1);
        assert_eq!(meter.firing_rate(1_000), Some(1.0));
    }

    #[test]
    fn cofiring_counts_the_firing_itself() {
        let meters = [fired(0, &[1_000_000]), fired(1, &[1_200_000]), fired(2, &[9_000_000])];
        // Two CPUs share jiffy 1, one is alone: (2 + 2 + 1) / 3.
        assert!((Groups::steady(&meters, 1000).mean() - 5.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_start_counts_in_no_metric() {
        let late = |cpu, times_ns: &[u64]| {
            let mut meter = Ticks::new(CpuId::new(cpu), 3_000_000, u64::MAX);
            fire(&mut meter, times_ns);
            meter
        };
        let meters =
            [0, 1, 2].map(|cpu| late(cpu, &[1_000_000, 4_000_000 + cpu as u64 * 1_000_000]));
        assert_eq!(Groups::early(&meters, 1000).max(), 3);
        let steady = Groups::steady(&meters, 1000);
        assert_eq!((steady.max(), steady.mean()), (1, 1.0));
        assert_eq!(meters[0].firing_rate(1_000_000), None, "one firing in the window");
        let change = Trace::Pcp(PcpEvent::Count {
            cpu: CpuId::new(0),
            zone: 0,
            old: 0,
            count: 10,
            high: 100,
            high_min: 100,
        });
        let mut meter = late(0, &[]);
        meter.event(1_000_000, &change);
        assert!((pcp_pages_mean(&[meter], 5_000_000) - 10.0).abs() < 1e-12);
    }

    #[test]
    fn pages_in_caches_are_integrated_across_cpus() {
        let (mut a, mut b) = (silent(0), silent(1));
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
        let (mut a, mut b) = (silent(0), silent(1));
        a.event(100, &delta(0, 0, -40));
        a.event(2_500_000, &delta(0, -40, 0));
        b.event(1_500_000, &delta(1, 0, -30));
        a.event(4_900_000, &delta(1, -30, 0)); // CPU 1 is offline, CPU 0 folds its delta
        let mut meters = [a, b];
        Ticks::close(&mut meters, 9_000_000);
        assert_eq!(drift_max(&meters), 70);
        assert_eq!(meters[0].staleness_max_ns, 2_499_900);
        assert_eq!(meters[1].staleness_max_ns, 3_400_000);
    }
}
