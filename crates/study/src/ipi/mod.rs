//! The study `ipi`: cross-CPU calls, and for how long whoever waits for them locks others out.
//!
//! One seed of one arm is one run of the machine: a service whose threads poll on most CPUs and
//! change its memory on a few, and a watchman on each CPU. Or, as `workload=flush`, a thread on
//! each CPU that does nothing but let a page go. Or, as `workload=reclaim`, the same service, of
//! which the few have pages reclaimed that are in swap already.

mod figures;
mod live;
mod probe;
mod run;
mod spread;
mod workload;

use crate::file::{self, Source};
use crate::param::{ParamSpec, Params, Unit};
use crate::policies::Arm;
use crate::shipped::{Experiment, Shipped};
use crate::study::{MetricSpec, RunContext, SeedResult, StudyError, TooShort};
use mmscale_document::On;

/// The study's file.
pub(crate) const FILE: Source = file::source!("ipi");

/// The study.
pub type Ipi = Shipped<CrossCalls>;

/// What the study does.
#[derive(Debug)]
pub struct CrossCalls;

impl Experiment for CrossCalls {
    const CPUS: usize = 16;
    const METRICS: &'static [MetricSpec] = figures::METRICS;
    const NOT_LIVE: &'static [&'static str] = &["noise", "tail"];

    fn params() -> Vec<ParamSpec> {
        let duration = "virtual time (on threads: real time)";
        vec![
            ParamSpec::choice(
                "workload",
                "mixed",
                &["flush", "mixed", "reclaim"],
                "four CPUs change memory and the others poll; or all CPUs flush; or the four have \
                 clean pages reclaimed",
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
    fn remarks(params: &Params, on: On) -> Vec<String> {
        let mut all = vec![match params.choice("workload") {
            "flush" => format!(
                "A thread on every CPU writes to a page of its own and lets it go \
                 (MADV_DONTNEED) for {} ms; call_mean_ns is the call alone.",
                params.real("flush_ms")
            ),
            _ => windows_of(params, on),
        }];
        all.extend(seen_on(on).map(str::to_owned));
        all
    }
    fn too_short(params: &Params, on: On) -> Vec<TooShort> {
        figures::too_short(params, on)
    }
    fn window_ns(params: &Params) -> Option<u64> {
        let ns = match params.choice("workload") {
            "flush" => params.real("flush_ms") * 1e6,
            _ => params.real("window_s") * 1e9 * params.count("windows") as f64,
        };
        Some(ns as u64)
    }
    fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
        match ctx.on {
            On::Linux => live::run(ctx, seed),
            On::Sim | On::Threads => run::run(ctx, arm, seed),
        }
    }
}

/// How long the run is, and what that means for what disturbs it.
fn windows_of(params: &Params, on: On) -> String {
    let (window_s, windows) = (params.real("window_s"), params.count("windows"));
    let length = format!("{windows} windows of {window_s} s");
    if on != On::Sim {
        return format!(
            "{length}, one after the other. Whatever else this computer does in that time is in \
             the figures."
        );
    }
    if !params.switch("noise") {
        return format!("{length}, and nothing disturbs the CPUs.");
    }
    let times = 30.0 / window_s;
    format!(
        "{length}; disturbances come {times:.0} times as often as in the profile, so that each \
         window has as many as one of 30 s. Ordinary sections are not scaled: a longer window has \
         more of them, and a longer longest."
    )
}

/// What can be seen on a machine, and what cannot.
fn seen_on(on: On) -> Option<&'static str> {
    Some(match on {
        On::Sim => {
            "p50 and p99 are of the CPU that has the largest: of its windows' longest sections, \
             of its watchman's wake-ups. A section is preemption off, interrupts off or an \
             interrupt. Stolen time counts where it falls into one."
        }
        On::Threads => {
            "CPUs are threads of this computer, and interrupts are looked for at certain points: \
             sections without preemption cannot be seen. p50 and p99 of wake-ups are of the CPU \
             that has the largest; calls, waits and interrupts are counted by the memory manager \
             itself."
        }
        On::Linux => {
            "p50 and p99 of wake-ups are of the CPU that has the largest. Sections without \
             preemption cannot be seen without a tracer in each of them; resched_delay, how long a \
             CPU goes on after it is to run another task, stands in for those that somebody waited \
             for. Calls are those of the run's processes, from the wish until the function began \
             (delivery) and while it ran."
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::Length;
    use crate::study::Study;

    fn ipi() -> Ipi {
        Ipi::of_file(FILE).expect("the file is whole")
    }

    fn text(on: On) -> String {
        let ipi = ipi();
        let specs = ipi.params_on(on);
        let params = Params::defaults(specs, Length::Full);
        ipi.remarks(&params, on).join("\n")
    }

    #[test]
    fn real_machines_are_not_said_to_be_disturbed_by_a_profile() {
        assert!(text(On::Sim).contains("times as often as in the profile"));
        for on in [On::Threads, On::Linux] {
            let text = text(on);
            assert!(!text.contains("profile") && !text.contains("Stolen"), "{text}");
            assert!(text.contains("without"), "{text}");
        }
    }

    #[test]
    fn the_live_kernel_is_stock() {
        let ipi = ipi();
        let live = |name: &str| {
            let arm = ipi.arms().iter().position(|arm| arm.name == name).expect("it is an arm");
            ipi.has_arm(crate::study::ArmId(arm), On::Linux)
        };
        assert_eq!(["stock", "posted", "requests", "all"].map(live), [true, false, false, false]);
    }
}
