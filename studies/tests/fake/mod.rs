//! A study that only computes, for tests of the framework.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mmscale_document::{Histogram, LockRow, PerCpu, Span, Target};

use mmscale_harness::{
    Arm, ArmId, ArmSpec, Defaults, ErasedWorkload, MetricSpec, ParamSpec, Plan, Registry, Request,
    RunContext, SeedResult, Study, StudyError, StudyInfo, Unit, plan,
};

/// Seed 666 fails, 667 panics, 668 returns NaN, and the second arm is hopeless with seeds 670 and
/// 672. With seed 669 the first arm of `fake` waits until a run of `other` has begun.
struct Fake {
    name: &'static str,
}

/// Returns the studies `fake` and `other`.
pub(crate) fn registry() -> Registry {
    let better = ["stock", "better"].map(|name| ArmSpec::new(name, "a possible improvement"));
    let posted = ["posted", "phased"].map(|name| ArmSpec::new(name, ""));
    Registry::new([fake("fake", better.into()), fake("other", posted.into())])
}

fn fake(name: &'static str, arms: Vec<ArmSpec>) -> Study {
    let machines = &[Target::Sim, Target::Threads];
    let defaults = Defaults { machines, profile: "arm64-72".to_owned(), cpus: 72, hz: 1000 };
    let factor = ParamSpec::count("factor", Unit::One, 7, [1, 100], "factor of the multiplication");
    let params = vec![factor.quick_count(3)];
    let metrics = vec![
        MetricSpec::new("waits", "1", ""),
        MetricSpec::new("odd_wait_ns", "ns", ""),
        MetricSpec::new("share", "1", ""),
    ];
    let summary = "the effect of multiplication";
    let info = StudyInfo { metrics, ..StudyInfo::new(name, summary, defaults, params) };
    Study::new(info, arms, Fake { name })
}

impl ErasedWorkload for Fake {
    fn run(
        &self,
        ctx: &RunContext,
        arm: ArmId,
        _choices: &Arm,
        seed: u64,
    ) -> Result<SeedResult, StudyError> {
        if ctx.interrupt.is_set() {
            return Err(StudyError::Interrupted);
        }
        match (self.name, arm.0, seed) {
            ("fake", 0, 669) => wait_for_other()?,
            ("other", _, 669) => OTHER_BEGAN.store(true, Ordering::Relaxed),
            ("fake", 1, 670 | 672) => return Err(StudyError::Hopeless("none can end".into())),
            _ => {}
        }
        let mut result = SeedResult { fingerprint: seed, ..SeedResult::default() };
        let n = seed * ctx.params.count("factor") * (1 + arm.0 as u64);
        result.metric("waits", n);
        result.metric("share", 1.0 / n as f64);
        match seed {
            666 => return Err(StudyError::Check(vec!["frame 5 is free twice".into()])),
            667 => panic!("planted"),
            668 => result.metrics.insert("share", f64::NAN.into()),
            odd if odd % 2 == 1 => result.metrics.insert("odd_wait_ns", odd.into()),
            _ => None,
        };
        let path = vec!["root".into(), "free_pcppages_bulk".into()];
        let row = LockRow { class: "zone".into(), path, contentions: n, ..LockRow::default() };
        result.locks.push(row);
        let values = (0..ctx.cpus).map(|cpu| (cpu as u64 * seed) as f64).collect();
        result.per_cpu.insert("work".into(), PerCpu { unit: "1".into(), values });
        let histogram = Histogram { unit: "ns".into(), buckets: vec![[n, n + 1, 1]] };
        result.histograms.insert("wait_ns".into(), histogram);
        let span = Span { seed: 0, cpu: 1, name: "f".into(), begin_ns: 0, end_ns: n };
        result.spans.push(span);
        result.host_metrics.insert("host_ns_per_event".into(), seed as f64);
        ctx.progress.set(1.0);
        Ok(result)
    }
}

/// Set by a run of `other` with seed 669; it orders no other data.
static OTHER_BEGAN: AtomicBool = AtomicBool::new(false);

fn wait_for_other() -> Result<(), StudyError> {
    let given_up = Instant::now() + Duration::from_secs(60);
    while !OTHER_BEGAN.load(Ordering::Relaxed) {
        if Instant::now() > given_up {
            return Err(StudyError::Machine("no run of `other` began".into()));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns a request for the fake study with all defaults.
pub(crate) fn request() -> Request {
    Request::of(["fake"])
}

/// Returns the only plan of a request.
pub(crate) fn single(request: &Request) -> Plan {
    let mut plans = plan(&registry(), request).unwrap();
    assert_eq!(plans.len(), 1);
    plans.remove(0)
}
