//! The figures of the study: their names, which are fixed, and how each is computed.

use super::probe::{ReapProbe, visited_twice};
use super::workload::Happened;
use crate::study::{MetricSpec, SeedResult, figure};
use mmscale_document::{CallRow, LockRow};

/// Every figure, in the order in which tables show them.
pub(super) const METRICS: &[MetricSpec] = &[
    figure("total_cpu_ns", "ns", "CPU time of both sides, with waits for spin locks"),
    figure("exit_cpu_ns", "ns", "of it the victim's exit"),
    figure("reaper_cpu_ns", "ns", "of it the other side: process_mrelease, or the reaper"),
    figure("pte_lock_wait_ns", "ns", "waits for locks of page tables, both sides"),
    figure("exit_pte_lock_wait_ns", "ns", "of it the exit's"),
    figure("reaper_pte_lock_wait_ns", "ns", "of it the other side's"),
    figure("other_lock_wait_ns", "ns", "waits for all other spin locks, both sides"),
    figure("rmap_ns", "ns", "in folio_remove_rmap_ptes, both sides"),
    figure("exit_rmap_ns", "ns", "of it the exit's"),
    figure("reaper_rmap_ns", "ns", "of it the other side's"),
    figure("gather_flush_ns", "ns", "in tlb_flush_mmu: flushing and freeing, both sides"),
    figure("exit_gather_flush_ns", "ns", "of it the exit's"),
    figure("reaper_gather_flush_ns", "ns", "of it the other side's"),
    figure("exit_mmap_lock_wait_ns", "ns", "how long the exit waited for mmap_lock"),
    figure("mmap_lock_spin_ns", "ns", "CPU time of spinning for mmap_lock, both sides (claims)"),
    figure("wall_to_last_frame_ns", "ns", "from the signal until the last frame was free"),
    figure("wall_to_end_ns", "ns", "from the signal until the victim was gone (linux)"),
    figure("pte_lock_waits", "1", "how often somebody waited for one (linux)"),
    figure("exit_zap_ns", "ns", "from mmap_lock's read side to its release in exit_mmap (linux)"),
    figure("exit_tables_ns", "ns", "the same of its write side (linux)"),
    figure("mrelease_ns", "ns", "process_mrelease with mmap_lock: its unmapping (linux)"),
    figure("mrelease_await_ns", "ns", "its wait for mmap_lock (linux)"),
    figure("mrelease_call_ns", "ns", "the longest call of process_mrelease (linux)"),
    figure("serial_ns", "ns", "the exit's CPU time outside of unmap_vmas, without spins"),
    figure("amdahl_bound_ns", "ns", "serial, and each walker's share of the rest, without waits"),
    figure("frames_freed", "pages", "pages that came back"),
    figure("frames_freed_by_reaper_share", "1", "of these, on the other side's CPUs"),
    figure("tables_visited_twice", "1", "page tables that more than one walker came by"),
    figure("flushes", "1", "invalidations of translations"),
    figure("walkers_too_late", "1", "callers of process_mrelease for whom nothing was left"),
];

/// The function that the exit's side is below.
const EXIT: &str = "do_exit";

/// What one run of the machine left.
pub(super) struct Observed<'a> {
    pub(super) calls: &'a [CallRow],
    pub(super) locks: &'a [LockRow],
    pub(super) probes: &'a [ReapProbe],
    pub(super) happened: Happened,
    pub(super) walkers: u64,
    /// The function that the other side is below.
    pub(super) reaper: &'static str,
    /// The other side's CPUs: the victim's exit does not run there.
    pub(super) helpers: std::ops::Range<usize>,
}

impl Observed<'_> {
    /// CPU time below `side`, in functions below `within` if that is given.
    fn cpu_ns(&self, side: &str, within: Option<&str>) -> u64 {
        let below = self.calls.iter().filter_map(|row| Some((row, row.below(side)?)));
        let meant =
            below.filter(|(_, path)| within.is_none_or(|func| path.iter().any(|f| f == func)));
        meant.map(|(row, _)| row.self_ns).sum()
    }
    fn wait_ns(&self, side: &str, meant: impl Fn(&str) -> bool) -> u64 {
        let rows = self.locks.iter().filter(|row| row.passes_through(side) && meant(&row.class));
        rows.map(|row| row.wait_total_ns).sum()
    }
    fn has_calls_of(&self, function: &str) -> bool {
        self.calls.iter().any(|row| row.below(function).is_some())
    }
    /// A figure of both sides, and each side's.
    fn both(&self, of: impl Fn(&str) -> u64) -> [u64; 3] {
        let sides = [EXIT, self.reaper].map(of);
        [sides[0] + sides[1], sides[0], sides[1]]
    }
}

