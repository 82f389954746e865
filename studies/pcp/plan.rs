//! The schedule of a run, from its parameters and its machine.

use super::build::Build;
use super::compile::{Compile, FileCache};
use super::edge::Edge;
use super::exit::Exit;
use super::mixed::Mixed;
use super::offline::Offline;
use super::purger::Purger;
use super::worker::Timetable;
use super::{AllocPath, Kind, Params, Pcp};
use mmscale_arch::{Order, PAGE_SHIFT};
use mmscale_document::Target;
use mmscale_harness::{Env, Named, SETTLE_NS, making_ns};

/// A workload with its sizes.
#[derive(Clone, Copy, Debug)]
pub(super) enum LoadKind {
    Build(Build),
    Purger(Purger),
    Exit(Exit),
    Mixed(Mixed),
    Edge(Edge),
    Compile(Compile),
}

/// The schedule of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) load: LoadKind,
    pub(super) through: AllocPath,
    pub(super) at: Timetable,
    /// The ranges that are taken offline.
    pub(super) offline: Option<Offline>,
    /// Pages that are free when programs start, above the high watermark in `compile`; `None`: all
    /// pages.
    pub(super) room_pages: Option<u64>,
    /// Maximum number of pages that all programs use.
    pub(super) wants_pages: u64,
}

/// Parents of `build` per CPU: while one waits for a child that was moved, the other continues.
pub(super) const MAKES_PER_CPU: usize = 2;

/// Time until the first program of a simulated machine runs.
const SETTLE_SIM_NS: u64 = 2_000_000;
/// Time until processes that wait for the window have started to exit.
const ENDING_NS: u64 = 2_000_000;
/// Time to allocate a block of the largest order.
const KEEPING_NS: u64 = 3_000;
/// Time to touch and free a page, including waits on a busy machine.
const PAGE_NS: u64 = 6_000;
/// Time to free a page at exit, if no two CPUs can free concurrently.
const ZAP_NS: u64 = 500;
/// Time to allocate a frame straight from the allocator, and the part of it during which no other
/// CPU can allocate one.
const FRAME_NS: u64 = 600;
const FRAME_HOLD_NS: u64 = 1_000;
/// Time to finish operations that are in progress at the end of the window.
const STOPPING_NS: u64 = 20_000_000;
/// Memory available to programs of `oom-edge`, in 1/1024; the rest is allocated in advance.
const EDGE_1024: u64 = 10;
/// Pages of page tables, slabs and shared text of a process of `compile`.
const PROCESS_PAGES: u64 = 2048;
/// Free pages in addition to those of programs, in 1/1024 of all: for watermarks, tables and page
/// caches.
const SPARE_1024: u64 = 8;

/// A workload on a machine, without times.
struct Sized {
    load: LoadKind,
    /// Maximum number of pages that all programs use.
    wants: u64,
    /// Time until all programs have allocated what they need.
    fill_ns: u64,
    window_ns: u64,
    /// Pages that are free when programs start.
    room: Option<u64>,
}

fn sized(params: &Params, cpus: u64, pages: u64) -> Sized {
    let ns = |ms: f64| (ms * 1e6) as u64;
    match params.workload {
        Kind::Build => {
            let mean = params.build_pages;
            let build = Build { pages: mean, user_ns: params.build_user_ns };
            let (wants, window_ns) = (2 * cpus * (2 * mean + 300), ns(params.build_ms));
            Sized { load: LoadKind::Build(build), wants, fill_ns: 0, window_ns, room: None }
        }
        Kind::Purger => {
            let chunk_pages = params.purger_chunk_pages;
            let purger = Purger { chunk_pages, user_ns: params.purger_user_ns };
            let (wants, window_ns) = (cpus * 5 * chunk_pages, ns(params.purger_ms));
            Sized { load: LoadKind::Purger(purger), wants, fill_ns: 0, window_ns, room: None }
        }
        Kind::Exit => {
            let exit = Exit { pages: params.exit_pages };
            let fill_ns = exit.pages * PAGE_NS * cpus.div_ceil(64);
            let all = cpus * exit.pages;
            let (wants, window_ns) = (all + all / 64, ENDING_NS + all * ZAP_NS);
            Sized { load: LoadKind::Exit(exit), wants, fill_ns, window_ns, room: None }
        }
        Kind::Mixed => {
            let all = params.mixed_pages;
            let mixed = Mixed { long_pages: all / 4, short_pages: all / 2 };
            let (wants, window_ns) = (cpus * all, ns(params.mixed_ms));
            let room = Some(wants + spare(pages));
            Sized { load: LoadKind::Mixed(mixed), wants, fill_ns: all * PAGE_NS, window_ns, room }
        }
        Kind::Edge => {
            let free = (pages as f64 * params.edge_free_percent / 100.0) as u64;
            let room = (pages * EDGE_1024 / 1024).max(2 * free);
            let (share_pages, free_pages) = (room / cpus, free / cpus);
            let edge = Edge { share_pages, free_pages, user_ns: params.edge_user_ns };
            let fill_ns = share_pages * FRAME_NS + room * FRAME_HOLD_NS;
            let (load, window_ns) = (LoadKind::Edge(edge), ns(params.edge_ms));
            Sized { load, wants: 0, fill_ns, window_ns, room: Some(room) }
        }
        Kind::Compile => {
            let (pages, user_ns) = (params.compile_pages, params.compile_user_ns);
            let cache = params.compile_cache.then_some(FileCache {
                first_pages: cpus * pages / 4,
                read_pages_per_s: (params.compile_read_mb_per_s * 1_000_000) >> PAGE_SHIFT,
            });
            // On average processes are half done; the rest is for those that are not.
            let of_processes = cpus * (pages * 3 / 4 + PROCESS_PAGES);
            let room = cache.map(|cache| of_processes + cache.first_pages);
            let (wants, window_ns) = (2 * cpus * pages, ns(params.compile_ms));
            let fill_ns = pages * 3 / 2 * PAGE_NS;
            let load = LoadKind::Compile(Compile { pages, user_ns, cache });
            Sized { load, wants, fill_ns, window_ns, room }
        }
    }
}

