//! Metrics of the study. The number of pages of a window is that of allocated or of freed pages,
//! whichever is larger.

use super::edge::Tries;
use super::meter::PageMeter;
use super::offline::OfflineTally;
use super::plan::LoadKind;
use super::{AllocatorData, Kind, Pcp};
use mmscale_arch::Order;
use mmscale_document::{LockRow, Target};
use mmscale_frames::page_alloc::Census;
use mmscale_harness::{
    Level, Measured, Metric, Missing, Seen, Waits, higher, lower, metric, value,
};
use std::sync::MutexGuard;

/// Returns the number of pages of the window. In `compile` the page cache allocates and frees, too,
/// as much as an arm makes it: the work is that of the processes.
pub(super) fn pages(seen: &Seen<'_, Pcp>) -> Result<f64, Missing> {
    if seen.env.params.workload == Kind::Compile {
        return Ok(seen.tally.compiled as f64);
    }
    Ok(seen.sum(|cpu| cpu.allocated)?.max(seen.sum(|cpu| cpu.freed)?))
}
/// Returns the number of pages that programs touched on the live kernel.
fn touched(seen: &Seen<'_, Pcp>) -> f64 {
    seen.tally.pages as f64
}
/// Returns the number of pages during which locks were counted.
fn lock_pages(seen: &Seen<'_, Pcp>) -> Result<f64, Missing> {
    if seen.on() == Target::Sim { pages(seen) } else { seen.sum(|cpu| cpu.all_pages) }
}
/// Returns the time from the first to the last page event of the window.
fn span_ns(meters: &[PageMeter]) -> f64 {
    let busy = || meters.iter().filter_map(|cpu| cpu.busy_ns);
    let first_ns = busy().map(|(first_ns, _)| first_ns).min().unwrap_or(0);
    let last_ns = busy().map(|(_, last_ns)| last_ns).max().unwrap_or(0);
    (last_ns - first_ns).max(1) as f64
}
/// Returns the sum of a value over all zone locks.
fn zone_locks(seen: &Seen<'_, Pcp>, of: fn(&LockRow) -> u64) -> Result<f64, Missing> {
    Ok(seen.held_locks()?.rows("zone", &[]).map(of).sum::<u64>() as f64)
}
fn zone_waits(seen: &Seen<'_, Pcp>) -> Result<Waits, Missing> {
    Ok(seen.locks()?.waits("zone", &[]))
}
/// Returns the free memory after programs have stopped.
fn census(seen: &Seen<'_, Pcp>) -> Result<Census, Missing> {
    seen.inside()?.after.ok_or(Missing::Nothing)
}
/// Why a metric is missing for a guest allocator.
const GUESTS: &str =
    "an allocator whose caches and types of pageblocks are known, which a guest's are not";

/// Returns the census. Missing for guest allocators, whose caches and pageblocks are not known.
fn own_census(seen: &Seen<'_, Pcp>) -> Result<Census, Missing> {
    let census = census(seen)?;
    if census.has_guest { Err(Missing::Source(GUESTS)) } else { Ok(census) }
}
/// Returns the results of `oom-edge`. Missing for other workloads.
fn edge<'a>(seen: &Seen<'a, Pcp>) -> Result<MutexGuard<'a, AllocatorData>, Missing> {
    if matches!(seen.plan.load, LoadKind::Edge(_)) { seen.inside() } else { Err(Missing::Nothing) }
}
fn success_share(tries: Tries) -> Measured {
    value(tries.given as f64 / tries.asked as f64)
}

/// Returns the results of taking memory offline. [`Missing`] if it was not attempted.
fn offline(seen: &Seen<'_, Pcp>) -> Result<OfflineTally, Missing> {
    let tally = seen.inside()?.offline;
    if tally.tried > 0 { Ok(tally) } else { Err(Missing::Nothing) }
}
/// Returns the results of successful attempts. [`Missing`] if there was none.
fn went_offline(seen: &Seen<'_, Pcp>) -> Result<OfflineTally, Missing> {
    let tally = offline(seen)?;
    if tally.done > 0 { Ok(tally) } else { Err(Missing::Nothing) }
}

