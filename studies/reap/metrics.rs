//! Metrics of the study: of the victim's exit, of the reaping side, and of both together.

use super::meter::visited_twice;
use super::{Reap, Via};
use mmscale_document::CallRow;
use mmscale_document::{Side, Wait, Watched};
use mmscale_harness::Waits;
use mmscale_harness::{Measured, Metric, Missing, Seen, lower, metric, value};
use std::ops::{Range, RangeInclusive};

/// The root function of the exit's side.
const EXIT: &str = "do_exit";

/// Returns the root function of the reaping side.
pub(super) fn reaper(seen: &Seen<'_, Reap>) -> &'static str {
    match seen.plan.via {
        Via::Oom => "oom_reaper",
        Via::Mrelease => "process_mrelease",
    }
}
/// Returns the CPUs of the reaping side, on which the victim's exit does not run.
fn reaper_cpus(seen: &Seen<'_, Reap>) -> Range<usize> {
    match seen.plan.via {
        // The OOM reaper runs on the first CPU.
        Via::Oom => 0..1,
        Via::Mrelease => 1..seen.plan.helpers + 1,
    }
}
/// Returns the time from the kill to the end of the victim.
pub(super) fn life_ns(seen: &Seen<'_, Reap>) -> Result<RangeInclusive<u64>, Missing> {
    let killed_ns = match seen.plan.via {
        Via::Oom => seen.meters()?.iter().find_map(|cpu| cpu.marked_ns),
        Via::Mrelease => seen.tally.killed_ns,
    };
    let (killed_ns, over_ns) = killed_ns.zip(seen.tally.over_ns).ok_or(Missing::Nothing)?;
    Ok(killed_ns..=over_ns)
}

/// A value of the exit's side and of the reaping side.
#[derive(Clone, Copy)]
struct Sides {
    exit: u64,
    reaper: u64,
}

impl Sides {
    fn of(seen: &Seen<'_, Reap>, figure: impl Fn(&str) -> u64) -> Self {
        Self { exit: figure(EXIT), reaper: figure(reaper(seen)) }
    }
    fn both(self) -> u64 {
        self.exit + self.reaper
    }
}

/// Returns the CPU time in and below `function`, or of the whole side without a function.
fn cpu_ns(seen: &Seen<'_, Reap>, function: Option<&str>) -> Result<Sides, Missing> {
    cpu_ns_in(seen, |path| function.is_none_or(|name| is_in(path, name)))
}
fn is_in(path: &[String], function: &str) -> bool {
    path.iter().any(|name| name == function)
}
/// Returns the CPU time of the call paths that are `meant`.
fn cpu_ns_in(seen: &Seen<'_, Reap>, meant: impl Fn(&[String]) -> bool) -> Result<Sides, Missing> {
    let calls = seen.calls()?;
    Ok(Sides::of(seen, |side| {
        let below = calls.iter().filter_map(|row| Some((row, row.below(side)?)));
        below.filter(|(_, path)| meant(path)).map(|(row, _)| row.self_ns).sum()
    }))
}
/// Returns the CPU time of the reverse map. Missing under policies that do not use this function.
fn rmap_ns(seen: &Seen<'_, Reap>) -> Result<Sides, Missing> {
    const RMAP: &str = "folio_remove_rmap_ptes";
    match seen.calls()?.iter().any(|row| row.below(RMAP).is_some()) {
        true => cpu_ns(seen, Some(RMAP)),
        false => Err(Missing::Nothing),
    }
}
fn flush_ns(seen: &Seen<'_, Reap>) -> Result<Sides, Missing> {
    cpu_ns(seen, Some("tlb_flush_mmu"))
}
/// Returns the CPU time of spinning for mmap_lock.
fn spin_ns(seen: &Seen<'_, Reap>) -> Result<Sides, Missing> {
    cpu_ns(seen, Some("rwsem_optimistic_spin"))
}

/// Returns the waits for spin locks of this program's memory manager.
fn wait_ns(seen: &Seen<'_, Reap>, meant: fn(&str) -> bool) -> Result<Sides, Missing> {
    let rows = seen.held_locks()?.all();
    Ok(Sides::of(seen, |side| {
        let spun = rows.iter().filter(|row| !row.sleeps && row.passes_through(side));
        let rows = spun.filter(|row| meant(&row.class));
        rows.map(|row| row.wait_total_ns).sum()
    }))
}
fn is_table(class: &str) -> bool {
    ["pte", "pmd", "page_table"].contains(&class)
}

/// Returns the waits in the live kernel.
fn waited(seen: &Seen<'_, Reap>, meant: impl Fn(&Wait) -> bool) -> Result<Waits, Missing> {
    seen.live()?.waits(meant).ok_or(Missing::UNWATCHED)
}
/// Returns the waits for page-table locks.
fn table_wait_ns(seen: &Seen<'_, Reap>) -> Result<Sides, Missing> {
    if seen.live().is_err() {
        return wait_ns(seen, is_table);
    }
    let both = waited(seen, |wait| is_table(wait.class))?.total_ns;
    let exit = waited(seen, |wait| is_table(wait.class) && wait.side == Side::Exiting)?.total_ns;
    Ok(Sides { exit, reaper: both - exit })
}
/// Returns the observations of the live kernel.
fn watched<'a>(seen: &Seen<'a, Reap>) -> Result<&'a Watched, Missing> {
    seen.live()?.seen.as_ref().ok_or(Missing::UNWATCHED)
}
/// Returns the observations of the live kernel, if process_mrelease reaped memory.
fn watched_helpers<'a>(seen: &Seen<'a, Reap>) -> Result<&'a Watched, Missing> {
    if seen.tally.helped > 0 { watched(seen) } else { Err(Missing::Nothing) }
}

