//! The figures of the study: their names, which are fixed, and how each is computed.

use super::probe::PcpProbe;
use super::workload::Tally;
use super::workload::edge::Tries;
use crate::machine::Counted;
use crate::meters::Level;
use crate::param::Params;
use crate::study::{MetricSpec, SeedResult, TooShort, figure};
use mmscale_arch::Order;
use mmscale_document::{LockRow, On};
use mmscale_frames::page_alloc::Census;

/// Every figure, in the order in which tables show them. A page of the window is one that was
/// allocated in it, or one that was freed, whichever is more.
pub(super) const METRICS: &[MetricSpec] = &[
    figure("sys_ns_per_page", "ns", "CPU time in the kernel per page, without clearing it"),
    figure("system_ns_per_page", "ns", "in the kernel per page, clearing and exits too (linux)"),
    figure("clear_ns_per_page", "ns", "clearing, per page, with the wait for the memory"),
    figure("pages_per_s", "1/s", "pages allocated, or freed where that is more"),
    figure("zone_lock_acquisitions_per_page", "1", "how often a zone lock was taken, per page"),
    figure("zone_lock_hold_ns_per_page", "ns", "how long zone locks were held, per page"),
    figure("zone_lock_waits_per_page", "1", "how often somebody waited for one (linux)"),
    figure("zone_lock_wait_share", "1", "share of CPU time spent waiting for a zone lock"),
    figure("pcp_lock_remote_wait_ns", "ns", "waits for the locks of page caches, all together"),
    figure("remote_free_share", "1", "share of freed pages that another CPU had allocated"),
    figure("free_order9_blocks", "1", "whole free pageblocks in the zones, at the end"),
    figure("partial_blocks", "1", "pageblocks with used and with free pages, at the end"),
    figure(
        "unusable_free_index_order9",
        "1",
        "share of free pages in no free block of order 9 of a zone, at the end",
    ),
    figure(
        "pages_stranded_max",
        "pages",
        "free pages that only one CPU hands out, most at any time, looked at each 0.1 ms",
    ),
    figure("metadata_bytes_per_page", "bytes", "what the allocator keeps about a page"),
    figure("alloc_failures", "1", "calls that had no memory"),
    figure("order0_failures", "1", "single pages that were asked for in vain (oom-edge)"),
    figure(
        "order0_failures_with_free_pages",
        "1",
        "of these, while pages above the min watermark were free somewhere",
    ),
    figure("order3_success_share", "1", "share of requests for order 3 that got it (oom-edge)"),
    figure("order9_success_share", "1", "share of requests for order 9 that got it (oom-edge)"),
];

/// How often `oom-edge` must have run out of memory, which it does once in some 1 ms, for the
/// shares of requests that fail.
const NEEDED_EDGE_MS: f64 = 2.0;

/// The figures for which a run is too short.
pub(super) fn too_short(params: &Params, on: On) -> Vec<TooShort> {
    let edge = on != On::Linux && params.choice("workload") == "oom-edge";
    let short = edge && params.real("edge_ms") < NEEDED_EDGE_MS;
    let of_failures = short.then(|| TooShort {
        metrics: vec![
            "alloc_failures",
            "order0_failures",
            "order0_failures_with_free_pages",
            "order3_success_share",
            "order9_success_share",
        ],
        needs: format!("edge_ms={NEEDED_EDGE_MS} or more: memory runs out once in some 1 ms"),
    });
    of_failures.into_iter().collect()
}

/// What one run of the machine left.
pub(super) struct Observed<'a> {
    pub(super) cpus: usize,
    pub(super) window_ns: u64,
    /// When locks were counted.
    pub(super) locks_counted: Counted,
    pub(super) locks: &'a [LockRow],
    pub(super) probes: &'a [PcpProbe],
    pub(super) tally: &'a Tally,
    /// Free memory at the end.
    pub(super) census: Census,
    /// At the edge: free pages before programs began, and the min watermark.
    pub(super) edge: Option<(u64, u64)>,
}

