//! The figures of the study: their names, which are fixed, and how each is computed.

use super::metrics::{self, Waits};
use super::probe::TickProbe;
use super::workload::Tally;
use crate::param::Params;
use crate::study::{MetricSpec, SeedResult, TooShort, figure};
use mmscale_document::{LockRow, On};

/// Every figure, in the order in which tables show them.
pub(super) const METRICS: &[MetricSpec] = &[
    figure("zone_lock_contentions", "1", "waits for zone->lock under free_pcppages_bulk"),
    figure("zone_lock_wait_total_ns", "ns", "their sum"),
    figure("zone_lock_wait_max_ns", "ns", "the longest"),
    figure("zone_lock_wait_mean_ns", "ns", "their mean"),
    figure("tick_zone_lock_contentions", "1", "those on the upkeep path (vmstat_update)"),
    figure("tick_zone_lock_wait_total_ns", "ns", "their sum"),
    figure("tick_zone_lock_wait_max_ns", "ns", "the longest"),
    figure("tick_zone_lock_wait_mean_ns", "ns", "their mean"),
    figure("tick_firings_per_cpu_per_interval_mean", "1", "ticks of a CPU an interval, over CPUs"),
    figure("tick_firings_per_cpu_per_interval_min", "1", "the CPU with the fewest"),
    figure("tick_firings_per_cpu_per_interval_max", "1", "the CPU with the most"),
    figure("tick_cofiring_mean", "1", "CPUs that fire in the jiffy of a firing, itself included"),
    figure("tick_idle_skips", "1", "ticks that came due while their CPU was idle"),
    figure("counter_staleness_max_ns", "ns", "the longest that a counter delta stayed unfolded"),
    figure("counter_drift_max", "pages", "largest error of a zone's free-page counter, each 1 ms"),
    figure("pcp_pages_mean", "pages", "pages in all page caches, over time"),
    figure("pages_allocated_per_s", "1/s", "pages the programs got"),
    figure("allocation_failures", "1", "allocations that failed"),
    figure("tick_trylock_failures", "1", "attempts of the tick that found zone->lock taken"),
    figure("tick_pages_deferred", "pages", "pages that the tick left for a later run"),
    figure(
        "tick_pages_returned_per_s",
        "1/s",
        "pages that the tick gave back, from the third interval on",
    ),
    figure("high_decay_ns", "ns", "from a burst's end until pcp->high is at its floor"),
];

/// The start of a run, which `tick_pages_returned_per_s` leaves out: the first tick of a CPU comes
/// up to two intervals after its first page, later under some policies than under others.
pub(super) const EARLY_INTERVALS: u64 = 2;

/// Intervals that a run needs for each figure of its ticks. The arms differ by ticks that come up
/// to two intervals apart, the first of them up to two intervals after a CPU's first page; the
/// fewest firings of a CPU have come within 15 % of their rate in runs of 10 s after eight (seen in
/// runs of 4, 5, 6, 8 and 10 intervals).
const NEEDED_INTERVALS: [(u64, &[&str]); 2] = [
    (
        4,
        &[
            "zone_lock_contentions",
            "zone_lock_wait_total_ns",
            "zone_lock_wait_max_ns",
            "zone_lock_wait_mean_ns",
            "tick_zone_lock_contentions",
            "tick_zone_lock_wait_total_ns",
            "tick_zone_lock_wait_max_ns",
            "tick_zone_lock_wait_mean_ns",
            "tick_firings_per_cpu_per_interval_mean",
            "tick_cofiring_mean",
            "tick_idle_skips",
            "tick_trylock_failures",
            "tick_pages_deferred",
            "tick_pages_returned_per_s",
            "counter_staleness_max_ns",
            "pcp_pages_mean",
        ],
    ),
    (8, &["tick_firings_per_cpu_per_interval_min", "tick_firings_per_cpu_per_interval_max"]),
];

