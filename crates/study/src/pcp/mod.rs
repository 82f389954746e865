//! The study `pcp`: page caches, the buddy allocator and zone->lock.
//!
//! One seed of one arm is one run of one workload: programs on all CPUs, a window in which what
//! they do counts, and a census of free memory when they have stopped, before caches are drained.

mod figures;
mod frames;
mod live;
mod plan;
mod probe;
mod run;
mod workload;

use crate::file::{self, Source};
use crate::param::{ParamSpec, Params, Unit};
use crate::policies::Arm;
use crate::shipped::{Experiment, Shipped};
use crate::study::{MetricSpec, RunContext, SeedResult, StudyError, TooShort};
use mmscale_document::On;

/// The study's file.
pub(crate) const FILE: Source = file::source!("pcp");

/// The study.
pub type Pcp = Shipped<PageCaches>;

/// What the study does.
#[derive(Debug)]
pub struct PageCaches;

impl Experiment for PageCaches {
    const CPUS: usize = 32;
    const METRICS: &'static [MetricSpec] = figures::METRICS;
    const NOT_LIVE: &'static [&'static str] =
        &["memory_gib", "lru", "groups", "edge_ms", "edge_free_percent", "edge_user_ns"];

    fn params() -> Vec<ParamSpec> {
        let ms = |name, help| ParamSpec::real(name, Unit::Ms, 5.0, [0.1, 60_000.0], help);
        let user_ns = |name| {
            ParamSpec::count(name, Unit::Ns, 1000, [0, 1_000_000], "computing after each page")
        };
        let pages =
            |name, least, help| ParamSpec::count(name, Unit::Pages, 1024, [least, 1 << 20], help);
        vec![
            ParamSpec::each("workload", plan::NAMES, "what programs do"),
            ParamSpec::count("memory_gib", Unit::One, 32, [1, 4096], "memory of the machine (sim)"),
            ParamSpec::choice(
                "lru",
                "lazy",
                &["lazy", "stock"],
                "policy of the LRU lists in arms that choose none; with `stock` their locks hide \
                 the zone's",
            ),
            ParamSpec::choice(
                "groups",
                "cpu",
                &["cpu", "root"],
                "memory groups, each with lists of its own: one for each CPU, or one for all",
            ),
            ParamSpec::choice(
                "through",
                "system",
                &["system", "frames"],
                "pages of `purger` and `exit`: mapped, or straight from the frame allocator",
            ),
            ms("build_ms", "window of `build`"),
            pages("build_pages", 1, "pages of a process, on the mean"),
            user_ns("build_user_ns"),
            ms("purger_ms", "window of `purger`"),
            pages("purger_chunk_pages", 1, "pages that are given back at once"),
            user_ns("purger_user_ns"),
            pages("exit_pages", 1, "pages of each thread of the processes that end"),
            ms("mixed_ms", "window of `mixed`"),
            pages("mixed_pages", 8, "memory for each CPU: a quarter for long-lived pages"),
            ms("edge_ms", "window of `oom-edge`"),
            ParamSpec::real(
                "edge_free_percent",
                Unit::One,
                2.0,
                [0.01, 2.0],
                "share of the memory that is free at most",
            ),
            user_ns("edge_user_ns"),
        ]
    }
    fn remarks(params: &Params, on: On) -> Vec<String> {
        let window = match params.choice("workload") {
            "build" => format!("{} ms", params.real("build_ms")),
            "purger" => format!("{} ms", params.real("purger_ms")),
            "exit" => {
                let pages = params.count("exit_pages");
                format!("the end of processes of {} times {pages} pages", workload::exit::THREADS)
            }
            "mixed" => format!("{} ms", params.real("mixed_ms")),
            _ => format!("{} ms", params.real("edge_ms")),
        };
        if on == On::Linux {
            return vec![format!(
                "Pages and waits are of a window: {window}. A page is one that a program touched; \
                 system_ns_per_page has the system time of all processes of the run in it, from \
                 their forks to their ends."
            )];
        }
        vec![format!(
            "Figures per page and locks are of a window: {window}. A page is one that was \
             allocated in it or one that was freed, whichever are more. Free memory is counted \
             when programs have stopped, before any cache is drained."
        )]
    }
    fn too_short(params: &Params, on: On) -> Vec<TooShort> {
        figures::too_short(params, on)
    }
    fn window_ns(params: &Params) -> Option<u64> {
        let name = match params.choice("workload") {
            "exit" => return None,
            "oom-edge" => "edge_ms".to_owned(),
            workload => format!("{workload}_ms"),
        };
        Some((params.real(&name) * 1e6) as u64)
    }
    fn refuse(ctx: &RunContext) -> Result<(), String> {
        run::refuse(ctx)
    }
    fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
        match ctx.on {
            On::Linux => live::run(ctx, seed),
            On::Sim | On::Threads => run::run(ctx, arm, seed),
        }
    }
}
