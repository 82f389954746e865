//! The command line with a study that only computes, for tests of the command line.

use std::process::ExitCode;
use std::time::Duration;

use mmscale_cli::{Build, main_of};
use mmscale_document::{Better, LockRow, Target};
use mmscale_harness::{
    ArmId, ArmSpec, Checks, Defaults, MetricSpec, ParamSpec, Params, Registry, RunContext,
    SeedResult, Study, StudyError, Unit,
};

struct Fake(&'static str);

impl Study for Fake {
    fn name(&self) -> &'static str {
        self.0
    }

    fn summary(&self) -> &'static str {
        "the effect of multiplication on waits"
    }

    fn params(&self) -> &'static [ParamSpec] {
        const PARAMS: &[ParamSpec] = &[
            ParamSpec::count("factor", Unit::One, 7, [1, 100], "factor of the multiplication")
                .quick_count(3),
            ParamSpec::real("pause_s", Unit::Seconds, 0.0, [0.0, 60.0], "duration of a run"),
            ParamSpec::switch("loud", false, "has no effect"),
        ];
        PARAMS
    }

    fn arms(&self) -> &'static [ArmSpec] {
        &[
            ArmSpec { name: "stock", help: "the current behaviour" },
            ArmSpec { name: "posted", help: "as posted on the mailing list" },
            ArmSpec { name: "phased", help: "a possible improvement" },
        ]
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        const METRICS: &[MetricSpec] = &[
            MetricSpec {
                better: Some(Better::Lower),
                headline: true,
                ..MetricSpec::new("waits", "1", "number of waits")
            },
            MetricSpec::new("wait_total_ns", "ns", "total wait"),
        ];
        METRICS
    }

    fn defaults(&self) -> Defaults {
        // One of the two runs on the live kernel too: the other is refused there.
        let machines: &'static [Target] = match self.0 {
            "other" => &[Target::Sim, Target::Threads, Target::Linux],
            _ => &[Target::Sim, Target::Threads],
        };
        Defaults { machines, profile: "arm64-72", cpus: 72, hz: 1000 }
    }

    fn remarks(&self, params: &Params, _on: Target) -> Vec<String> {
        vec![format!("Each run lasted {} s.", params.real("pause_s"))]
    }

    fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError> {
        let pause = Duration::from_secs_f64(ctx.params.real("pause_s")) / 1000;
        for step in 0..1000 {
            if ctx.interrupt.is_set() && std::env::var_os("FAKE_IS_DEAF").is_none() {
                return Err(StudyError::Interrupted);
            }
            std::thread::sleep(pause);
            ctx.progress.set(f64::from(step) / 1000.0);
        }
        if ctx.checks == Checks::On && seed == 13 {
            return Err(StudyError::Check(vec!["frame 5 is free twice".into()]));
        }
        if ctx.params.count("factor") == 66 {
            return Err(StudyError::Machine("66 is not a valid factor".into()));
        }
        let n = (100 + seed) * ctx.params.count("factor") / (1 + arm.0 as u64);
        let mut result = SeedResult { fingerprint: seed, ..SeedResult::default() };
        result.metric("waits", n);
        result.metric("wait_total_ns", n * 1500);
        let path = vec!["root".into(), "free_pcppages_bulk".into()];
        let (acquisitions, contentions, hold_total_ns) = (10 * n, n, 20_000 * n);
        result.locks.push(LockRow {
            class: "zone".into(),
            sleeps: false,
            path,
            acquisitions,
            contentions,
            wait_total_ns: n * 1500,
            wait_max_ns: 4000,
            hold_total_ns,
            ..LockRow::default()
        });
        Ok(result)
    }
}

fn main() -> ExitCode {
    // A real program obtains this from its build script.
    let build = Build::new("fake", "1.2.3", "0123456789ab+ba9876543210");
    main_of(Registry::new(&[&Fake("fake"), &Fake("other")]), build)
}
