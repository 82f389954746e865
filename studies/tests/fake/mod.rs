//! A study that only computes, for tests of the framework.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mmscale_document::{Histogram, LockRow, PerCpu, Span, Target};

use mmscale_harness::{
    ArmId, ArmSpec, Checks, Costs, Defaults, Length, MetricSpec, Origin, ParamSpec, Plan, Registry,
    Request, RunContext, SeedResult, Settings, Shape, Study, StudyError, Unit, plan,
};

/// Arms are configurable. Seed 666 fails, 667 panics, 668 returns NaN. With seed 669 the first arm
/// of `fake` waits until a run of `other` has begun.
pub(crate) struct Fake {
    pub(crate) name: &'static str,
    pub(crate) arms: &'static [ArmSpec],
}

pub(crate) static FAKE: Fake = Fake {
    name: "fake",
    arms: &[
        ArmSpec { name: "stock", help: "the current behaviour" },
        ArmSpec { name: "better", help: "a possible improvement" },
    ],
};

pub(crate) static RENAMED: Fake = Fake {
    name: "other",
    arms: &[ArmSpec { name: "posted", help: "" }, ArmSpec { name: "phased", help: "" }],
};

pub(crate) static REGISTRY: Registry = Registry::new(&[&FAKE, &RENAMED]);

impl Study for Fake {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        "the effect of multiplication"
    }

    fn params(&self) -> &'static [ParamSpec] {
        const PARAMS: &[ParamSpec] =
            &[ParamSpec::count("factor", Unit::One, 7, [1, 100], "factor of the multiplication")
                .quick_count(3)];
        PARAMS
    }

    fn arms(&self) -> &'static [ArmSpec] {
        self.arms
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        const METRICS: &[MetricSpec] = &[
            MetricSpec::new("waits", "1", ""),
            MetricSpec::new("odd_wait_ns", "ns", ""),
            MetricSpec::new("share", "1", ""),
        ];
        METRICS
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            machines: &[Target::Sim, Target::Threads],
            profile: "arm64-72",
            cpus: 72,
            hz: 1000,
        }
    }

    fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError> {
        if ctx.interrupt.is_set() {
            return Err(StudyError::Interrupted);
        }
        match (self.name, arm.0, seed) {
            ("fake", 0, 669) => wait_for_other()?,
            ("other", _, 669) => OTHER_BEGAN.store(true, Ordering::Relaxed),
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
    Request {
        studies: vec!["fake".into()],
        on: None,
        arms: vec![],
        linux: None,
        policies: vec![],
        profile: None,
        settings: Settings::default(),
        seeds: None,
        first_seed: 1,
        length: Length::Full,
        checks: Checks::Off,
        blame: false,
        costs: Costs::default(),
        hold_scale: None,
        shape: Shape::Keep,
        origin: Origin::default(),
    }
}

/// Returns the only plan of a request.
pub(crate) fn single(request: &Request) -> Plan {
    let mut plans = plan(REGISTRY, request).unwrap();
    assert_eq!(plans.len(), 1);
    plans.remove(0)
}
