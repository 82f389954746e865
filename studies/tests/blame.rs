//! Tests of blame and of what-if analyses on shipped studies.

use std::collections::BTreeMap;
use std::sync::Arc;

use mmscale_arch::LockClass;
use mmscale_document::{Document, Doing, Target, WhatIf};
use mmscale_harness::{
    CallOrRun, Checks, Interrupt, Plan, ProgressSink, Request, RunEvent, Scalable, Step,
    WhatIfRequest, hold_scale, plan, whatif,
};

use crate::shipped::{arm, quick, run, try_run};

/// Churn on some CPUs, all of whose waits are for the LRU lock.
fn churn(cpus: usize) -> Request {
    let cpus = format!("cpus={cpus}");
    let settings = ["madvise=none", "duration_ms=1", &cpus];
    Request { arms: vec!["stock".into()], ..quick("churn", 1, Checks::Off, &settings) }
}

/// Waits by lock class and function, in ns.
type Waits = BTreeMap<(String, String), u64>;

fn waits(document: &Document) -> [Waits; 2] {
    let arm = arm(document, "stock");
    let mut blamed = Waits::new();
    for row in &arm.blame {
        *blamed.entry((row.class.clone(), row.waiter.clone())).or_default() += row.wait_total_ns;
    }
    let locks = arm.locks.iter().filter(|lock| lock.wait_total_ns > 0);
    let key = |class: &str, site: &str| (class.to_owned(), site.to_owned());
    [locks.map(|lock| (key(&lock.class, &lock.site), lock.wait_total_ns)).collect(), blamed]
}

#[test]
fn blame_adds_up_to_the_waits_of_a_study_and_changes_no_result() {
    let with = run(&Request { blame: true, ..churn(64) });
    let without = run(&churn(64));
    assert_eq!(with.fingerprint, without.fingerprint);
    assert!(arm(&without, "stock").blame.is_empty());
    let [locks, blamed] = waits(&with);
    assert!(locks.values().sum::<u64>() > 1_000_000, "{locks:?}");
    assert_eq!(locks.keys().collect::<Vec<_>>(), blamed.keys().collect::<Vec<_>>());
    for (key, &ns) in &locks {
        // Each row of both is cut to whole ns.
        let rows = arm(&with, "stock").blame.len() as u64;
        assert!(ns.abs_diff(blamed[key]) <= rows + 64, "{key:?}: {ns} {}", blamed[key]);
    }
    let holders = &arm(&with, "stock").blame;
    let holds = |func: &str| {
        holders.iter().any(|row| row.class == "lruvec" && row.holder.iter().any(|at| at == func))
    };
    assert!(holds("folio_batch_move_lru") && holds("release_pages"));
    assert!(holders.iter().any(|row| row.doing == Doing::Handover && row.holder.is_empty()));
}

struct Silent;

impl ProgressSink for Silent {
    fn event(&self, _: RunEvent) {}
}

fn analyse(request: &Request, parts: Vec<Scalable>) -> Result<WhatIf, CallOrRun> {
    let plan = plan(mmscale_studies::all(), request).unwrap().remove(0);
    let request = WhatIfRequest { plan: &plan, metrics: vec!["ops_per_s"], parts };
    let watch = |_: &Plan, _: &str, _: Step| Arc::new(Silent) as Arc<dyn ProgressSink>;
    whatif(&request, &Interrupt::default(), &watch)
}

#[test]
fn the_lock_that_limits_gains_most_and_then_another_thing_limits() {
    let result = analyse(&churn(64), Vec::new()).unwrap();
    assert_eq!(result.limits[0].class, "lruvec");
    let what: Vec<&str> = result.scaled.iter().map(|scaled| scaled.what.as_str()).collect();
    assert!(what.contains(&"hold lruvec") && what.ends_with(&["handoff", "lines"]), "{what:?}");
    let lruvec = result.scaled.iter().find(|scaled| scaled.what == "hold lruvec").unwrap();
    let percent: Vec<f64> = lruvec.points.iter().map(|at| at.percent["ops_per_s"]).collect();
    assert!(percent[0] > percent[1] && percent[1] > 0.0 && percent[2] < 0.0, "{percent:?}");
    let handoff = result.scaled.iter().find(|scaled| scaled.what == "handoff").unwrap();
    let [hold, handoff] = [lruvec, handoff].map(|scaled| scaled.slope("ops_per_s").unwrap());
    assert!(handoff < -0.45 && hold < -0.45, "half of a turn is the hold: {hold} {handoff}");
    assert!(hold + handoff < -1.0, "the other half is the handoff: {hold} {handoff}");
    let share = |limits: &[mmscale_document::WaitShare]| {
        limits.iter().find(|limit| limit.class == "lruvec").map_or(0.0, |limit| limit.share)
    };
    assert!(share(&lruvec.points[0].limits) < share(&result.limits));
}

#[test]
fn a_lock_that_is_not_taken_changes_nothing() {
    let parts = vec![Scalable::Hold(LockClass::Rstat), Scalable::parse("buddy_step").unwrap()];
    let result = analyse(&churn(4), parts).unwrap();
    for point in &result.scaled[0].points {
        assert_eq!(point.percent["ops_per_s"], 0.0);
    }
}

#[test]
fn only_simulated_times_can_be_scaled_and_names_are_checked() {
    let request = Request { on: Some(Target::Threads), ..churn(4) };
    let why = analyse(&request, Vec::new()).unwrap_err();
    assert!(why.to_string().contains("--on sim"), "{why}");
    let why = Scalable::parse("lruve").unwrap_err();
    assert!(why.to_string().contains("did you mean `lruvec`"), "{why}");
    let why = Scalable::parse("mmap_lock").unwrap_err();
    assert!(why.to_string().contains("`mmap_lock` is no spin lock"), "{why}");
}

/// A run with scaled holds says so among its parameters: no comparison takes it for another.
#[test]
fn scaled_holds_are_in_the_document_and_reach_the_machine() {
    let scaled = |text: &str, settings: &[&str]| {
        let hold_scale = Some(hold_scale(text).unwrap());
        Request { hold_scale, ..quick("vmstat", 1, Checks::Off, settings) }
    };
    let held = |request: &Request| {
        let document = run(&Request { arms: vec!["stock".into()], ..request.clone() });
        let locks = arm(&document, "stock").locks.iter().filter(|lock| lock.class == "zone");
        (locks.map(|lock| lock.hold_total_ns).sum::<u64>(), document.params)
    };
    let small = ["cpus=4", "duration_s=2", "warm_s=0"];
    let (plain, params) = held(&quick("vmstat", 1, Checks::Off, &small));
    assert!(!params.contains_key("--hold"));
    let (doubled, params) = held(&scaled("zone=2", &small));
    assert_eq!(params["--hold"].to_string(), "zone=2");
    assert!(doubled as f64 > 1.5 * plain as f64, "{doubled} and {plain}");
    // The parameter and the option multiply.
    let six = ["cpus=4", "duration_s=2", "warm_s=0", "hold_scale=6"];
    assert_eq!(held(&scaled("zone=0.5", &six)).0, held(&scaled("zone=3", &small)).0);
    let why = try_run(mmscale_studies::all(), &scaled("lruvec=2", &six)).unwrap_err();
    assert!(why.contains("scale the holds of zone already"), "{why}");
}