impl Observed<'_> {
    fn sum(&self, of: impl Fn(&PcpProbe) -> u64) -> f64 {
        self.probes.iter().map(of).sum::<u64>() as f64
    }
    fn pages(&self) -> f64 {
        self.sum(|probe| probe.allocated).max(self.sum(|probe| probe.freed))
    }
    /// CPU time in the window that was not idle.
    fn busy_ns(&self) -> f64 {
        self.cpus as f64 * self.window_ns as f64 - self.sum(|probe| probe.idle.total_ns())
    }
    /// From the first page to the last.
    fn span_ns(&self) -> f64 {
        let busy = || self.probes.iter().filter_map(|probe| probe.busy_ns);
        let first = busy().map(|(first_ns, _)| first_ns).min().unwrap_or(0);
        let last = busy().map(|(_, last_ns)| last_ns).max().unwrap_or(0);
        (last - first).max(1) as f64
    }
    /// Pages while locks were counted.
    fn lock_pages(&self) -> f64 {
        match self.locks_counted {
            Counted::Window => self.pages(),
            Counted::Always => self.sum(|probe| probe.all_pages),
        }
    }
    fn of_class(&self, class: &str, of: impl Fn(&LockRow) -> u64) -> u64 {
        self.locks.iter().filter(|row| row.class == class).map(of).sum()
    }
}

/// Fills in every figure of one run. `false`: no page came or went in the window.
pub(super) fn measure(seen: &Observed<'_>, result: &mut SeedResult) -> bool {
    let pages = seen.pages();
    if pages == 0.0 {
        return false;
    }
    let (busy_ns, clear_ns) = (seen.busy_ns(), seen.sum(|probe| probe.clear_ns));
    let sys_ns = busy_ns - seen.tally.user_ns as f64 - clear_ns;
    result.metric("sys_ns_per_page", sys_ns / pages);
    result.metric("clear_ns_per_page", clear_ns / pages);
    result.metric("pages_per_s", pages * 1e9 / seen.span_ns());
    let lock_pages = seen.lock_pages();
    let zone = |of: fn(&LockRow) -> u64| seen.of_class("zone", of) as f64;
    result.metric("zone_lock_acquisitions_per_page", zone(|row| row.acquisitions) / lock_pages);
    result.metric("zone_lock_hold_ns_per_page", zone(|row| row.hold_total_ns) / lock_pages);
    let wait_ns = zone(|row| row.wait_total_ns) * pages / lock_pages;
    result.metric("zone_lock_wait_share", wait_ns / busy_ns);
    result.metric("pcp_lock_remote_wait_ns", seen.of_class("pcp", |row| row.wait_total_ns));
    let freed = seen.sum(|probe| probe.freed);
    if freed > 0.0 {
        result.metric("remote_free_share", seen.sum(|probe| probe.freed_elsewhere) / freed);
    }
    let edge = &seen.tally.edge;
    let refused: u64 = [edge.page, edge.order_3, edge.order_9].map(Tries::refused).iter().sum();
    result.metric("alloc_failures", seen.tally.failures + refused);
    let cached = Level::max(seen.probes.iter().map(|probe| &probe.cached));
    result.metric("pages_stranded_max", cached.max(0) as u64);
    measure_census(&seen.census, result);
    if let Some((all_pages, mark)) = seen.edge {
        measure_edge(seen.tally, all_pages, mark, result);
    }
    true
}

fn measure_census(census: &Census, result: &mut SeedResult) {
    result.metric("free_order9_blocks", census.whole_blocks);
    result.metric("partial_blocks", census.partial_blocks);
    let unusable = census.unusable_pages(Order::PAGEBLOCK) as f64;
    result.metric("unusable_free_index_order9", unusable / census.free_pages().max(1) as f64);
    let bytes = census.metadata_bytes as f64;
    result.metric("metadata_bytes_per_page", bytes / census.pages.max(1) as f64);
}

fn measure_edge(tally: &Tally, all_pages: u64, mark: u64, result: &mut SeedResult) {
    let edge = &tally.edge;
    result.metric("order0_failures", edge.page.refused());
    let unjust = edge.failures_with_free_pages(all_pages, mark);
    result.metric("order0_failures_with_free_pages", unjust);
    let mut share = |name, tries: Tries| {
        if tries.asked > 0 {
            result.metric(name, tries.given as f64 / tries.asked as f64);
        }
    };
    share("order3_success_share", edge.order_3);
    share("order9_success_share", edge.order_9);
}
