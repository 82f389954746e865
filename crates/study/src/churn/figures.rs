//! The figures of the study: their names, which are fixed, and how each is computed.

use super::probe::ChurnProbe;
use super::workload::Tally;
use crate::machine::Counted;
use crate::meters::Level;
use crate::study::{MetricSpec, SeedResult, figure};
use mmscale_document::LockRow;

/// Every figure, in the order in which tables show them.
pub(super) const METRICS: &[MetricSpec] = &[
    figure("ops_per_s", "1/s", "ops of all processes: map, advise, touch, unmap"),
    figure(
        "cpu_ns_per_op",
        "ns",
        "CPU time that was not idle, per op; that of others beside them too",
    ),
    figure("usr_ns_per_op", "ns", "of this, in user mode"),
    figure("sys_ns_per_op", "ns", "and in the kernel"),
    figure(
        "cpu_ns_per_op_alone",
        "ns",
        "CPU time per op on a machine with one CPU; not beside others",
    ),
    figure("amplification", "1", "CPU time per op over that on one CPU"),
    figure("lruvec_acquisitions_per_op", "1", "how often the lruvec lock was taken"),
    figure("lruvec_waits_per_op", "1", "how often somebody waited for it (linux)"),
    figure("lruvec_wait_share", "1", "share of all CPU time spent waiting for it"),
    figure("lruvec_wait_max_ns", "ns", "the longest wait"),
    figure("lru_batch_size_mean", "1", "folios in a batch that is added to the lists"),
    figure("lru_batches_per_op", "1", "batches that are added: each takes the lock (linux)"),
    figure("lru_batch_dead_mean", "1", "of these, folios that nobody else held any more"),
    figure("folios_pinned_in_batches_max", "1", "folios that batches hold, looked at each 0.1 ms"),
    figure(
        "memory_charged_after_unmap_max_pages",
        "pages",
        "unmapped pages that only a batch of new folios holds, looked at each 0.1 ms",
    ),
    figure("op_failures", "1", "ops that failed, for want of memory mostly; they count as no ops"),
    figure("meddler_rounds", "1", "rounds of those beside: lock, move, age, reclaim, use again"),
];

/// What one run of the machine left.
pub(super) struct Observed<'a> {
    pub(super) cpus: usize,
    pub(super) window_ns: u64,
    pub(super) locks_counted: Counted,
    pub(super) locks: &'a [LockRow],
    pub(super) probes: &'a [ChurnProbe],
    pub(super) tallies: &'a Tally,
    pub(super) meddlers: Option<&'a Tally>,
}

impl Observed<'_> {
    /// Ops during which locks were counted.
    fn lock_ops(&self) -> f64 {
        match self.locks_counted {
            Counted::Window => self.ops(),
            Counted::Always => self.begun(),
        }
    }
    fn begun(&self) -> f64 {
        self.tallies.begun as f64
    }
    fn ops(&self) -> f64 {
        self.tallies.halves as f64 / 2.0
    }
    /// All CPUs' time in the window, in ns.
    fn all_ns(&self) -> f64 {
        self.cpus as f64 * self.window_ns as f64
    }
    fn busy_ns(&self) -> f64 {
        let idle_ns: u64 = self.probes.iter().map(|probe| probe.idle.total_ns()).sum();
        self.all_ns() - idle_ns as f64
    }
}

/// CPU time that was not idle, per op.
pub(super) fn cpu_ns_per_op(seen: &Observed<'_>) -> f64 {
    seen.busy_ns() / seen.ops()
}

/// Fills in every figure of one run but those that need another; returns the CPU time per op.
pub(super) fn measure(seen: &Observed<'_>, result: &mut SeedResult) -> f64 {
    let ops = seen.ops();
    result.metric("ops_per_s", ops * 1e9 / seen.window_ns.max(1) as f64);
    result.metric("op_failures", seen.tallies.failures);
    if let Some(meddlers) = seen.meddlers {
        result.metric("meddler_rounds", meddlers.begun);
    }
    let pinned = Level::max(seen.probes.iter().map(|probe| &probe.pinned));
    result.metric("folios_pinned_in_batches_max", pinned.max(0) as u64);
    let dead = Level::max(seen.probes.iter().map(|probe| &probe.dead));
    result.metric("memory_charged_after_unmap_max_pages", dead.max(0) as u64);
    let sum = |of: fn(&ChurnProbe) -> u64| seen.probes.iter().map(of).sum::<u64>() as f64;
    let batches = sum(|probe| probe.add_batches);
    if batches > 0.0 {
        result.metric("lru_batch_size_mean", sum(|probe| probe.add_folios) / batches);
        result.metric("lru_batch_dead_mean", sum(|probe| probe.add_dead) / batches);
    }
    let lruvec = || seen.locks.iter().filter(|row| row.class == "lruvec");
    result.metric("lruvec_wait_max_ns", lruvec().map(|row| row.wait_max_ns).max().unwrap_or(0));
    if ops <= 0.0 {
        return f64::NAN;
    }
    let in_time = ops / seen.lock_ops();
    let wait_ns: u64 = lruvec().map(|row| row.wait_total_ns).sum();
    result.metric("lruvec_wait_share", wait_ns as f64 * in_time / seen.all_ns());
    let taken: u64 = lruvec().map(|row| row.acquisitions).sum();
    result.metric("lruvec_acquisitions_per_op", taken as f64 / seen.lock_ops());
    let cpu_ns = cpu_ns_per_op(seen);
    let usr_ns = seen.tallies.user_ns as f64 / seen.begun();
    result.metric("cpu_ns_per_op", cpu_ns);
    result.metric("usr_ns_per_op", usr_ns);
    result.metric("sys_ns_per_op", cpu_ns - usr_ns);
    cpu_ns
}