/// Every metric, in the order in which tables show them.
pub(super) const METRICS: &[Metric<Pcp>] = &[
    lower(
        "sys_ns_per_page",
        "ns",
        "CPU time in the kernel per page (allocated or freed), without clearing pages",
        |seen| {
            let sys_ns = seen.busy_ns()? - seen.tally.user_ns as f64 - seen.sum(|c| c.clear_ns)?;
            value(sys_ns / pages(seen)?)
        },
    ),
    lower(
        "system_ns_per_page",
        "ns",
        "CPU time in the kernel per touched page, including clearing and exits (live)",
        |seen| value(seen.live()?.cpu.system_ns as f64 / touched(seen)),
    ),
    lower(
        "clear_ns_per_page",
        "ns",
        "time to clear pages per page (allocated or freed), including waits for memory bandwidth",
        |seen| value(seen.sum(|cpu| cpu.clear_ns)? / pages(seen)?),
    ),
    higher(
        "pages_per_s",
        "1/s",
        "pages allocated per second, or pages freed per second if larger",
        |seen| {
            match seen.live() {
                // `exit` touches its pages once, before the window.
                Ok(_) if matches!(seen.plan.load, LoadKind::Exit(_)) => Err(Missing::Nothing),
                Ok(_) => {
                    let active_ns = seen.plan.at.until_ns - seen.plan.at.begin_ns;
                    value(touched(seen) * 1e9 / active_ns as f64)
                }
                Err(_) => value(pages(seen)? * 1e9 / span_ns(seen.meters()?)),
            }
        },
    ),
    lower(
        "zone_lock_acquisitions_per_page",
        "1",
        "acquisitions of zone->lock per page (allocated or freed)",
        |seen| value(zone_locks(seen, |row| row.acquisitions)? / lock_pages(seen)?),
    ),
    lower(
        "zone_lock_hold_ns_per_page",
        "ns",
        "total hold time of zone->lock per page (allocated or freed)",
        |seen| value(zone_locks(seen, |row| row.hold_total_ns)? / lock_pages(seen)?),
    ),
    lower(
        "zone_lock_waits_per_page",
        "1",
        "contended acquisitions of zone->lock per touched page (live)",
        |seen| {
            seen.live()?;
            value(zone_waits(seen)?.count as f64 / touched(seen))
        },
    ),
    lower(
        "zone_lock_wait_share",
        "1",
        "share of non-idle CPU time spent waiting for zone->lock",
        |seen| {
            let wait_ns = seen.locks()?.spun_ns(Some("zone"));
            match seen.live() {
                Ok(live) => value(wait_ns / (live.cpu.user_ns + live.cpu.system_ns).max(1) as f64),
                Err(_) => value(wait_ns * pages(seen)? / lock_pages(seen)? / seen.busy_ns()?),
            }
        },
    ),
    lower(
        "pcp_lock_remote_wait_ns",
        "ns",
        "total wait for pcp->lock, the locks of per-CPU page caches",
        |seen| value(seen.held_locks()?.waits("pcp", &[]).total_ns),
    ),
    metric(
        "remote_free_share",
        "1",
        "share of freed pages that another CPU had allocated",
        |seen| value(seen.sum(|cpu| cpu.freed_elsewhere)? / seen.sum(|cpu| cpu.freed)?),
    ),
    higher(
        "free_order9_blocks",
        "1",
        "fully free pageblocks in all zones after programs have stopped",
        |seen| value(census(seen)?.whole_blocks),
    ),
    lower(
        "partial_blocks",
        "1",
        "pageblocks with both used and free pages after programs have stopped",
        |seen| value(census(seen)?.partial_blocks),
    ),
    lower(
        "tainted_blocks",
        "1",
        "pageblocks that are not movable after programs have stopped",
        |seen| value(own_census(seen)?.tainted_blocks),
    ),
    lower(
        "tainted_gib",
        "1",
        "GiB with a pageblock that is not movable after programs have stopped",
        |seen| value(own_census(seen)?.tainted_gib),
    ),
    lower(
        "unusable_free_index_order9",
        "1",
        "share of free pages outside free order-9 blocks after programs have stopped",
        |seen| {
            let census = census(seen)?;
            let unusable = census.unusable_pages(Order::PAGEBLOCK) as f64;
            value(unusable / census.free_pages().max(1) as f64)
        },
    ),
    lower(
        "pages_stranded_max",
        "pages",
        "maximum of free pages that only one CPU can allocate, sampled every 0.1 ms",
        |seen| {
            own_census(seen)?;
            let cached = Level::max(seen.meters()?.iter().map(|cpu| &cpu.cached));
            value(cached.max(0) as u64)
        },
    ),
    lower(
        "metadata_bytes_per_page",
        "bytes",
        "memory that the frame allocator uses for its metadata, per page of the machine",
        |seen| {
            let census = census(seen)?;
            value(census.metadata_bytes as f64 / census.pages.max(1) as f64)
        },
    ),
    metric(
        "offline_tries",
        "1",
        "attempts to take a range of memory offline (offline_mib)",
        |seen| value(offline(seen)?.tried),
    ),
    higher(
        "offline_success_share",
        "1",
        "share of attempts that took the whole range offline (offline_mib)",
        |seen| {
            let tally = offline(seen)?;
            value(tally.done as f64 / tally.tried as f64)
        },
    ),
    lower(
        "offline_mean_ns",
        "ns",
        "mean time to take a range offline, successful attempts only (offline_mib)",
        |seen| {
            let tally = went_offline(seen)?;
            value(tally.total_ns as f64 / tally.done as f64)
        },
    ),
    lower(
        "offline_max_ns",
        "ns",
        "longest time to take a range offline, successful attempts only (offline_mib)",
        |seen| value(went_offline(seen)?.max_ns),
    ),
    metric(
        "offline_busy_pages",
        "pages",
        "mean number of used pages in ranges that could not be taken offline (offline_mib)",
        |seen| {
            let tally = offline(seen)?;
            match tally.tried - tally.done {
                0 => Err(Missing::Nothing),
                refused => value(tally.busy_pages as f64 / refused as f64),
            }
        },
    ),
    lower("alloc_failures", "1", "calls and allocations that failed for lack of memory", |seen| {
        let at_the_edge = edge(seen).map_or(0, |memory| memory.edge.refused());
        value(seen.tally.failures + at_the_edge)
    }),
    lower("order0_failures", "1", "failed allocations of single pages (oom-edge)", |seen| {
        value(edge(seen)?.edge.page.refused())
    }),
    lower(
        "order0_failures_with_free_pages",
        "1",
        "failed order-0 allocations while more pages than the min watermark were free (oom-edge)",
        |seen| {
            let memory = edge(seen)?;
            let all_pages = memory.before.ok_or(Missing::Nothing)?.free_pages();
            value(memory.edge.failures_with_free_pages(all_pages, memory.min_mark))
        },
    ),
    higher(
        "order3_success_share",
        "1",
        "share of order-3 allocations that succeeded (oom-edge)",
        |seen| success_share(edge(seen)?.edge.order_3),
    ),
    higher(
        "order9_success_share",
        "1",
        "share of order-9 allocations that succeeded (oom-edge)",
        |seen| success_share(edge(seen)?.edge.order_9),
    ),
];