/// Returns the CPU time of unmapping, nearly all of it under page-table locks, without waits for
/// these, per CPU time of freeing what was unmapped.
fn zap_to_free(seen: &Seen<'_, Reap>) -> Measured {
    let frees = |path: &[String]| is_in(path, "tlb_flush_mmu") || is_in(path, "tlb_finish_mmu");
    let zap = cpu_ns_in(seen, |path| is_in(path, "unmap_page_range") && !frees(path))?.both();
    let zap_ns = zap.saturating_sub(wait_ns(seen, is_table)?.both());
    match cpu_ns_in(seen, frees)?.both() {
        0 => Err(Missing::Nothing),
        free_ns => value(zap_ns as f64 / free_ns as f64),
    }
}

/// Returns the exit's CPU time outside of unmap_vmas, without spinning for mmap_lock.
fn serial_ns(seen: &Seen<'_, Reap>) -> Result<u64, Missing> {
    let unmap_ns = cpu_ns(seen, Some("unmap_vmas"))?.exit;
    Ok(cpu_ns(seen, None)?.exit.saturating_sub(unmap_ns + spin_ns(seen)?.exit))
}
fn amdahl_bound(seen: &Seen<'_, Reap>) -> Measured {
    let serial_ns = serial_ns(seen)?;
    let waits_ns = wait_ns(seen, |_| true)?.both();
    let other_ns = serial_ns + waits_ns + spin_ns(seen)?.both();
    let parallel_ns = cpu_ns(seen, None)?.both().saturating_sub(other_ns);
    value(serial_ns + parallel_ns / (seen.plan.helpers as u64 + 1))
}
/// Returns the freed pages, by CPU.
fn freed(seen: &Seen<'_, Reap>) -> Result<Vec<u64>, Missing> {
    let life_ns = life_ns(seen)?;
    Ok(seen.meters()?.iter().map(|cpu| cpu.pages(&life_ns)).collect())
}

