//! Tests of runs that end at a first look.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use mmscale_document::{Document, Looks, Target, Unsettled};
use mmscale_harness::{
    Arm, ArmId, ArmSpec, Defaults, ErasedWorkload, Interrupt, Length, MetricSpec, ParamSpec, Plan,
    ProgressSink, Registry, Request, RunContext, RunEvent, SeedResult, Settings, Study, StudyError,
    StudyInfo, Unit, execute_each, plan,
};

/// A study whose headline varies with the seed by up to `noise_ppm`, and by `change_ppm` from arm
/// to arm. With seed 13 the last arm fails; with seed 23 it is hopeless, with seed 33 the first one
/// is, and with seed 43 all but the first are.
struct Noisy;

impl ErasedWorkload for Noisy {
    fn run(
        &self,
        ctx: &RunContext,
        arm: ArmId,
        _: &Arm,
        seed: u64,
    ) -> Result<SeedResult, StudyError> {
        if ctx.interrupt.is_set() {
            return Err(StudyError::Interrupted);
        }
        if (arm.0, seed) == (2, 13) {
            return Err(StudyError::Machine("planted".into()));
        }
        if [(2, 23), (0, 33), (1, 43), (2, 43)].contains(&(arm.0, seed)) {
            return Err(StudyError::Hopeless("planted".into()));
        }
        let mut result = SeedResult { fingerprint: seed, ..SeedResult::default() };
        let [noise, change] = ["noise_ppm", "change_ppm"].map(|name| ctx.params.count(name) as f64);
        // Fractions of multiples of the golden ratio are spread evenly.
        let drawn = ((1 + arm.0) as f64 * seed as f64 * 0.618_033_988_75).fract() - 0.5;
        let value = 1e6 * (1.0 + arm.0 as f64 * change / 1e6) * (1.0 + drawn * noise / 1e6);
        result.metric("waits", value);
        result.metric("never", 0_u64);
        Ok(result)
    }
}

fn registry() -> Registry {
    let headline = |name| MetricSpec { headline: true, ..MetricSpec::new(name, "1", "") };
    let study = |name, metrics| {
        let machines = &[Target::Sim, Target::Threads];
        let defaults = Defaults { machines, profile: "arm64-72".to_owned(), cpus: 8, hz: 1000 };
        let params = ["noise_ppm", "change_ppm"]
            .map(|name| ParamSpec::count(name, Unit::One, 0, [0, 10_000_000], ""));
        let info = StudyInfo { metrics, ..StudyInfo::new(name, "", defaults, params.into()) };
        let arms = ["stock", "posted", "phased"].map(|name| ArmSpec::new(name, ""));
        Study::new(info, arms.into(), Noisy)
    };
    let plain = ["waits", "never"].map(|name| MetricSpec::new(name, "1", ""));
    Registry::new([
        study("noisy", ["waits", "never"].map(headline).into()),
        study("untested", plain.into()),
    ])
}

fn request(settings: &[&str]) -> Request {
    let settings = Settings::parse(settings).unwrap();
    Request { look: true, settings, ..Request::of(["noisy"]) }
}

/// Receives the progress of all plans.
struct Watcher(Mutex<Vec<RunEvent>>);

impl ProgressSink for Watcher {
    fn event(&self, event: RunEvent) {
        self.0.lock().unwrap().push(event);
    }
}

fn run_all(plans: &[Plan]) -> (Vec<Document>, Vec<RunEvent>) {
    let watcher = Arc::new(Watcher(Mutex::new(vec![])));
    let watch = |_| -> Arc<dyn ProgressSink> { Arc::<Watcher>::clone(&watcher) };
    let mut documents = vec![];
    let ended = execute_each(plans, &Interrupt::default(), &watch, |_, result| {
        documents.push(result.unwrap());
        ControlFlow::<()>::Continue(())
    });
    assert!(ended.is_continue());
    let events = std::mem::take(&mut *watcher.0.lock().unwrap());
    (documents, events)
}

fn run(request: &Request) -> Document {
    run_all(&plan(&registry(), request).unwrap()).0.remove(0)
}

fn looks(unsettled: &[(&str, &str)]) -> Option<Looks> {
    let unsettled = unsettled
        .iter()
        .map(|(arm, metric)| Unsettled { arm: (*arm).into(), metric: (*metric).into() })
        .collect();
    Some(Looks { first: 3, second: 7, margin_percent: 2.0, unsettled })
}

#[test]
fn clear_changes_end_runs_at_the_first_look() {
    let document = run(&request(&["noise_ppm=1000", "change_ppm=500000"]));
    assert_eq!(document.looks, looks(&[]));
    for arm in &document.arms {
        assert_eq!((&arm.seeds[..], arm.first_look), (&[1, 2, 3][..], true));
    }
    let stated = Request { look: false, seeds: Some(3), ..request(&[]) };
    let stated =
        Request { settings: request(&["noise_ppm=1000", "change_ppm=500000"]).settings, ..stated };
    let stated = run(&stated);
    assert_eq!(stated.fingerprint, document.fingerprint, "the same results");
    assert_eq!((stated.looks, stated.arms[0].first_look), (None, false));
    // A wider interval than the bootstrap's, which is too narrow for three values.
    let width = |document: &Document| {
        let [low, high] = document.arms[0].metrics["waits"].ci95.unwrap();
        high - low
    };
    let stated = run(&Request { look: false, seeds: Some(3), ..request(&["noise_ppm=1000"]) });
    assert!(width(&document) > 5.0 * width(&stated));
}

