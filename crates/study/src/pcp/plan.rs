//! What a run does and when, from its parameters.

use super::workload::Phases;
use super::workload::build::Build;
use super::workload::edge::Edge;
use super::workload::exit::Exit;
use super::workload::mixed::Mixed;
use super::workload::purger::Purger;
use crate::param::Params;
use crate::study::RunContext;
use mmscale_document::On;

/// The names of the workloads, in the order in which they run.
pub(super) const NAMES: &[&str] = &["build", "purger", "exit", "mixed", "oom-edge"];

/// A workload and its sizes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    Build(Build),
    Purger(Purger),
    Exit(Exit),
    Mixed(Mixed),
    Edge(Edge),
}

/// Where the workloads `purger` and `exit` get their pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Through {
    /// From address spaces.
    System,
    /// From the frame allocator.
    Frames,
}

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) load: Load,
    pub(super) through: Through,
    pub(super) at: Phases,
    /// Pages that are free when programs begin; `None`: all that there are.
    pub(super) room_pages: Option<u64>,
    /// Pages that all programs have at most.
    pub(super) wants_pages: u64,
}

/// Programs are made before anything begins, one after the other.
const SETTLE_NS: u64 = 2_000_000;
const MAKING_SIM_NS: u64 = 20_000;
const MAKING_HOST_NS: u64 = 400_000;
/// Taking one of the largest blocks.
const KEEPING_NS: u64 = 3_000;
/// A page that is touched and goes again, with the waits of a busy machine.
const PAGE_NS: u64 = 6_000;
/// A page that goes with its process, if no two CPUs can free at once.
const ZAP_NS: u64 = 500;
/// A frame straight from the allocator, and for how long nobody else can have one.
const FRAME_NS: u64 = 600;
const FRAME_HOLD_NS: u64 = 1_000;
/// What may be under way when time is up.
const STOPPING_NS: u64 = 20_000_000;
/// At the edge, programs have so many 1/1024 of the memory among them; the rest is taken.
const EDGE_1024: u64 = 10;
/// More free pages than programs want, in 1/1024 of all: for watermarks, tables and page caches.
const SPARE_1024: u64 = 8;

/// A workload on a machine, before it is known when.
struct Sized {
    load: Load,
    /// Pages that all programs have at most.
    wants: u64,
    /// How long it takes until all of them have what they need.
    fill_ns: u64,
    window_ns: u64,
    /// Pages that are free when they begin.
    room: Option<u64>,
}

fn sized(params: &Params, cpus: u64, pages: u64) -> Sized {
    let ms = |name: &str| (params.real(name) * 1e6) as u64;
    match params.choice("workload") {
        "build" => {
            let mean = params.count("build_pages");
            let build = Build { pages: mean, user_ns: params.count("build_user_ns") };
            let (wants, window_ns) = (2 * cpus * (2 * mean + 300), ms("build_ms"));
            Sized { load: Load::Build(build), wants, fill_ns: 0, window_ns, room: None }
        }
        "purger" => {
            let chunk_pages = params.count("purger_chunk_pages");
            let purger = Purger { chunk_pages, user_ns: params.count("purger_user_ns") };
            let (wants, window_ns) = (cpus * 5 * chunk_pages, ms("purger_ms"));
            Sized { load: Load::Purger(purger), wants, fill_ns: 0, window_ns, room: None }
        }
        "exit" => {
            let exit = Exit { pages: params.count("exit_pages") };
            let fill_ns = exit.pages * PAGE_NS * cpus.div_ceil(64);
            let all = cpus * exit.pages;
            let (wants, window_ns) = (all + all / 64, SETTLE_NS + all * ZAP_NS);
            Sized { load: Load::Exit(exit), wants, fill_ns, window_ns, room: None }
        }
        "mixed" => {
            let all = params.count("mixed_pages");
            let mixed = Mixed { long_pages: all / 4, short_pages: all / 2 };
            let (wants, window_ns) = (cpus * all, ms("mixed_ms"));
            let room = Some(wants + spare(pages));
            Sized { load: Load::Mixed(mixed), wants, fill_ns: all * PAGE_NS, window_ns, room }
        }
        _ => {
            let free = (pages as f64 * params.real("edge_free_percent") / 100.0) as u64;
            let room = (pages * EDGE_1024 / 1024).max(2 * free);
            let (share_pages, free_pages) = (room / cpus, free / cpus);
            let edge = Edge { share_pages, free_pages, user_ns: params.count("edge_user_ns") };
            let fill_ns = share_pages * FRAME_NS + room * FRAME_HOLD_NS;
            let (load, window_ns) = (Load::Edge(edge), ms("edge_ms"));
            Sized { load, wants: 0, fill_ns, window_ns, room: Some(room) }
        }
    }
}

/// Pages that programs leave alone.
fn spare(pages: u64) -> u64 {
    pages * SPARE_1024 / 1024
}

impl Plan {
    /// The plan of a run on a machine of `pages` pages. The error says what does not fit.
    pub(super) fn of(ctx: &RunContext, pages: u64) -> Result<Self, String> {
        Self::stretched(ctx, pages, 1)
    }
    /// The same with a window that is `times` as long.
    pub(super) fn stretched(ctx: &RunContext, pages: u64, times: u64) -> Result<Self, String> {
        let (params, cpus) = (&ctx.params, ctx.cpus as u64);
        let Sized { load, wants, fill_ns, window_ns, room } = sized(params, cpus, pages);
        if wants + spare(pages) > pages {
            let name = params.choice("workload");
            return Err(format!(
                "workload {name} wants {wants} pages on {cpus} CPUs, and the machine has {pages}: \
                 give it more (--set memory_gib), or make programs smaller"
            ));
        }
        let making_ns = if ctx.on == On::Sim { MAKING_SIM_NS } else { MAKING_HOST_NS };
        let kept_ns = if room.is_some() { (pages >> 10) * KEEPING_NS } else { 0 };
        let begin_ns = SETTLE_NS + 2 * cpus * making_ns + kept_ns;
        let warm_ns = begin_ns + fill_ns;
        // Nothing is to be in the way of those who all end at once.
        let window_ns = window_ns * times;
        let settling_ns = if matches!(load, Load::Exit(_)) { 0 } else { window_ns / 2 };
        let from_ns = warm_ns + settling_ns;
        let until_ns = from_ns + window_ns.max(1);
        let census_ns = until_ns + STOPPING_NS;
        let end_ns = census_ns + STOPPING_NS;
        let at = Phases { begin_ns, warm_ns, from_ns, until_ns, census_ns, end_ns };
        let through = match params.choice("through") {
            "frames" => Through::Frames,
            _ => Through::System,
        };
        Ok(Self { load, through, at, room_pages: room, wants_pages: wants })
    }
}
