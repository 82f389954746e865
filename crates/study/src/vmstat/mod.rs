//! The study `vmstat`: the per-CPU upkeep tick, pcp decay and zone->lock.
//!
//! One seed of one arm is two runs of the same machine. The first runs the workload for
//! `duration_s` and gives all figures but one. The second runs one burst on each of eight
//! CPUs, which then only compute, for at most `decay_s`; the others are idle. It gives
//! `high_decay_ns`.

mod figures;
mod live;
mod metrics;
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
pub(crate) const FILE: Source = file::source!("vmstat");

/// When the figures of page caches have settled, as seen in runs of 10, 20, 40 and 60 s.
const SETTLED_S: f64 = 20.0;

/// The study.
pub type Vmstat = Shipped<UpkeepTick>;

/// What the study does.
#[derive(Debug)]
pub struct UpkeepTick;

impl Experiment for UpkeepTick {
    const CPUS: usize = 72;
    const METRICS: &'static [MetricSpec] = figures::METRICS;
    const NOT_LIVE: &'static [&'static str] =
        &["interval_ms", "hold_scale", "hotplug", "requeue", "decay_s"];

    fn params() -> Vec<ParamSpec> {
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
        ]
    }
    fn remarks(params: &Params, on: On) -> Vec<String> {
        let (duration_s, decay_s) = (params.real("duration_s"), params.real("decay_s"));
        let mut remark = format!("Each run is {duration_s} s long");
        if decay_s > 0.0 {
            remark += &format!("; high_decay_ns is from a second one of at most {decay_s} s");
        }
        remark.push('.');
        if on != On::Linux && duration_s < SETTLED_S {
            remark += &format!(
                " Page caches begin empty and need some {SETTLED_S} s to settle: pages returned, \
                 pages held and the waits of all callers are nearer to their long-run values with \
                 --set duration_s={SETTLED_S} or more."
            );
        }
        vec![remark]
    }
    fn too_short(params: &Params, on: On) -> Vec<TooShort> {
        figures::too_short(params, on)
    }
    fn window_ns(params: &Params) -> Option<u64> {
        Some((params.real("duration_s") * 1e9) as u64)
    }
    fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
        match ctx.on {
            On::Linux => live::run(ctx, run::plan(&ctx.params), seed),
            On::Sim | On::Threads => run::run(ctx, arm, seed),
        }
    }
}
