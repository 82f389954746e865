//! Tests of executing a plan: documents, failures, interruptions.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::fake::{self, single};
use mmscale_document::{Build, Document, Target, Value};
use mmscale_harness::{
    Interrupt, Origin, Plan, ProgressSink, Request, RunError, RunEvent, execute, execute_each, plan,
};

/// Returns a request for the fake study with five seeds.
fn request() -> Request {
    Request { seeds: Some(5), ..fake::request() }
}

/// Records events, and can request a stop after a number of runs.
struct Watcher {
    events: Mutex<Vec<RunEvent>>,
    stop_after: usize,
    flag: Arc<AtomicBool>,
}

impl ProgressSink for Watcher {
    fn event(&self, event: RunEvent) {
        let mut events = self.events.lock().unwrap();
        events.push(event);
        let finished = events.iter().filter(|e| matches!(e, RunEvent::Finished { .. })).count();
        if finished >= self.stop_after {
            self.flag.store(true, Ordering::Relaxed);
        }
    }
}

fn watch(request: &Request, stop_after: usize) -> (Result<Document, RunError>, Vec<RunEvent>) {
    let flag = Arc::new(AtomicBool::new(false));
    let watcher =
        Arc::new(Watcher { events: Mutex::new(vec![]), stop_after, flag: Arc::clone(&flag) });
    let sink: Arc<dyn ProgressSink> = Arc::<Watcher>::clone(&watcher);
    let result = execute(&single(request), &Interrupt::new(flag), &sink);
    let events = std::mem::take(&mut *watcher.events.lock().unwrap());
    (result, events)
}

fn run(request: &Request) -> Result<Document, RunError> {
    watch(request, usize::MAX).0
}

