//! Results of an emulated machine: without times, rates, waits and shares.

use super::SeedResult;
use super::spec::MetricSpec;

/// The need of a metric that an emulated machine cannot measure.
const NEEDS: &str = "real processors: this machine is emulated, and its times mean nothing";

/// Why a metric is left out that has no unit and is in neither list.
const UNKNOWN: &str = "real processors: this machine is emulated, and it is not declared whether \
                       this metric depends on times";

/// Units of what is counted.
const COUNTED: [&str; 3] = ["pages", "folios", "bytes"];

/// Metrics without a unit (`1`) that are counts of what programs and the kernel do, so that an
/// emulated machine has them too.
const COUNTS: [&str; 36] = [
    "accesses_per_op",
    "alloc_failures",
    "allocation_failures",
    "calls_per_op",
    "failed_calls",
    "faults_per_op",
    "flush_calls",
    "flushes",
    "free_order9_blocks",
    "ipis_sent",
    "lru_batch_dead_mean",
    "lru_batch_size_mean",
    "lru_batches_per_op",
    "lruvec_acquisitions_per_op",
    "offline_success_share",
    "offline_tries",
    "op_failures",
    "order0_failures",
    "order0_failures_with_free_pages",
    "order3_success_share",
    "order9_success_share",
    "other_calls",
    "partial_blocks",
    "remote_free_share",
    "stack_reuse_share",
    "stacks_given",
    "starved_programs",
    "tainted_blocks",
    "tainted_gib",
    "tick_firings_per_cpu_per_interval_max",
    "tick_firings_per_cpu_per_interval_mean",
    "tick_firings_per_cpu_per_interval_min",
    "tick_idle_skips",
    "unusable_free_index_order9",
    "vmap_purges",
    "zone_lock_acquisitions_per_page",
];

/// Metrics without a unit that depend on times: ratios and shares of them, contention, and counts
/// of what was long, late, or within a time.
const TIMED: [&str; 28] = [
    "amplification",
    "call_sleeps",
    "frames_freed_by_reaper_share",
    "idle_share",
    "ipis_elided",
    "lock_wait_share",
    "lruvec_wait_share",
    "lruvec_waits_per_op",
    "meddler_rounds",
    "preempt_off_over_10ms",
    "preempt_off_over_1ms",
    "preempt_off_over_1ms_for_calls",
    "preempt_off_over_50ms",
    "pte_lock_waits",
    "rounds_min",
    "script_share",
    "tables_visited_twice",
    "tick_cofiring_max",
    "tick_cofiring_mean",
    "tick_cofiring_start_max",
    "tick_trylock_failures",
    "tick_zone_lock_contentions",
    "walkers_too_late",
    "zap_to_free_ratio",
    "zone_lock_contentions",
    "zone_lock_queued",
    "zone_lock_wait_share",
    "zone_lock_waits_per_page",
];

impl MetricSpec {
    /// Whether the metric depends on times, which an emulated machine cannot measure: by its unit,
    /// or, without one, by the lists of this file. `None` if it is in neither.
    pub fn depends_on_times(&self) -> Option<bool> {
        match self.unit {
            "1" if COUNTS.contains(&self.name) => Some(false),
            "1" if TIMED.contains(&self.name) => Some(true),
            "ns" => Some(true),
            unit if unit.ends_with("/s") => Some(true),
            unit if COUNTED.contains(&unit) => Some(false),
            _ => None,
        }
    }
}

impl SeedResult {
    /// Leaves out all that depends on times.
    pub(super) fn without_times(self, metrics: &[MetricSpec]) -> Self {
        let timed = |name: &str| {
            metrics.iter().find(|spec| spec.name == name).and_then(MetricSpec::depends_on_times)
        };
        let (counts, others): (Vec<_>, Vec<_>) =
            self.metrics.into_iter().partition(|(name, _)| timed(name) == Some(false));
        let mut missing = self.missing;
        missing.extend(others.into_iter().map(|(name, _)| match timed(name) {
            None => (name, UNKNOWN),
            Some(_) => (name, NEEDS),
        }));
        Self {
            metrics: counts.into_iter().collect(),
            missing,
            made: self.made,
            // Whether the kernel was observed, and how many programs were late, are for its tests.
            host_metrics: self
                .host_metrics
                .into_iter()
                .filter(|(name, _)| ["watched", "memory_group"].contains(&name.as_str()))
                .collect(),
            window_ns: self.window_ns,
            fingerprint: self.fingerprint,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_in_one_list() {
        for list in [&COUNTS[..], &TIMED] {
            assert!(list.is_sorted(), "{list:?}");
        }
        assert!(COUNTS.iter().all(|name| !TIMED.contains(name)));
    }

    #[test]
    fn only_counts_are_left() {
        let spec = |name, unit| MetricSpec { name, unit, help: "", better: None, headline: false };
        let specs = [
            spec("zap_ns", "ns"),
            spec("ops_per_s", "1/s"),
            spec("lruvec_wait_share", "1"),
            spec("lru_batch_size_mean", "1"),
            spec("frames_freed", "pages"),
            spec("spins", "1"),
            spec("age", "jiffies"),
        ];
        let mut result = SeedResult::default();
        specs.iter().for_each(|spec| result.metric(spec.name, 1.0));
        result.host_metrics.insert("wall_s".to_owned(), 1.0);
        result.host_metrics.insert("watched".to_owned(), 1.0);
        let left = result.without_times(&specs);
        let names: Vec<&str> = left.metrics.keys().copied().collect();
        assert_eq!(names, ["frames_freed", "lru_batch_size_mean"]);
        let unknown: Vec<&str> = left
            .missing
            .iter()
            .filter(|(_, why)| **why == UNKNOWN)
            .map(|(name, _)| *name)
            .collect();
        assert_eq!((left.missing.len(), unknown), (5, vec!["age", "spins"]));
        assert_eq!(left.host_metrics.len(), 1);
    }
}
