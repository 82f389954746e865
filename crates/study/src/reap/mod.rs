//! The study `reap`: the end of an address space, emptied by its exit and by others who help.
//!
//! One seed of one arm is one victim: a process that is killed, and another whose threads call
//! process_mrelease for it at once.

mod figures;
mod layout;
mod live;
mod probe;
mod run;
mod workload;

use crate::file::{self, Source};
use crate::param::{ParamSpec, Params, Unit};
use crate::policies::Arm;
use crate::shipped::{Experiment, Shipped};
use crate::study::{MetricSpec, RunContext, SeedResult, StudyError};
use mmscale_document::On;

/// The study's file.
pub(crate) const FILE: Source = file::source!("reap");

/// The study.
pub type Reap = Shipped<Exits>;

/// What the study does.
#[derive(Debug)]
pub struct Exits;

impl Experiment for Exits {
    const CPUS: usize = 8;
    const METRICS: &'static [MetricSpec] = figures::METRICS;
    const NOT_LIVE: &'static [&'static str] = &["lru", "swap", "swapped_1024", "via", "delay_ms"];

    fn params() -> Vec<ParamSpec> {
        vec![
            ParamSpec::each("layout", layout::NAMES, "what the victim's memory looks like"),
            ParamSpec::count("pages", Unit::Pages, 1024, [1024, 1 << 19], "pages of the victim"),
            ParamSpec::count(
                "walkers",
                Unit::One,
                2,
                [1, 64],
                "who empties it: its exit, and the others call process_mrelease",
            ),
            ParamSpec::real(
                "notice_ms",
                Unit::Ms,
                0.0,
                [0.0, 10_000.0],
                "how long the victim computes before it notices the signal",
            ),
            ParamSpec::choice(
                "via",
                "mrelease",
                &["mrelease", "oom"],
                "a signal and process_mrelease, or its group's memory runs out",
            ),
            ParamSpec::count(
                "delay_ms",
                Unit::Ms,
                2000,
                [0, 60_000],
                "how long the out-of-memory reaper leaves a victim to itself (via=oom)",
            ),
            ParamSpec::count(
                "swapped_1024",
                Unit::One,
                0,
                [0, 1024],
                "share of the pages that are in swap, in 1/1024 (not with huge pages)",
            ),
            ParamSpec::choice(
                "swap",
                "compressed",
                &["block", "compressed"],
                "what swap is on: pages stay in the swap cache, or memory like zram",
            ),
            ParamSpec::count(
                "file_1024",
                Unit::One,
                0,
                [0, 512],
                "share of the pages that are a file's, half of them shared, in 1/1024 (app)",
            ),
            ParamSpec::choice(
                "lru",
                "stock",
                &["lazy", "stock"],
                "policy of the LRU lists in arms that choose none",
            ),
        ]
    }
    fn remarks(params: &Params, on: On) -> Vec<String> {
        let helpers = params.count("walkers") - 1;
        let other = match params.choice("via") {
            "oom" => "the reaper's is oom_reaper, which runs after a delay".to_owned(),
            _ if helpers == 1 => "the reaper's is process_mrelease, of one thread".to_owned(),
            _ => format!("the reaper's is process_mrelease, of {helpers} threads together"),
        };
        if on == On::Linux {
            return vec![format!(
                "From the signal to the end of the victim: exit_zap_ns and exit_tables_ns are the \
                 longest of any process of the run, in real time, and {other}."
            )];
        }
        vec![format!(
            "From the signal to the last frame: the exit's side is all that its last thread does \
             in do_exit, {other}. CPU time includes waits for spin locks, and not sleep. \
             amdahl_bound_ns is the exit's CPU time outside of unmap_vmas, and an equal share of \
             the rest for each walker, waits and spins for locks left out."
        )]
    }
    fn window_ns(_params: &Params) -> Option<u64> {
        None
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