/// Returns the number of pages that programs leave free.
fn spare(pages: u64) -> u64 {
    pages * SPARE_1024 / 1024
}

/// Returns the factor by which the window is longer than the parameters specify. On threads, other
/// programs may use the CPUs, so that a window may have no page event.
pub(super) fn stretch(env: &Env<Pcp>) -> u64 {
    if env.on() == Target::Threads { 4_u64.pow(env.attempt) } else { 1 }
}

/// Plans a run. The error states what is impossible.
pub(super) fn plan(env: &Env<Pcp>) -> Result<Plan, String> {
    let (params, cpus, pages) = (&env.params, env.cpus() as u64, env.pages);
    let frames = params.workload == Kind::Edge || params.through == AllocPath::Frames;
    if frames && env.on() == Target::Live {
        let what = "the live kernel does not hand out single frames: use through=system with \
                    workload build, purger, exit or mixed";
        return Err(what.to_owned());
    }
    let Sized { load, wants, fill_ns, window_ns, room } = sized(params, cpus, pages);
    if wants + spare(pages) > pages {
        let name = params.workload.name();
        return Err(format!(
            "workload {name} needs {wants} pages on {cpus} CPUs, but the machine has {pages}: \
             increase --set memory_gib, or make programs smaller"
        ));
    }
    let kept_ns = if room.is_some() { (pages >> 10) * KEEPING_NS } else { 0 };
    let settle_ns = if env.on() == Target::Sim { SETTLE_SIM_NS } else { SETTLE_NS };
    let making_ns = making_ns(env, MAKES_PER_CPU as u64 * cpus);
    let begin_ns = settle_ns + making_ns + kept_ns;
    let warm_ns = begin_ns + fill_ns;
    let window_ns = window_ns * stretch(env);
    // In `exit` no CPU has anything to do between the fill phase and the exits.
    let settling_ns = if params.workload == Kind::Exit { 0 } else { window_ns / 2 };
    let from_ns = warm_ns + settling_ns;
    let until_ns = from_ns + window_ns.max(1);
    let census_ns = until_ns + STOPPING_NS;
    let end_ns = census_ns + STOPPING_NS;
    let at = Timetable { begin_ns, warm_ns, from_ns, until_ns, census_ns, end_ns };
    let (through, offline) = (params.through, offline(params, pages)?);
    Ok(Plan { load, through, at, offline, room_pages: room, wants_pages: wants })
}

fn offline(params: &Params, pages: u64) -> Result<Option<Offline>, String> {
    let block_pages = Order::PAGEBLOCK.pages() as u64;
    let (range_pages, of_blocks) = (params.offline_mib << (20 - PAGE_SHIFT), pages / block_pages);
    let blocks = range_pages.div_ceil(block_pages);
    match blocks {
        0 => Ok(None),
        _ if blocks <= of_blocks / 2 => Ok(Some(Offline { blocks, of_blocks })),
        _ => Err(format!(
            "cannot take {} MiB offline: the machine has {pages} pages, and at most half of them \
             may be offline",
            params.offline_mib
        )),
    }
}