#[test]
fn every_arm_meets_every_seed() {
    let document = run(&request()).unwrap();
    assert_eq!(document.schema, "mmscale/run/3");
    let [stock, better] = &document.arms[..] else { panic!("two arms") };
    assert_eq!((stock.arm.as_str(), better.arm.as_str()), ("stock", "better"));
    let values = [7_u64, 14, 21, 28, 35].map(|n| Some(Value::Count(n)));
    assert_eq!(stock.metrics["waits"].values, values);
    assert_eq!(better.metrics["waits"].mean, 42.0);
    assert_eq!(better.locks[0].contentions, 14 + 28 + 42 + 56 + 70);
    assert_eq!(stock.per_cpu["work"].values[..3], [0.0, 3.0, 6.0]);
    assert_eq!(stock.histograms["wait_ns"].buckets.len(), 5);
    assert_eq!(stock.spans.iter().map(|s| s.seed).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(stock.host_metrics["host_ns_per_event"], 3.0);
}

#[test]
fn a_seed_without_a_value_keeps_its_place() {
    let document = run(&request()).unwrap();
    let metric = &document.arms[0].metrics["odd_wait_ns"];
    let some = |n| Some(Value::Count(n));
    assert_eq!(metric.values, [some(1), None, some(3), None, some(5)]);
    assert_eq!(metric.mean, 3.0);
    let even = run(&Request { first_seed: 2, seeds: Some(1), ..request() }).unwrap();
    assert!(!even.arms[0].metrics.contains_key("odd_wait_ns"));
    assert_eq!(even.arms[0].metrics["waits"].ci95, None);
}

#[test]
fn the_fingerprint_is_of_results_and_not_of_names() {
    let first = run(&request()).unwrap();
    assert_eq!(run(&request()).unwrap(), first);
    let renamed = run(&Request { studies: vec!["other".into()], ..request() }).unwrap();
    assert_eq!(renamed.arms[0].arm, "posted");
    assert_eq!(renamed.fingerprint, first.fingerprint);
    let other = run(&Request { first_seed: 2, ..request() }).unwrap();
    assert_ne!(other.fingerprint, first.fingerprint);
    let build = Build::new("mmscale", "0.1.0", "9ccc9e473612+3fa2b1c0d9e8");
    let origin = Origin { build, program: None, command: vec!["elsewhere".into()] };
    let elsewhere = run(&Request { origin: origin.clone(), ..request() }).unwrap();
    assert_eq!((&elsewhere.build, &elsewhere.command), (&origin.build, &origin.command));
    assert_eq!(elsewhere.fingerprint, first.fingerprint);
}

#[test]
fn real_machines_run_one_at_a_time_and_the_arms_take_turns() {
    let (_, events) = watch(&Request { on: Some(Target::Threads), ..request() }, usize::MAX);
    let mut arms = vec![];
    for run in events.chunks(3) {
        let [RunEvent::Started { run: begun, arm, .. }, _, RunEvent::Finished { run: ended, .. }] =
            run
        else {
            panic!("runs overlap: {run:?}")
        };
        assert_eq!(begun, ended);
        arms.push(arm.0);
    }
    assert_eq!(arms, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn an_interruption_says_what_was_done() {
    let (result, _) = watch(&Request { on: Some(Target::Threads), ..request() }, 3);
    let message = result.unwrap_err().to_string();
    assert_eq!(message, "interrupted after 3 of 10 runs of `fake`; no result was written");
}

#[test]
fn a_failed_run_is_named() {
    let seed = |first_seed| Request { first_seed, seeds: Some(1), ..request() };
    let message = run(&seed(666)).unwrap_err().to_string();
    assert!(message.starts_with("study `fake`, arm `"), "{message}");
    assert!(message.contains("seed 666 on sim: a checker found errors"), "{message}");
    let all = "frame 5 is free twice (the other run failed too)";
    assert!(message.ends_with(all), "{message}");
    let message = run(&seed(668)).unwrap_err().to_string();
    assert!(message.contains("metric share is Real(NaN)"), "{message}");
}

#[test]
fn a_panic_is_a_failed_run() {
    let message = run(&Request { first_seed: 667, seeds: Some(1), ..request() }).unwrap_err();
    assert!(message.to_string().contains("panic: planted"), "{message}");
}

#[test]
fn a_run_that_fails_takes_no_other_with_it() {
    let document = run(&Request { first_seed: 664, seeds: Some(5), ..request() }).unwrap();
    for arm in &document.arms {
        assert_eq!(arm.seeds, [664, 665]);
        assert_eq!(arm.metrics["waits"].values.len(), 2);
        assert_eq!(arm.spans.iter().map(|s| s.seed).collect::<Vec<_>>(), arm.seeds);
    }
    let failed: Vec<_> = document.failures.iter().map(|f| (f.arm.as_str(), f.seed)).collect();
    let seeds = [666, 667, 668];
    assert_eq!(failed, seeds.map(|seed| [("stock", seed), ("better", seed)]).concat());
    assert!(document.failures[2].why.contains("planted"), "{:?}", document.failures[2]);
    // The remaining results are those that the same seeds give alone.
    let alone = run(&Request { first_seed: 664, seeds: Some(2), ..request() }).unwrap();
    assert_eq!(document.fingerprint, alone.fingerprint);
    assert_eq!(document.arms, alone.arms);
}

/// If the first seed of an arm is hopeless, the arm has no other runs, however many ran at the same
/// time. That of another seed is a failed run.
#[test]
fn an_arm_that_is_hopeless_is_given_up() {
    let (result, events) = watch(&Request { first_seed: 670, ..request() }, usize::MAX);
    let document = result.unwrap();
    let [stock, better] = &document.arms[..] else { panic!("two arms") };
    assert_eq!((&stock.seeds[..], &better.seeds[..]), (&[670, 671, 672, 673, 674][..], &[][..]));
    let failed: Vec<_> = document.failures.iter().map(|of| (&*of.arm, of.seed, &*of.why)).collect();
    let [("better", 670, why)] = failed[..] else { panic!("{failed:?}") };
    assert!(why.starts_with("none can end (this holds for every seed"), "{why}");
    let count = |is: fn(&RunEvent) -> bool| events.iter().filter(|event| is(event)).count();
    let ended = count(|event| matches!(event, RunEvent::Finished { .. } | RunEvent::Failed { .. }));
    assert_eq!(ended, 10, "each run has an end");
    assert!(count(|event| matches!(event, RunEvent::Started { .. })) < 10, "some did not run");
    // With one worker too.
    let alone = run(&Request { on: Some(Target::Threads), first_seed: 670, ..request() }).unwrap();
    assert_eq!((&alone.arms[0].seeds, &alone.arms[1].seeds), (&stock.seeds, &better.seeds));
    assert_eq!(alone.failures, document.failures);

    let later = run(&Request { first_seed: 671, ..request() }).unwrap();
    assert_eq!(later.arms[1].seeds, [671, 673, 674, 675]);
    assert_eq!(later.failures.len(), 1);
}

/// A plan, and its event or, without one, its result.
type Told = (usize, Option<RunEvent>);

struct Teller {
    place: usize,
    told: Arc<Mutex<Vec<Told>>>,
}

impl ProgressSink for Teller {
    fn event(&self, event: RunEvent) {
        self.told.lock().unwrap().push((self.place, Some(event)));
    }
}

/// Returns plans of both fake studies.
fn both(request: Request) -> Vec<Plan> {
    let studies = vec!["fake".into(), "other".into()];
    plan(&fake::registry(), &Request { studies, ..request }).unwrap()
}

/// Executes plans; returns their results, and all events and results in their order.
fn run_each(plans: &[Plan]) -> (Vec<Result<Document, RunError>>, Vec<Told>) {
    let told = Arc::new(Mutex::new(vec![]));
    let watch =
        |place| -> Arc<dyn ProgressSink> { Arc::new(Teller { place, told: Arc::clone(&told) }) };
    let mut results = vec![];
    let ended = execute_each(plans, &Interrupt::default(), &watch, |place, result| {
        told.lock().unwrap().push((place, None));
        results.push(result);
        ControlFlow::<()>::Continue(())
    });
    assert!(ended.is_continue());
    let told = std::mem::take(&mut *told.lock().unwrap());
    (results, told)
}

#[test]
fn plans_are_told_of_and_give_their_results_one_after_the_other() {
    let plans = both(request());
    let (results, told) = run_each(&plans);
    let alone = plans.iter().map(|plan| {
        let sink: Arc<dyn ProgressSink> =
            Arc::new(Teller { place: 0, told: Arc::new(Mutex::new(vec![])) });
        execute(plan, &Interrupt::default(), &sink).unwrap()
    });
    assert!(results.into_iter().map(Result::unwrap).eq(alone), "overlap changes no result");
    let end = told.iter().position(|(_, event)| event.is_none()).unwrap();
    for (place, told) in [&told[..=end], &told[end + 1..]].into_iter().enumerate() {
        assert!(told.iter().all(|of| of.0 == place), "{told:?}");
        let finished = |of: &&Told| matches!(of.1, Some(RunEvent::Finished { .. }));
        assert_eq!(told.iter().filter(finished).count(), plans[place].runs());
    }
}

#[test]
fn a_plan_begins_while_the_last_runs_of_the_one_before_are_in_progress() {
    if thread::available_parallelism().map_or(1, usize::from) == 1 {
        return;
    }
    let (results, _) = run_each(&both(Request { first_seed: 669, seeds: Some(1), ..request() }));
    for result in results {
        assert_eq!(result.unwrap().failures, []);
    }
}

/// A receiver of progress that cannot write, for example.
struct Broken;

impl ProgressSink for Broken {
    fn event(&self, event: RunEvent) {
        if let RunEvent::Finished { .. } = event {
            panic!("the receiver is broken");
        }
    }
}

#[test]
fn a_worker_that_panics_ends_the_call_and_gives_no_document() {
    let plans = both(request());
    let mut given = vec![];
    let call = AssertUnwindSafe(|| {
        let watch = |_| -> Arc<dyn ProgressSink> { Arc::new(Broken) };
        execute_each(&plans, &Interrupt::default(), &watch, |_, result| {
            given.push(result.map_err(|why| matches!(why, RunError::Interrupted { .. })));
            ControlFlow::<()>::Continue(())
        })
    });
    assert!(catch_unwind(call).is_err());
    assert!(given.iter().all(|result| *result == Err(true)), "{given:?}");
}

#[test]
fn nothing_runs_on_after_the_caller_has_had_enough() {
    let (plans, interrupt) = (both(request()), Interrupt::default());
    let watch = |_| -> Arc<dyn ProgressSink> {
        Arc::new(Teller { place: 0, told: Arc::new(Mutex::new(vec![])) })
    };
    let ended = execute_each(&plans, &interrupt, &watch, |place, _| ControlFlow::Break(place));
    assert_eq!((ended, interrupt.is_set()), (ControlFlow::Break(0), true));
}
