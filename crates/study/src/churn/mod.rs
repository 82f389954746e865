//! The study `churn`: single pages mapped, populated, touched and unmapped, and the lruvec lock.
//!
//! One seed of one arm is two runs: the machine with all its CPUs gives all figures but
//! `amplification`, for which the same runs on one CPU.

mod figures;
mod live;
mod probe;
mod run;
mod workload;

use crate::file::{self, Source};
use crate::param::{ParamSpec, Params, Unit};
use crate::policies::{Arm, Choice};
use crate::shipped::{Experiment, Shipped};
use crate::study::{MetricSpec, RunContext, SeedResult, StudyError};
use mmscale_document::On;

/// The study's file.
pub(crate) const FILE: Source = file::source!("churn");

/// The study.
pub type Churn = Shipped<PageChurn>;

/// What the study does.
#[derive(Debug)]
pub struct PageChurn;

impl Experiment for PageChurn {
    const CPUS: usize = 512;
    const METRICS: &'static [MetricSpec] = figures::METRICS;
    const CHOICES: &'static [Choice] = run::CHOICES;
    const NOT_LIVE: &'static [&'static str] = &["swap", "swap_mb_per_s"];

    fn params() -> Vec<ParamSpec> {
        vec![
            ParamSpec::count(
                "processes_per_cpu",
                Unit::One,
                16,
                [1, 8192],
                "processes on each CPU",
            ),
            ParamSpec::count("pages", Unit::Pages, 1, [1, 1 << 16], "pages of an op"),
            ParamSpec::switch(
                "populate",
                true,
                "ops map with MAP_POPULATE; off: pages are touched",
            ),
            ParamSpec::choice("madvise", "mix", run::ADVISE, "advice in each op, before the touch"),
            ParamSpec::choice(
                "swap",
                "off",
                &["off", "zeromap", "disk"],
                "none; pages of zeros are remembered; they are written as others are",
            ),
            ParamSpec::choice(
                "beside",
                "none",
                &["none", "mixed"],
                "processes on every 16th CPU that lock, move, age and reclaim 64 pages",
            ),
            ParamSpec::real(
                "swap_mb_per_s",
                Unit::One,
                0.0,
                [0.0, 1e6],
                "MB a second that the swap device moves; 0: as in the profile (sim)",
            ),
            ParamSpec::real(
                "duration_ms",
                Unit::Ms,
                20.0,
                [0.1, 600_000.0],
                "virtual time (on threads: real time) of the ops",
            ),
            ParamSpec::count("user_ns", Unit::Ns, 315, [0, 1_000_000], "computing in each op"),
        ]
    }
    fn remarks(params: &Params, _on: On) -> Vec<String> {
        let duration_ms = params.real("duration_ms");
        vec![format!(
            "All processes run ops for {duration_ms} ms; cpu_ns_per_op_alone is from a second run \
             on one CPU, amplification is the ratio."
        )]
    }
    fn window_ns(params: &Params) -> Option<u64> {
        Some((params.real("duration_ms") * 1e6) as u64)
    }
    fn tasks(params: &Params, cpus: usize) -> u64 {
        // A starter and a meddler beside the processes.
        (params.count("processes_per_cpu") + 2) * cpus as u64
    }
    fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
        match ctx.on {
            On::Linux => live::run(ctx, arm, seed),
            On::Sim | On::Threads => run::run(ctx, arm, seed),
        }
    }
}
