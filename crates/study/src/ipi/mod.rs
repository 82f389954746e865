//! The study `ipi`: cross-CPU calls, and for how long whoever waits for them locks others out.
//!
//! One seed of one arm is one run of the machine: a service whose threads poll on most CPUs and
//! change its memory on a few, and a watchman on each CPU. Or, as `workload=flush`, a thread on
//! each CPU that does nothing but let a page go.

mod figures;
mod probe;
mod run;
mod workload;

use crate::param::{ParamSpec, Params, Unit};
use crate::policies;
use crate::shipped::{Experiment, Shipped};
use crate::study::{MetricSpec, RunContext, SeedResult, StudyError};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::page_alloc::PcpPolicy;
use mmscale_mm::smp::CallPolicy;
use mmscale_mm::space::ExitPolicy;
use mmscale_mm::upkeep::TickPolicy;
use serde::Deserialize;
use std::sync::LazyLock;

/// The study, for the registry.
pub static IPI: LazyLock<Ipi> = LazyLock::new(|| Ipi::of_file(FILE));

const FILE: &str = include_str!("../../../../studies/ipi/study.toml");

/// The study.
pub type Ipi = Shipped<CrossCalls>;

/// What the study does.
#[derive(Debug)]
pub struct CrossCalls;

/// What an arm chooses.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct IpiArm {
    /// How CPUs call one another.
    #[serde(deserialize_with = "policies::calls")]
    calls: CallPolicy,
    #[serde(deserialize_with = "policies::tick")]
    tick: TickPolicy,
    #[serde(deserialize_with = "policies::lru")]
    lru: LruPolicy,
    /// How address spaces end.
    #[serde(deserialize_with = "policies::exit")]
    exit: ExitPolicy,
    #[serde(deserialize_with = "policies::caches")]
    caches: PcpPolicy,
}

impl Experiment for CrossCalls {
    type Arm = IpiArm;
    const CPUS: usize = 16;
    const METRICS: &'static [MetricSpec] = figures::METRICS;

    fn params() -> Vec<ParamSpec> {
        let duration = "virtual time (on threads: real time)";
        vec![
            ParamSpec::choice(
                "workload",
                "mixed",
                &["flush", "mixed"],
                "four CPUs change memory and the others poll; or all CPUs flush",
            ),
            ParamSpec::real(
                "window_s",
                Unit::Seconds,
                0.1,
                [0.001, 3600.0],
                "length of a window, of which each CPU's longest section counts",
            ),
            ParamSpec::count("windows", Unit::One, 100, [1, 100_000], "windows of a run"),
            ParamSpec::switch("noise", true, "the profile's stolen time and handlers (sim)"),
            ParamSpec::real(
                "tail",
                Unit::One,
                1.0,
                [0.01, 100.0],
                "stolen times of the profile times this (sim)",
            ),
            ParamSpec::switch(
                "copies",
                false,
                "working CPUs also read pages of zeros, which are copied when they are written to",
            ),
            ParamSpec::count(
                "op_gap_us",
                Unit::One,
                1000,
                [1, 10_000_000],
                "from op to op of a working CPU, in us on average",
            ),
            ParamSpec::count(
                "wake_gap_us",
                Unit::One,
                5000,
                [10, 10_000_000],
                "from wake-up to wake-up of a CPU's most urgent task, in us on average",
            ),
            ParamSpec::real("flush_ms", Unit::Ms, 5.0, [0.01, 600_000.0], duration),
        ]
    }
    fn remarks(params: &Params) -> Vec<String> {
        if params.choice("workload") == "flush" {
            let ms = params.real("flush_ms");
            return vec![format!(
                "A thread on every CPU writes to a page of its own and lets it go \
                 (MADV_DONTNEED) for {ms} ms; call_mean_ns is the call alone."
            )];
        }
        let (window_s, windows) = (params.real("window_s"), params.count("windows"));
        let times = 30.0 / window_s;
        vec![
            format!(
                "{windows} windows of {window_s} s; disturbances come {times:.0} times as often \
                 as in the profile, so that each window has as many as one of 30 s. Ordinary \
                 sections are not scaled: a longer window has more of them, and a longer longest."
            ),
            "p50 and p99 are of the CPU that has the largest: of its windows' longest sections, \
             of its watchman's wake-ups. A section is preemption off, interrupts off or an \
             interrupt. Stolen time counts where it falls into one."
                .to_owned(),
        ]
    }
    fn run(ctx: &RunContext, arm: &IpiArm, seed: u64) -> Result<SeedResult, StudyError> {
        run::run(ctx, *arm, seed)
    }
}