fn is_table(class: &str) -> bool {
    ["pte", "pmd", "page_table"].contains(&class)
}

/// Fills in every figure of one run. `false`: the victim did not come to its end.
pub(super) fn measure(seen: &Observed<'_>, result: &mut SeedResult) -> bool {
    let Some((killed_ns, over_ns)) = seen.happened.killed_ns.zip(seen.happened.over_ns) else {
        return false;
    };
    let mut three = |names: [&'static str; 3], values: [u64; 3]| {
        names.into_iter().zip(values).for_each(|(name, ns)| result.metric(name, ns));
    };
    let cpu = seen.both(|side| seen.cpu_ns(side, None));
    three(["total_cpu_ns", "exit_cpu_ns", "reaper_cpu_ns"], cpu);
    let waits = seen.both(|side| seen.wait_ns(side, is_table));
    let names = ["pte_lock_wait_ns", "exit_pte_lock_wait_ns", "reaper_pte_lock_wait_ns"];
    three(names, waits);
    if seen.has_calls_of("folio_remove_rmap_ptes") {
        let rmap = seen.both(|side| seen.cpu_ns(side, Some("folio_remove_rmap_ptes")));
        three(["rmap_ns", "exit_rmap_ns", "reaper_rmap_ns"], rmap);
    }
    let flush = seen.both(|side| seen.cpu_ns(side, Some("tlb_flush_mmu")));
    three(["gather_flush_ns", "exit_gather_flush_ns", "reaper_gather_flush_ns"], flush);
    let others = seen.both(|side| seen.wait_ns(side, |class| !is_table(class)))[0];
    result.metric("other_lock_wait_ns", others);
    // The exit spins for mmap_lock outside of unmap_vmas.
    let spins = seen.both(|side| seen.cpu_ns(side, Some("rwsem_optimistic_spin")));
    result.metric("mmap_lock_spin_ns", spins[0]);
    let serial_ns = cpu[1].saturating_sub(seen.cpu_ns(EXIT, Some("unmap_vmas")) + spins[1]);
    let parallel_ns = cpu[0].saturating_sub(serial_ns + waits[0] + others + spins[0]);
    result.metric("serial_ns", serial_ns);
    result.metric("amdahl_bound_ns", serial_ns + parallel_ns / seen.walkers);
    measure_events(seen, killed_ns, over_ns, result);
    true
}

fn measure_events(seen: &Observed<'_>, killed_ns: u64, over_ns: u64, result: &mut SeedResult) {
    let within = killed_ns..=over_ns;
    let waits_ns = seen.probes.iter().map(|probe| probe.exit_lock_wait_ns);
    result.metric("exit_mmap_lock_wait_ns", waits_ns.sum::<u64>());
    let last_ns = seen.probes.iter().filter_map(|probe| probe.last_ns(&within)).max();
    result.metric("wall_to_last_frame_ns", last_ns.unwrap_or(killed_ns) - killed_ns);
    let pages: Vec<u64> = seen.probes.iter().map(|probe| probe.pages(&within)).collect();
    let freed: u64 = pages.iter().sum();
    let by_helpers: u64 = pages.get(seen.helpers.clone()).map_or(0, |pages| pages.iter().sum());
    result.metric("frames_freed", freed);
    result.metric("frames_freed_by_reaper_share", by_helpers as f64 / freed.max(1) as f64);
    result.metric("tables_visited_twice", visited_twice(seen.probes));
    let flushes = seen.probes.iter().map(|probe| probe.flushes(&within));
    result.metric("flushes", flushes.sum::<u64>());
}

/// The call trees of both sides, each from its own root.
pub(super) fn trees(calls: &[CallRow], reaper: &str) -> Vec<CallRow> {
    let side = |row: &CallRow| {
        let path = row.below(EXIT).or_else(|| row.below(reaper))?;
        Some(CallRow { path: path.to_vec(), ..*row })
    };
    calls.iter().filter_map(side).collect()
}
