//! The study `vmstat`: the per-CPU upkeep tick, pcp decay and zone->lock.
//!
//! One seed of one arm is two runs of the same machine. The first runs the workload for
//! `duration_s` and gives all figures but one. The second runs one burst on each of eight
//! CPUs, which then only compute, for at most `decay_s`; the others are idle. It gives
//! `high_decay_ns`.

mod figures;
mod metrics;
mod probe;
mod run;
mod workload;

use crate::file::StudyFile;
use crate::param::{ParamSpec, Params, Unit};
use crate::study::{
    ArmId, ArmSpec, Defaults, MetricSpec, RunContext, SeedResult, Study, StudyError,
};
use mmscale_mm::upkeep::TickPolicy;
use mmscale_record::On;
use serde::Deserialize;
use std::sync::LazyLock;

/// The study, for the registry.
pub static VMSTAT: LazyLock<Vmstat> = LazyLock::new(|| Vmstat::of_file(FILE));

const FILE: &str = include_str!("../../../../studies/vmstat/study.toml");

/// When the figures of page caches have settled, as seen in runs of 10, 20, 40 and 60 s.
const SETTLED_S: f64 = 20.0;

/// What an arm chooses.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Choice {
    tick: Tick,
}

/// The names of the upkeep policies in the study's file.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Tick {
    Stock,
    Posted,
    Phased,
}

impl Tick {
    fn policy(self) -> TickPolicy {
        match self {
            Self::Stock => TickPolicy::Stock,
            Self::Posted => TickPolicy::Posted,
            Self::Phased => TickPolicy::Phased,
        }
    }
}

/// The study.
#[derive(Debug)]
pub struct Vmstat {
    name: &'static str,
    summary: &'static str,
    profile: &'static str,
    params: &'static [ParamSpec],
    arms: &'static [ArmSpec],
    policies: Vec<TickPolicy>,
}

impl Vmstat {
    /// The study that a `study.toml` describes: its name, its arms and their names, its defaults.
    /// Panics on a file that makes no sense: the shipped one is part of the program.
    pub fn of_file(text: &str) -> Self {
        let file = StudyFile::<Choice>::parse(text);
        let params = file.params(declared());
        let policies = file.arm.iter().map(|arm| arm.choice.tick.policy()).collect();
        // The registry wants names that live as long as the program, which these do: one study.
        let arms = file.arm.into_iter();
        let arms = arms.map(|arm| ArmSpec { name: arm.name.leak(), help: arm.help.leak() });
        Self {
            name: file.name.leak(),
            summary: file.summary.leak(),
            profile: file.profile.leak(),
            params: params.leak(),
            arms: arms.collect::<Vec<_>>().leak(),
            policies,
        }
    }
}

fn declared() -> Vec<ParamSpec> {
    vec![
        ParamSpec::count("interval_ms", Unit::Ms, 1000, [10, 60_000], "the tick's interval"),
        ParamSpec::count("burst_pages", Unit::Pages, 4096, [1, 1 << 20], "pages of a burst"),
        ParamSpec::count("period_ms", Unit::Ms, 2000, [1, 600_000], "from burst to burst"),
        ParamSpec::count(
            "duty_percent",
            Unit::One,
            50,
            [0, 100],
            "share of a period in which a burst's pages are held",
        ),
        ParamSpec::real(
            "duration_s",
            Unit::Seconds,
            20.0,
            [0.01, 3600.0],
            "virtual time (on threads: real time) of the workload",
        ),
        ParamSpec::real(
            "hold_scale",
            Unit::One,
            1.0,
            [0.01, 100.0],
            "work done while zone->lock is held takes this many times longer (sim)",
        ),
        ParamSpec::real(
            "cost_scale",
            Unit::One,
            1.0,
            [0.1, 10.0],
            "every cost of the profile times this (sim)",
        ),
        ParamSpec::real(
            "decay_s",
            Unit::Seconds,
            40.0,
            [0.0, 3600.0],
            "longest wait for high_decay_ns, which is left out at 0",
        ),
        ParamSpec::switch("hotplug", false, "CPUs go offline and come back during the run"),
        ParamSpec::choice(
            "requeue",
            "needed",
            &["needed", "always"],
            "whether a tick with nothing to do stops until it is needed",
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

impl Study for Vmstat {
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
        Defaults { machines: &[On::Sim, On::Threads], profile: self.profile, cpus: 72, hz: 1000 }
    }
    fn remarks(&self, params: &Params) -> Vec<String> {
        let (duration_s, decay_s) = (params.real("duration_s"), params.real("decay_s"));
        let mut remark = format!("Each run is {duration_s} s long");
        if decay_s > 0.0 {
            remark += &format!("; high_decay_ns is from a second one of at most {decay_s} s");
        }
        remark.push('.');
        if duration_s < SETTLED_S {
            remark += &format!(
                " Page caches begin empty and need some {SETTLED_S} s to settle: pages returned, \
                 pages held and the waits of all callers are nearer to their long-run values with \
                 --set duration_s={SETTLED_S} or more."
            );
        }
        vec![remark]
    }
    fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError> {
        run::run(ctx, self.policies[arm.0], seed)
    }
}