/// Every metric, in the order in which tables show them.
pub(super) const METRICS: &[Metric<Reap>] = &[
    lower(
        "total_cpu_ns",
        "ns",
        "CPU time of the victim's exit and its reapers, including spin-lock waits",
        |seen| value(cpu_ns(seen, None)?.both()),
    ),
    lower(
        "exit_cpu_ns",
        "ns",
        "CPU time of the victim's exit, including spin-lock waits",
        |seen| value(cpu_ns(seen, None)?.exit),
    ),
    metric(
        "reaper_cpu_ns",
        "ns",
        "CPU time of process_mrelease or the OOM reaper, including spin-lock waits",
        |seen| match seen.live() {
            Ok(_) if seen.tally.helped == 0 => Err(Missing::Nothing),
            Ok(_) => {
                let cpu = seen
                    .tally
                    .killer_cpu
                    .ok_or(Missing::Source("a machine that reports the CPU time of processes"))?;
                value(cpu.system_ns + cpu.user_ns)
            }
            Err(_) => value(cpu_ns(seen, None)?.reaper),
        },
    ),
    lower("pte_lock_wait_ns", "ns", "total wait for page-table locks, exit and reapers", |seen| {
        value(table_wait_ns(seen)?.both())
    }),
    lower(
        "exit_pte_lock_wait_ns",
        "ns",
        "total wait of the victim's exit for page-table locks",
        |seen| value(table_wait_ns(seen)?.exit),
    ),
    lower("reaper_pte_lock_wait_ns", "ns", "total wait of reapers for page-table locks", |seen| {
        value(table_wait_ns(seen)?.reaper)
    }),
    lower(
        "other_lock_wait_ns",
        "ns",
        "total wait for spin locks other than page-table locks, exit and reapers",
        |seen| value(wait_ns(seen, |class| !is_table(class))?.both()),
    ),
    lower("rmap_ns", "ns", "CPU time in folio_remove_rmap_ptes, exit and reapers", |seen| {
        value(rmap_ns(seen)?.both())
    }),
    metric(
        "exit_rmap_ns",
        "ns",
        "CPU time of the victim's exit in folio_remove_rmap_ptes",
        |seen| value(rmap_ns(seen)?.exit),
    ),
    metric("reaper_rmap_ns", "ns", "CPU time of reapers in folio_remove_rmap_ptes", |seen| {
        value(rmap_ns(seen)?.reaper)
    }),
    metric(
        "zap_to_free_ratio",
        "1",
        "CPU time of unmapping, without waits for page-table locks, per CPU time of freeing pages",
        zap_to_free,
    ),
    lower(
        "gather_flush_ns",
        "ns",
        "CPU time in tlb_flush_mmu (TLB flush and free of pages), exit and reapers",
        |seen| value(flush_ns(seen)?.both()),
    ),
    metric(
        "exit_gather_flush_ns",
        "ns",
        "CPU time of the victim's exit in tlb_flush_mmu",
        |seen| value(flush_ns(seen)?.exit),
    ),
    metric("reaper_gather_flush_ns", "ns", "CPU time of reapers in tlb_flush_mmu", |seen| {
        value(flush_ns(seen)?.reaper)
    }),
    lower(
        "exit_mmap_lock_wait_ns",
        "ns",
        "total wait of the victim's exit for mmap_lock",
        |seen| match seen.live() {
            Ok(_) => {
                let exit = |wait: &Wait| wait.side == Side::Exiting && wait.class == "mmap_lock";
                value(waited(seen, exit)?.total_ns)
            }
            Err(_) => value(seen.meters()?.iter().map(|cpu| cpu.exit_lock_wait_ns).sum::<u64>()),
        },
    ),
    lower(
        "mmap_lock_spin_ns",
        "ns",
        "CPU time spent spinning for mmap_lock, exit and reapers",
        |seen| value(spin_ns(seen)?.both()),
    ),
    lower(
        "wall_to_last_frame_ns",
        "ns",
        "time from the kill of the victim until its last page was freed",
        |seen| {
            let life_ns = life_ns(seen)?;
            let last_ns = seen.meters()?.iter().filter_map(|cpu| cpu.last_ns(&life_ns)).max();
            value(last_ns.map_or(0, |last_ns| last_ns - life_ns.start()))
        },
    ),
    lower(
        "wall_to_end_ns",
        "ns",
        "time from the kill until the victim had exited and its helpers had finished (live)",
        |seen| {
            seen.live()?;
            let life_ns = life_ns(seen)?;
            value(life_ns.end() - life_ns.start())
        },
    ),
    lower(
        "pte_lock_waits",
        "1",
        "contended acquisitions of page-table locks, exit and reapers (live)",
        |seen| value(waited(seen, |wait| is_table(wait.class))?.count),
    ),
    lower(
        "exit_zap_ns",
        "ns",
        "time exit_mmap held mmap_lock for reading, to unmap; longest of any process (live)",
        // The killer exits, too, but has nothing to tear down: the longest is the victim's.
        |seen| value(watched(seen)?.exit_zap.max_ns),
    ),
    lower(
        "exit_tables_ns",
        "ns",
        "time exit_mmap held mmap_lock for writing, to free page tables; longest (live)",
        |seen| value(watched(seen)?.exit_tables.max_ns),
    ),
    metric(
        "mrelease_ns",
        "ns",
        "total time process_mrelease held mmap_lock, which is its unmapping (live)",
        |seen| value(watched_helpers(seen)?.mrelease.total_ns),
    ),
    lower(
        "mrelease_await_ns",
        "ns",
        "total wait of process_mrelease for mmap_lock (live)",
        |seen| value(watched_helpers(seen)?.mrelease_await.total_ns),
    ),
    lower(
        "mrelease_call_ns",
        "ns",
        "duration of the longest call of process_mrelease (live)",
        |seen| match seen.live()?.releases {
            calls if calls.count > 0 => value(calls.max_ns),
            _ => Err(Missing::Nothing),
        },
    ),
    lower(
        "serial_ns",
        "ns",
        "CPU time of the victim's exit outside unmap_vmas, without spinning for mmap_lock",
        |seen| value(serial_ns(seen)?),
    ),
    lower(
        "amdahl_bound_ns",
        "ns",
        "lower bound of the duration: serial_ns + (other CPU time without waits) / walkers",
        amdahl_bound,
    ),
    metric(
        "frames_freed",
        "pages",
        "pages freed between the kill and the end of the victim",
        |seen| value(freed(seen)?.iter().sum::<u64>()),
    ),
    metric(
        "frames_freed_by_reaper_share",
        "1",
        "share of frames_freed that was freed on CPUs of reapers",
        |seen| {
            let freed = freed(seen)?;
            let by_helpers = freed.get(reaper_cpus(seen)).unwrap_or(&[]).iter().sum::<u64>();
            value(by_helpers as f64 / freed.iter().sum::<u64>().max(1) as f64)
        },
    ),
    lower(
        "tables_visited_twice",
        "1",
        "page tables from which more than one walker removed pages",
        |seen| value(visited_twice(seen.meters()?)),
    ),
    lower("flushes", "1", "TLB flushes between the kill and the end of the victim", |seen| {
        let life_ns = life_ns(seen)?;
        value(seen.meters()?.iter().map(|cpu| cpu.flushes(&life_ns)).sum::<u64>())
    }),
    metric(
        "walkers_too_late",
        "1",
        "callers of process_mrelease that found nothing left to reap",
        |seen| value(u64::from(seen.tally.too_late)),
    ),
];

/// Returns the call trees of both sides, each from its own root function.
pub(super) fn trees(calls: &[CallRow], reaper: &str) -> Vec<CallRow> {
    let side = |row: &CallRow| {
        let path = row.below(EXIT).or_else(|| row.below(reaper))?;
        Some(CallRow { path: path.to_vec(), ..*row })
    };
    calls.iter().filter_map(side).collect()
}
