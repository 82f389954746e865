//! The command line with a study that only computes, for tests of the command line.

use std::process::ExitCode;
use std::time::Duration;

use mmscale::{Build, main_of};
use mmscale_document::{Better, LockRow, Target};
use mmscale_harness::{
    Arm, ArmId, ArmSpec, Checks, Defaults, ErasedWorkload, MetricSpec, ParamSpec, Params, Registry,
    RunContext, SeedResult, Study, StudyError, StudyInfo, Unit,
};

struct Fake;

/// Returns a study of this name that runs on these machines.
fn fake(name: &str, machines: &'static [Target]) -> Study {
    let defaults = Defaults { machines, profile: "arm64-72".to_owned(), cpus: 72, hz: 1000 };
    let params = vec![
        ParamSpec::count("factor", Unit::One, 7, [1, 100], "factor of the multiplication")
            .quick_count(3),
        ParamSpec::real("pause_s", Unit::Seconds, 0.0, [0.0, 60.0], "duration of a run"),
        ParamSpec::switch("loud", false, "has no effect"),
    ];
    let waits = MetricSpec {
        better: Some(Better::Lower),
        headline: true,
        ..MetricSpec::new("waits", "1", "number of waits")
    };
    let metrics = vec![waits, MetricSpec::new("wait_total_ns", "ns", "total wait")];
    let arms = vec![
        ArmSpec::new("stock", "the current behaviour"),
        ArmSpec::new("posted", "as posted on the mailing list"),
        ArmSpec::new("phased", "a possible improvement"),
    ];
    let summary = "the effect of multiplication on waits";
    let info = StudyInfo { metrics, ..StudyInfo::new(name, summary, defaults, params) };
    Study::new(info, arms, Fake)
}

impl ErasedWorkload for Fake {
    fn remarks(&self, params: &Params, _on: Target) -> Vec<String> {
        vec![format!("Each run lasted {} s.", params.real("pause_s"))]
    }

    fn run(
        &self,
        ctx: &RunContext,
        arm: ArmId,
        _choices: &Arm,
        seed: u64,
    ) -> Result<SeedResult, StudyError> {
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
    // One of the two runs on the live kernel too: the other is refused there.
    let fakes = [
        fake("fake", &[Target::Sim, Target::Threads]),
        fake("other", &[Target::Sim, Target::Threads, Target::Live]),
    ];
    main_of(Registry::new(fakes), build)
}