#[test]
fn changes_that_are_too_small_to_matter_end_runs_too() {
    for settings in [&[][..], &["noise_ppm=500"], &["noise_ppm=100", "change_ppm=3000"]] {
        assert_eq!(run(&request(settings)).looks, looks(&[]), "{settings:?}");
    }
}

#[test]
fn unsettled_headlines_take_every_seed() {
    let settings = ["noise_ppm=100000", "change_ppm=50000"];
    let document = run(&request(&settings));
    assert_eq!(document.looks, looks(&[("posted", "waits"), ("phased", "waits")]));
    let stated = run(&Request { look: false, ..request(&settings) });
    assert_eq!(stated.arms[0].seeds, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((stated.arms, stated.fingerprint), (document.arms, document.fingerprint));
}

#[test]
fn a_single_arm_must_be_known_well_enough() {
    let of = |noise: &str| run(&Request { arms: vec!["stock".into()], ..request(&[noise]) });
    assert_eq!(of("noise_ppm=1000").looks, looks(&[]));
    assert_eq!(of("noise_ppm=50000").looks, looks(&[("stock", "waits")]));
}

#[test]
fn a_run_that_failed_leaves_its_arm_unsettled() {
    let settings = ["noise_ppm=1000", "change_ppm=500000"];
    let document = run(&Request { first_seed: 12, ..request(&settings) });
    assert_eq!(document.looks, looks(&[("phased", "waits"), ("phased", "never")]));
    assert_eq!(document.arms[2].seeds, [12, 14, 15, 16, 17, 18]);
}

/// An arm without results has nothing to settle, and gets no runs after the look either.
#[test]
fn a_hopeless_arm_is_not_open() {
    let of = |settings: &[&str]| run(&Request { first_seed: 23, ..request(settings) });
    let settled = of(&["noise_ppm=1000", "change_ppm=500000"]);
    assert_eq!(settled.looks, looks(&[]));
    let open = of(&["noise_ppm=100000", "change_ppm=50000"]);
    assert_eq!(open.looks, looks(&[("posted", "waits")]));
    for (document, seeds) in [(settled, 3), (open, 7)] {
        let counts: Vec<usize> = document.arms.iter().map(|arm| arm.seeds.len()).collect();
        assert_eq!((&counts[..], document.failures.len()), (&[seeds, seeds, 0][..], 1));
    }
}

/// Without results of the first arm, or of all others, there are no changes.
#[test]
fn arms_without_one_to_compare_with_must_be_known_well_enough() {
    let of = |seed, noise: &str| run(&Request { first_seed: seed, ..request(&[noise]) });
    for (seed, unknown, runs) in
        [(33, &["posted", "phased"][..], [0, 7, 7]), (43, &["stock"], [7, 0, 0])]
    {
        assert_eq!(of(seed, "noise_ppm=1000").looks, looks(&[]));
        let open = of(seed, "noise_ppm=50000");
        let unknown: Vec<_> = unknown.iter().map(|&arm| (arm, "waits")).collect();
        assert_eq!(open.looks, looks(&unknown));
        let counts: Vec<usize> = open.arms.iter().map(|arm| arm.seeds.len()).collect();
        assert_eq!(counts, runs);
    }
}

/// The decision of one plan does not depend on others that run at the same time.
#[test]
fn plans_look_at_their_own_runs() {
    let plans: Vec<Plan> = ["noise_ppm=100000", "noise_ppm=1000", "noise_ppm=200000"]
        .iter()
        .flat_map(|noise| plan(&registry(), &request(&[noise, "change_ppm=90000"])).unwrap())
        .collect();
    let (together, events) = run_all(&plans);
    let alone = plans.iter().map(|plan| run_all(std::slice::from_ref(plan)).0.remove(0));
    assert!(together.iter().cloned().eq(alone));
    let decided = events.iter().filter_map(|event| match event {
        RunEvent::Decided { runs } => Some(*runs),
        _ => None,
    });
    let mut decided: Vec<usize> = decided.collect();
    decided.sort_unstable();
    assert_eq!(decided, [9, 21, 21]);
    let finished = events.iter().filter(|event| matches!(event, RunEvent::Finished { .. })).count();
    assert_eq!(finished, 9 + 21 + 21);
}

#[test]
fn without_headlines_or_with_a_stated_number_there_is_no_look() {
    let untested = Request { studies: vec!["untested".into()], ..request(&["noise_ppm=100"]) };
    let document = run(&untested);
    assert_eq!((document.arms[0].seeds.len(), document.looks), (7, None));
    let quick = run(&Request { length: Length::Quick, ..request(&["noise_ppm=100000"]) });
    assert_eq!(quick.arms[0].seeds.len(), 7, "a look replaces the seeds of a quick run");
    let threads = Request { on: Some(Target::Threads), ..request(&[]) };
    let why = plan(&registry(), &threads).unwrap_err().to_string();
    assert!(why.contains("--seeds auto") && why.contains("give the number"), "{why}");
}
