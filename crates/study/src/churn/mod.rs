//! The study `churn`: single pages mapped, populated, touched and unmapped, and the lruvec lock.
//!
//! One seed of one arm is two runs: the machine with all its CPUs gives all figures but
//! `amplification`, for which the same runs on one CPU.

mod figures;
mod probe;
mod run;
mod workload;

use crate::file::StudyFile;
use crate::param::{ParamSpec, Params, Unit};
use crate::study::{
    ArmId, ArmSpec, Defaults, MetricSpec, RunContext, SeedResult, Study, StudyError,
};
use mmscale_mm::lru::LruPolicy;
use mmscale_record::On;
use mmscale_system::Present;
use run::Arm;
use serde::Deserialize;
use std::sync::LazyLock;

/// The study, for the registry.
pub static CHURN: LazyLock<Churn> = LazyLock::new(|| Churn::of_file(FILE));

const FILE: &str = include_str!("../../../../studies/churn/study.toml");

/// What an arm chooses.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Choice {
    lru: LruChoice,
    bind: BindChoice,
}

/// The names of the LRU policies in the study's file.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LruChoice {
    Stock,
    Freeze,
    Lazy,
}

/// Whether an op has its pages moved.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BindChoice {
    Stay,
    Move,
}

impl Choice {
    fn arm(self) -> Arm {
        Arm {
            lru: match self.lru {
                LruChoice::Stock => LruPolicy::Stock,
                LruChoice::Freeze => LruPolicy::Freeze,
                LruChoice::Lazy => LruPolicy::Lazy,
            },
            bind: match self.bind {
                BindChoice::Stay => Present::Stay,
                BindChoice::Move => Present::Move,
            },
        }
    }
}

/// The study.
#[derive(Debug)]
pub struct Churn {
    name: &'static str,
    summary: &'static str,
    profile: &'static str,
    params: &'static [ParamSpec],
    arms: &'static [ArmSpec],
    choices: Vec<Arm>,
}

impl Churn {
    /// The study that a `study.toml` describes. Panics on a file that makes no sense: the shipped
    /// one is part of the program.
    pub fn of_file(text: &str) -> Self {
        let file = StudyFile::<Choice>::parse(text);
        let params = file.params(declared());
        let choices = file.arm.iter().map(|arm| arm.choice.arm()).collect();
        let arms = file.arm.into_iter();
        let arms = arms.map(|arm| ArmSpec { name: arm.name.leak(), help: arm.help.leak() });
        Self {
            name: file.name.leak(),
            summary: file.summary.leak(),
            profile: file.profile.leak(),
            params: params.leak(),
            arms: arms.collect::<Vec<_>>().leak(),
            choices,
        }
    }
}

fn declared() -> Vec<ParamSpec> {
    vec![
        ParamSpec::count("processes_per_cpu", Unit::One, 16, [1, 256], "processes on each CPU"),
        ParamSpec::count("pages", Unit::Pages, 1, [1, 1 << 16], "pages of an op"),
        ParamSpec::switch("populate", true, "ops map with MAP_POPULATE; off: pages are touched"),
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
        ParamSpec::real(
            "cost_scale",
            Unit::One,
            1.0,
            [0.1, 10.0],
            "every cost of the profile times this (sim)",
        ),
        ParamSpec::choice(
            "sched",
            "lazy",
            &["lazy", "naive"],
            "how the simulator orders CPUs; the results are the same",
        ),
        ParamSpec::count(
            "alloc_fail_1024",
            Unit::One,
            0,
            [0, 1024],
            "injected allocation failures, in 1/1024 (sim)",
        ),
    ]
}

impl Study for Churn {
    fn name(&self) -> &'static str {
        self.name
    }
    fn summary(&self) -> &'static str {
        self.summary
    }
    fn params(&self) -> &'static [ParamSpec] {
        self.params
    }
    fn arms(&self) -> &'static [ArmSpec] {
        self.arms
    }
    fn metrics(&self) -> &'static [MetricSpec] {
        figures::METRICS
    }
    fn defaults(&self) -> Defaults {
        Defaults { machines: &[On::Sim, On::Threads], profile: self.profile, cpus: 512, hz: 1000 }
    }
    fn remarks(&self, params: &Params) -> Vec<String> {
        let duration_ms = params.real("duration_ms");
        vec![format!(
            "All processes run ops for {duration_ms} ms; cpu_ns_per_op_alone is from a second run \
             on one CPU, amplification is the ratio."
        )]
    }
    fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError> {
        run::run(ctx, self.choices[arm.0], seed)
    }
}
