//! Tests of the harness with a study that uses one page.

use crate::shipped::{quick, try_run};
use mmscale_document::{Document, Target};
use mmscale_harness::{
    Checks, Env, Measured, Metric, Missing, Needs, Part, Phases, Registry, Request, Run, Source,
    StudyError, Unit, Verdict, Workload, metric, params, tally, value,
};
use mmscale_system::{MapSpec, System};

/// Maps a page on each CPU and writes to it.
#[derive(Clone, Debug)]
struct Tiny;

params! {
    /// Simulated problems.
    struct Params {
        damage: count(Unit::Pages, 0, [0, 100]), "damaged pages that each program reports";
        good_from: count(Unit::One, 0, [0, 100]), "number of the first attempt that can be used";
    }
}

tally! {
    /// Counters of the programs.
    struct Tally {
        /// Pages.
        pages,
        /// Damaged pages.
        damaged,
    }
}

#[derive(Clone, Debug)]
struct Plan {
    damage: u64,
}

fn twice(seen: &mmscale_harness::Seen<'_, Tiny>) -> Measured {
    value(seen.second.ok_or(Missing::Nothing)?.tally.pages)
}

impl Workload for Tiny {
    const FILE: Source = Source::compiled(
        "tiny",
        "name = \"tiny\"\nsummary = \"one page\"\nprofile = \"x86-2\"\n\
         [[arm]]\nname = \"stock\"\nhelp = \"as it is\"\n",
    );
    const METRICS: &'static [Metric<Self>] = &[
        metric("pages", "pages", "pages of all programs", |seen| value(seen.tally.pages)),
        metric("pages_on_one_cpu", "pages", "pages of the second run", twice),
        metric("live_wall_ns", "ns", "how long it took (live)", |seen| value(seen.live()?.wall_ns)),
        metric("mean_of_none", "1", "the mean of no wait", |_| value(f64::NAN)),
        metric("attempts", "1", "attempts of the run", |seen| {
            value(u64::from(seen.env.attempt) + 1)
        }),
    ];
    const ATTEMPTS: u32 = 3;
    type Params = Params;
    type Plan = Plan;
    type Tally = Tally;
    type Inside = ();
    type Meter = ();

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        Ok(Plan { damage: env.params.damage })
    }
    fn phases(_: &Plan) -> Phases {
        Phases::whole(1_000_000)
    }
    fn run<S: System>(run: &Run<Self>, system: &S) {
        for _ in 0..system.cpus() {
            let at = system.mmap(MapSpec::new(1)).expect("there is memory");
            system.write(at, 1).expect("there is memory");
            run.tally.change(|sum| *sum += Tally { pages: 1, damaged: run.plan.damage });
        }
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn verdict(seen: &mmscale_harness::Seen<'_, Self>) -> Verdict {
        let good = u64::from(seen.env.attempt) >= seen.env.params.good_from;
        if good || seen.env.part == Part::Second {
            Verdict::Good
        } else {
            Verdict::Useless("the run cannot be used: repeat it".to_owned())
        }
    }
    fn needs(_: &Env<Self>, _: &Plan) -> Needs {
        Needs { processes: 1, pages: 2 }
    }
    fn second(env: &Env<Self>) -> Result<Option<Env<Self>>, StudyError> {
        env.second_on_one_cpu().map(Some)
    }
}

fn run(on: Target, settings: &[&str]) -> Result<Document, String> {
    let registry = Registry::default().with::<Tiny>();
    let request = Request { on: Some(on), ..quick("tiny", 1, Checks::Off, settings) };
    try_run(&registry, &request).map(|mut documents| documents.remove(0))
}

fn figure(document: &Document, name: &str) -> f64 {
    document.arms[0].metrics[name].mean
}

#[test]
fn damaged_pages_fail_the_run() {
    assert!(run(Target::Sim, &["cpus=2"]).is_ok());
    let why = run(Target::Sim, &["cpus=2", "damage=3"]).unwrap_err();
    assert!(
        why.contains("6 pages did not contain the values that their program had written"),
        "{why}"
    );
}

#[test]
fn the_second_run_of_a_seed_is_there_to_compare_with_and_in_the_fingerprint() {
    let two = run(Target::Sim, &["cpus=2"]).unwrap();
    assert_eq!((figure(&two, "pages"), figure(&two, "pages_on_one_cpu")), (2.0, 1.0));
    assert_eq!(run(Target::Sim, &["cpus=2"]).unwrap().fingerprint, two.fingerprint);
}

/// A metric that vanished without a reason would be a silently wrong result.
#[test]
fn each_metric_is_shown_or_left_out_with_what_it_needs() {
    for on in [Target::Sim, Target::Threads] {
        let document = run(on, &["cpus=2"]).unwrap();
        for metric in Tiny::METRICS {
            let shown = document.arms[0].metrics.contains_key(metric.spec.name);
            assert!(shown != document.left_out.contains_key(metric.spec.name), "{:?}", metric.spec);
        }
        assert_eq!(document.left_out["live_wall_ns"], "the live kernel (--on live)");
        assert!(document.left_out["mean_of_none"].starts_with("events to measure"));
    }
}

/// A real computer may be busy; a simulated machine would give the same result again.
#[test]
fn a_run_that_shows_nothing_is_tried_again_on_real_machines_alone() {
    assert_eq!(figure(&run(Target::Threads, &["cpus=2"]).unwrap(), "attempts"), 1.0);
    let third = run(Target::Threads, &["cpus=2", "good_from=2"]).unwrap();
    assert_eq!(figure(&third, "attempts"), 3.0);
    for (on, setting) in [(Target::Threads, "good_from=3"), (Target::Sim, "good_from=1")] {
        let why = run(on, &["cpus=2", setting]).unwrap_err();
        assert!(why.contains("the run cannot be used"), "{on}: {why}");
    }
}