/// The figures for which a run is too short; the live kernel has only what can be counted there.
pub(super) fn too_short(params: &Params, on: On) -> Vec<TooShort> {
    if on == On::Linux {
        return Vec::new();
    }
    let duration_ms = params.real("duration_s") * 1e3;
    let interval_ms = params.count("interval_ms");
    let short = NEEDED_INTERVALS.iter().filter_map(|&(intervals, metrics)| {
        let needed_ms = intervals * interval_ms;
        let needs = format!(
            "duration_s={} or more, {intervals} intervals of the tick",
            needed_ms as f64 / 1e3
        );
        (duration_ms < needed_ms as f64).then(|| TooShort { metrics: metrics.to_vec(), needs })
    });
    let decay = (params.real("decay_s") == 0.0).then(|| TooShort {
        metrics: vec!["high_decay_ns"],
        needs: "a second run of decay_s=40 or so".to_owned(),
    });
    short.chain(decay).collect()
}

/// What one run of the machine left.
pub(super) struct Observed<'a> {
    pub(super) end_ns: u64,
    /// When no burst began any more.
    pub(super) until_ns: u64,
    pub(super) interval_ns: u64,
    pub(super) hz: u32,
    pub(super) locks: &'a [LockRow],
    pub(super) probes: &'a [TickProbe],
    pub(super) tallies: &'a [Tally],
}

/// Fills in every figure that the workload's run gives; one without anything to measure (no tick
/// fired twice) is left out.
pub(super) fn measure(seen: &Observed<'_>, result: &mut SeedResult) {
    let all = Waits::of_zone_lock(seen.locks, &["free_pcppages_bulk"]);
    result.metric("zone_lock_contentions", all.contentions);
    result.metric("zone_lock_wait_total_ns", all.total_ns);
    result.metric("zone_lock_wait_max_ns", all.max_ns);
    result.metric("zone_lock_wait_mean_ns", all.mean_ns());
    let tick = Waits::of_zone_lock(seen.locks, &["vmstat_update", "free_pcppages_bulk"]);
    result.metric("tick_zone_lock_contentions", tick.contentions);
    result.metric("tick_zone_lock_wait_total_ns", tick.total_ns);
    result.metric("tick_zone_lock_wait_max_ns", tick.max_ns);
    result.metric("tick_zone_lock_wait_mean_ns", tick.mean_ns());
    firing(seen, result);
    caches(seen, result);
}

fn firing(seen: &Observed<'_>, result: &mut SeedResult) {
    let rate = metrics::firing_rate(seen.probes, seen.interval_ns);
    if rate.mean.is_finite() {
        result.metric("tick_firings_per_cpu_per_interval_mean", rate.mean);
        result.metric("tick_firings_per_cpu_per_interval_min", rate.min);
        result.metric("tick_firings_per_cpu_per_interval_max", rate.max);
    }
    let cofiring = metrics::cofiring_mean(seen.probes, seen.hz);
    if cofiring.is_finite() {
        result.metric("tick_cofiring_mean", cofiring);
    }
    let sum = |of: fn(&TickProbe) -> u64| seen.probes.iter().map(of).sum::<u64>();
    result.metric("tick_idle_skips", sum(|p| p.idle_skips));
    result.metric("tick_trylock_failures", sum(|p| p.trylock_failures));
    result.metric("tick_pages_deferred", sum(|p| p.pages_deferred));
    let early_ns = EARLY_INTERVALS * seen.interval_ns;
    if seen.end_ns > early_ns {
        let returned = sum(|p| p.pages_returned - p.pages_returned_early);
        result.metric("tick_pages_returned_per_s", per_s(returned, seen.end_ns - early_ns));
    }
}

fn caches(seen: &Observed<'_>, result: &mut SeedResult) {
    let staleness_ns = seen.probes.iter().map(|p| p.staleness_max_ns).max().unwrap_or(0);
    result.metric("counter_staleness_max_ns", staleness_ns);
    result.metric("counter_drift_max", metrics::drift_max(seen.probes));
    result.metric("pcp_pages_mean", metrics::pcp_pages_mean(seen.probes, seen.end_ns));
    let allocated: u64 = seen.tallies.iter().map(|t| t.pages_allocated).sum();
    result.metric("pages_allocated_per_s", per_s(allocated, seen.until_ns));
    let failures: u64 = seen.tallies.iter().map(|t| t.failures).sum();
    result.metric("allocation_failures", failures);
}

fn per_s(count: u64, end_ns: u64) -> f64 {
    count as f64 * 1e9 / end_ns.max(1) as f64
}
