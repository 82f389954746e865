//! Metrics of the study, and the length of run that they need.

use super::ticks::{self, Groups};
use super::{LAST_BURST_END, Params, Ticks, Vmstat};
use mmscale_document::Target;
use mmscale_harness::{
    Measured, Metric, Missing, Seen, TooShort, Waits, higher, lower, metric, value,
};

/// Intervals that a run needs for each metric of its ticks. Arms differ in ticks that are up to two
/// intervals apart; the first tick is up to two intervals after a CPU's first page. In runs of 10
/// s, the fewest firings of a CPU were within 15 % of their rate after eight intervals (observed in
/// runs of 4, 5, 6, 8 and 10 intervals).
const NEEDED_INTERVALS: [(u64, &[&str]); 2] = [
    (
        4,
        &[
            "zone_lock_contentions",
            "zone_lock_wait_total_ns",
            "zone_lock_wait_max_ns",
            "zone_lock_wait_mean_ns",
            "zone_lock_queued",
            "zone_lock_queued_wait_total_ns",
            "zone_lock_queued_wait_mean_ns",
            "zone_lock_queued_wait_max_ns",
            "tick_zone_lock_contentions",
            "tick_zone_lock_wait_total_ns",
            "tick_zone_lock_wait_max_ns",
            "tick_zone_lock_wait_mean_ns",
            "tick_firings_per_cpu_per_interval_mean",
            "tick_cofiring_mean",
            "tick_cofiring_max",
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

/// Returns the metrics for which a run has too few intervals. The live kernel has only metrics that
/// can be counted there.
pub(super) fn too_short(params: &Params, on: Target) -> Vec<TooShort> {
    if on == Target::Live {
        return Vec::new();
    }
    let short = NEEDED_INTERVALS.iter().filter_map(|&(intervals, metrics)| {
        let needed_ms = (intervals * params.interval_ms) as f64;
        let needs = format!(
            "duration_s={} or more, which is {intervals} intervals of the tick",
            needed_ms / 1e3
        );
        let short = params.duration_s * 1e3 < needed_ms;
        short.then(|| TooShort { metrics: metrics.to_vec(), needs })
    });
    let decay = (params.decay_s == 0.0).then(|| TooShort {
        metrics: vec!["high_decay_ns"],
        needs: "a second run, such as decay_s=40".to_owned(),
    });
    short.chain(decay).collect()
}

/// Returns the waits for zone->lock in frees.
fn freeing(seen: &Seen<'_, Vmstat>) -> Result<Waits, Missing> {
    Ok(seen.locks()?.waits("zone", &["free_pcppages_bulk"]))
}
/// Returns those of them that `perf lock contention` counts.
fn queued(seen: &Seen<'_, Vmstat>) -> Result<Waits, Missing> {
    Ok(seen.locks()?.queued("zone", &["free_pcppages_bulk"]))
}
fn ticking(seen: &Seen<'_, Vmstat>) -> Result<Waits, Missing> {
    Ok(seen.locks()?.waits("zone", &["vmstat_update", "free_pcppages_bulk"]))
}
/// Returns the firings of each CPU per interval, if it had at least two.
fn firing_rates(seen: &Seen<'_, Vmstat>) -> Result<Vec<f64>, Missing> {
    let interval_ns = seen.env.params.interval_ns();
    Ok(seen.meters()?.iter().filter_map(|cpu| cpu.firing_rate(interval_ns)).collect())
}
fn count(seen: &Seen<'_, Vmstat>, of: fn(&Ticks) -> u64) -> Measured {
    value(seen.meters()?.iter().map(of).sum::<u64>())
}
/// Returns the pages per second that ticks returned in the window.
fn returned_per_s(seen: &Seen<'_, Vmstat>) -> Measured {
    let returned = seen.sum(|cpu| cpu.pages_returned)?;
    match seen.end_ns()?.saturating_sub(seen.plan.from_ns) {
        0 => Err(Missing::Nothing),
        rest_ns => value(returned * 1e9 / rest_ns as f64),
    }
}
/// Returns the mean time from the end of a CPU's last burst until its `high` finally reached its
/// minimum. For CPUs whose `high` is still raised, the elapsed time is used, so the result is a
/// lower bound.
fn high_decay_ns(seen: &Seen<'_, Vmstat>) -> Measured {
    let decay = seen.second.ok_or(Missing::Nothing)?;
    let (meters, bursts) = (decay.meters()?, decay.each_sample(LAST_BURST_END)?);
    let times_ns = bursts.iter().map(|&(cpu, end_ns)| {
        let settled_ns = meters[cpu].high_settled_ns().unwrap_or(decay.plan.until_ns);
        settled_ns.saturating_sub(end_ns)
    });
    value(times_ns.sum::<u64>() as f64 / bursts.len() as f64)
}

/// Every metric, in the order in which tables show them.
pub(super) const METRICS: &[Metric<Vmstat>] = &[
    lower(
        "zone_lock_contentions",
        "1",
        "contended acquisitions of zone->lock under free_pcppages_bulk",
        |seen| value(freeing(seen)?.count),
    ),
    lower(
        "zone_lock_wait_total_ns",
        "ns",
        "total wait for zone->lock under free_pcppages_bulk",
        |seen| value(freeing(seen)?.total_ns),
    ),
    lower(
        "zone_lock_wait_max_ns",
        "ns",
        "longest single wait for zone->lock under free_pcppages_bulk",
        |seen| value(freeing(seen)?.max_ns),
    ),
    lower(
        "zone_lock_wait_mean_ns",
        "ns",
        "mean wait for zone->lock under free_pcppages_bulk, per contended acquisition",
        |seen| value(freeing(seen)?.mean_ns()),
    ),
    lower(
        "zone_lock_queued",
        "1",
        "waits for zone->lock under free_pcppages_bulk behind another waiting CPU: those that \
         `perf lock contention` counts",
        |seen| value(queued(seen)?.count),
    ),
    lower(
        "zone_lock_queued_wait_total_ns",
        "ns",
        "total wait for zone->lock under free_pcppages_bulk behind another waiting CPU",
        |seen| value(queued(seen)?.total_ns),
    ),
    lower(
        "zone_lock_queued_wait_mean_ns",
        "ns",
        "mean wait for zone->lock under free_pcppages_bulk behind another waiting CPU",
        |seen| value(queued(seen)?.mean_ns()),
    ),
    lower(
        "zone_lock_queued_wait_max_ns",
        "ns",
        "longest wait for zone->lock under free_pcppages_bulk behind another waiting CPU",
        |seen| value(queued(seen)?.max_ns),
    ),
    lower(
        "tick_zone_lock_contentions",
        "1",
        "contended acquisitions of zone->lock under vmstat_update and free_pcppages_bulk",
        |seen| value(ticking(seen)?.count),
    ),
    lower(
        "tick_zone_lock_wait_total_ns",
        "ns",
        "total wait for zone->lock under vmstat_update and free_pcppages_bulk",
        |seen| value(ticking(seen)?.total_ns),
    ),
    lower(
        "tick_zone_lock_wait_max_ns",
        "ns",
        "longest single wait for zone->lock under vmstat_update and free_pcppages_bulk",
        |seen| value(ticking(seen)?.max_ns),
    ),
    lower(
        "tick_zone_lock_wait_mean_ns",
        "ns",
        "mean wait for zone->lock under vmstat_update and free_pcppages_bulk",
        |seen| value(ticking(seen)?.mean_ns()),
    ),
    metric(
        "tick_firings_per_cpu_per_interval_mean",
        "1",
        "firings of the upkeep tick (vmstat_update) per CPU and interval, mean over CPUs",
        |seen| {
            let rates = firing_rates(seen)?;
            value(rates.iter().sum::<f64>() / rates.len() as f64)
        },
    ),
    metric(
        "tick_firings_per_cpu_per_interval_min",
        "1",
        "firings of the upkeep tick (vmstat_update) per interval on the CPU with the fewest",
        |seen| value(firing_rates(seen)?.into_iter().reduce(f64::min).ok_or(Missing::Nothing)?),
    ),
    metric(
        "tick_firings_per_cpu_per_interval_max",
        "1",
        "firings of the upkeep tick (vmstat_update) per interval on the CPU with the most",
        |seen| value(firing_rates(seen)?.into_iter().reduce(f64::max).ok_or(Missing::Nothing)?),
    ),
    metric(
        "tick_cofiring_mean",
        "1",
        "mean number of CPUs whose tick fires in the same jiffy as a given firing, itself included",
        |seen| value(Groups::steady(seen.meters()?, seen.env.hz()).mean()),
    ),
    metric(
        "tick_cofiring_max",
        "1",
        "largest number of CPUs whose tick fires in one jiffy",
        |seen| value(Groups::steady(seen.meters()?, seen.env.hz()).max()),
    ),
    metric(
        "tick_cofiring_start_max",
        "1",
        "largest number of CPUs whose tick fires in one jiffy before the window, where the \
         shepherd begins the ticks of CPUs that have become busy",
        |seen| value(Groups::early(seen.meters()?, seen.env.hz()).max()),
    ),
    metric(
        "tick_idle_skips",
        "1",
        "upkeep ticks that were due while their CPU was idle, and were skipped",
        |seen| count(seen, |cpu| cpu.idle_skips),
    ),
    lower(
        "counter_staleness_max_ns",
        "ns",
        "longest time that a per-CPU counter delta stayed unfolded",
        |seen| value(seen.max(|cpu| cpu.staleness_max_ns)?),
    ),
    lower(
        "counter_drift_max",
        "pages",
        "largest error of a zone's free-page counter due to unfolded deltas, sampled every 1 ms",
        |seen| value(ticks::drift_max(seen.meters()?)),
    ),
    metric(
        "pcp_pages_mean",
        "pages",
        "mean number of pages in all per-CPU page caches over time",
        |seen| value(ticks::pcp_pages_mean(seen.meters()?, seen.end_ns()?)),
    ),
    higher("pages_allocated_per_s", "1/s", "pages allocated by the programs per second", |seen| {
        value(seen.per_s(seen.tally.pages_allocated as f64))
    }),
    lower("allocation_failures", "1", "failed page allocations of the programs", |seen| {
        value(seen.tally.failures)
    }),
    metric(
        "tick_trylock_failures",
        "1",
        "attempts of the tick to take zone->lock that failed because it was held",
        |seen| count(seen, |cpu| cpu.trylock_failures),
    ),
    metric(
        "tick_pages_deferred",
        "pages",
        "pages that the tick deferred to a later firing",
        |seen| count(seen, |cpu| cpu.pages_deferred),
    ),
    metric(
        "tick_pages_returned_per_s",
        "1/s",
        "pages per second that the tick returned to the zone",
        returned_per_s,
    ),
    lower(
        "high_decay_ns",
        "ns",
        "mean time from the end of a CPU's last burst until pcp->high is at its minimum",
        high_decay_ns,
    ),
];
