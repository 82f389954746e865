//! Results of an emulated machine: without times, rates, waits and shares.

use super::SeedResult;
use super::spec::MetricSpec;

/// The need of a metric that an emulated machine cannot measure.
const NEEDS: &str = "real processors: this machine is emulated, and its times mean nothing";

/// Parts of the names of metrics without a unit that depend on times.
const TIMED: [&str; 12] = [
    "wait",
    "contention",
    "contended",
    "share",
    "ratio",
    "amplification",
    "cofiring",
    "late",
    "busy",
    "duty",
    "speedup",
    "bound",
];

impl SeedResult {
    /// Leaves out all that depends on times.
    pub(super) fn without_times(self, metrics: &[MetricSpec]) -> Self {
        let is_timed = |name: &str| {
            let spec = metrics.iter().find(|spec| spec.name == name);
            let unit = spec.map_or("", |spec| spec.unit);
            unit == "ns" || unit.ends_with("/s") || TIMED.iter().any(|part| name.contains(part))
        };
        let (timed, counts): (Vec<_>, Vec<_>) =
            self.metrics.into_iter().partition(|(name, _)| is_timed(name));
        let mut missing = self.missing;
        missing.extend(timed.into_iter().map(|(name, _)| (name, NEEDS)));
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
    fn only_counts_are_left() {
        let spec = |name, unit| MetricSpec { name, unit, help: "", better: None, headline: false };
        let specs = [
            spec("zap_ns", "ns"),
            spec("ops_per_s", "1/s"),
            spec("lruvec_wait_share", "1"),
            spec("lru_batch_size_mean", "1"),
            spec("frames_freed", "pages"),
        ];
        let mut result = SeedResult::default();
        specs.iter().for_each(|spec| result.metric(spec.name, 1.0));
        result.host_metrics.insert("wall_s".to_owned(), 1.0);
        result.host_metrics.insert("watched".to_owned(), 1.0);
        let left = result.without_times(&specs);
        let names: Vec<&str> = left.metrics.keys().copied().collect();
        assert_eq!(names, ["frames_freed", "lru_batch_size_mean"]);
        assert_eq!(left.missing.len(), 3);
        assert_eq!(left.host_metrics.len(), 1);
    }
}
