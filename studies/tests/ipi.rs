//! Tests of the study `ipi` with short runs.

use std::sync::LazyLock;

use crate::shipped::{self, mean};
use mmscale_document::{Document, Target};
use mmscale_harness::{ArmId, Checks, Length, Params, Request, Study, plan};

const SHORT: [&str; 2] = ["window_s=0.01", "windows=100"];

fn request(settings: &[&str]) -> Request {
    shipped::request("ipi", settings)
}

fn run(settings: &[&str]) -> Document {
    shipped::run(&request(settings))
}

/// Returns short runs of all arms. With only two seeds, one long steal that no policy can hide may
/// be a third of the waits.
fn short() -> &'static Document {
    static RUNS: LazyLock<Document> =
        LazyLock::new(|| shipped::run(&Request { seeds: Some(6), ..request(&SHORT) }));
    &RUNS
}

fn study() -> Study {
    mmscale_studies::all().find("ipi").expect("it is there")
}

#[test]
fn real_machines_are_not_said_to_be_disturbed_by_a_profile() {
    let text = |on: Target| {
        let params = Params::defaults(study().params_on(on), Length::Full);
        study().remarks(&params, on).join("\n")
    };
    assert!(text(Target::Sim).contains("times as often as in the profile"));
    for text in [Target::Threads, Target::Live].map(text) {
        assert!(!text.contains("profile") && !text.contains("Stolen"), "{text}");
        assert!(text.contains("preemption off cannot be observed"), "{text}");
    }
}

#[test]
fn the_live_kernel_is_stock() {
    let live = |name: &str| {
        let arm = study().arms().iter().position(|arm| arm.name == name).expect("it is an arm");
        study().has_arm(ArmId(arm), Target::Live)
    };
    assert_eq!(["stock", "posted", "requests", "all"].map(live), [true, false, false, false]);
}

/// All CPUs flush at the same time. With `requests` they share interrupts, and sleep for different
/// CPUs: when all slept for the lowest one, its queue's lock made them slower than `stock`.
#[test]
fn flushes_of_all_cpus_are_faster_when_they_share_interrupts() {
    let request = Request {
        arms: vec!["stock".into(), "requests".into()],
        seeds: Some(1),
        ..request(&["workload=flush", "noise=off", "flush_ms=2", "cpus=72"])
    };
    let document = shipped::run(&request);
    let [stock, requests] = &document.arms[..] else { panic!("two arms") };
    let calls_per_s = |arm| mean(arm, "calls_per_s");
    let (before, after) = (calls_per_s(stock), calls_per_s(requests));
    assert!(after > 1.2 * before, "{before} {after}");
}

const WORKERS: [usize; 4] = [0, 3, 8, 11];

#[test]
fn only_stock_locks_others_out_while_a_call_waits() {
    let [stock, others @ ..] = &short().arms[..] else { panic!("four arms") };
    let p99 = |arm| mean(arm, "preempt_off_max_window_p99_ns");
    assert!(p99(stock) > 1e6, "{}", p99(stock));
    let for_calls = |arm| mean(arm, "preempt_off_over_1ms_for_calls");
    assert!(for_calls(stock) > 0.0);
    for arm in others {
        assert_eq!(for_calls(arm), 0.0, "{}", arm.arm);
        assert!(p99(arm) < 0.7 * p99(stock), "{}: {} and {}", arm.arm, p99(arm), p99(stock));
        assert!(mean(arm, "csd_wait_total_ns") > 1e6, "{}: it still waits", arm.arm);
    }
    let [posted, requests, all] = others else { panic!("three arms") };
    assert_eq!(mean(posted, "call_sleeps"), 0.0);
    for arm in [requests, all] {
        assert!(mean(arm, "call_sleeps") > 0.0, "{}", arm.arm);
        let spins = |arm| mean(arm, "csd_wait_cpu_ns");
        let (own, posts) = (spins(arm), spins(posted));
        assert!(2.0 * own < posts, "{}: {own} and {posts}", arm.arm);
        assert!(mean(arm, "call_memory_bytes") < mean(stock, "call_memory_bytes"));
    }
}

#[test]
fn the_cpus_that_poll_are_no_part_of_it() {
    for arm in &short().arms {
        let p99 = &arm.per_cpu["preempt_off_max_window_p99_ns"].values;
        assert_eq!(p99.len(), 16);
        let over = &arm.per_cpu["preempt_off_over_1ms"].values;
        let pollers = over.iter().enumerate().filter(|(cpu, _)| !WORKERS.contains(cpu));
        // Time may be stolen within a section of a polling CPU, but rarely.
        let pollers: f64 = pollers.map(|(_, sections)| sections).sum();
        assert!(pollers <= 1.0, "{}: {pollers} of a run", arm.arm);
        let largest = p99.iter().copied().fold(0.0, f64::max);
        // The metric is a mean over seeds of each seed's worst CPU.
        assert!(mean(arm, "preempt_off_max_window_p99_ns") >= largest);
        assert!(!arm.histograms["preempt_off_ns"].buckets.is_empty());
        let longest = arm.sections.iter().map(|section| section.ns).max().unwrap_or(0);
        assert!(longest as f64 >= mean(arm, "preempt_off_max_ns"), "{}", arm.arm);
    }
    let stock = &short().arms[0];
    let waits = stock.sections.iter().flat_map(|section| &section.waits);
    assert!(waits.into_iter().any(|wait| wait.what.starts_with("cpu")), "a target is named");
}

#[test]
fn without_noise_no_section_is_long_and_a_longer_tail_makes_them_longer() {
    let of = |setting: &str| {
        let settings: Vec<&str> = SHORT.into_iter().chain([setting]).collect();
        let arms = vec!["stock".to_owned()];
        let document = shipped::run(&Request { arms, ..request(&settings) });
        let arm = &document.arms[0];
        (mean(arm, "preempt_off_max_ns"), mean(arm, "preempt_off_over_1ms"))
    };
    let quiet = of("noise=off");
    // A call waits for a CPU that leaves deep idle, which takes 133 us.
    assert!(quiet.0 < 400_000.0 && quiet.1 == 0.0, "{quiet:?}");
    assert!(of("tail=0.3").0 < of("tail=1").0);
}

#[test]
fn a_copy_under_the_lock_of_its_table_locks_others_out_whatever_the_policy() {
    let flushes = |copies: &str| {
        let settings: Vec<&str> = SHORT.into_iter().chain([copies, "noise=off"]).collect();
        let document = run(&settings);
        document.arms.iter().map(|arm| mean(arm, "flushes")).collect::<Vec<_>>()
    };
    for (without, with) in flushes("copies=off").into_iter().zip(flushes("copies=on")) {
        assert!(with > 1.05 * without, "{with} and {without} flushes");
    }
}

#[test]
fn a_flush_takes_longer_the_more_cpus_have_to_hear_of_it() {
    let of = |cpus: &str| {
        let document = run(&["workload=flush", "flush_ms=0.6", "noise=off", cpus]);
        document.arms.iter().map(|arm| mean(arm, "call_mean_ns")).collect::<Vec<_>>()
    };
    for (few, many) in of("cpus=2").into_iter().zip(of("cpus=16")) {
        assert!(few * 1.5 < many, "{few} and {many} ns");
    }
}

#[test]
fn the_queue_phase_of_requests_does_not_grow_with_the_cpus() {
    let arms = vec!["stock".to_owned(), "requests".to_owned()];
    let settings = ["workload=flush", "flush_ms=3", "noise=off", "cpus=96"];
    let document = shipped::run(&Request { arms, ..request(&settings) });
    let longest = |at: usize| mean(&document.arms[at], "preempt_off_queue_phase_max_ns");
    assert!(longest(0) > 20_000.0 && longest(1) < 8_000.0, "{} {}", longest(0), longest(1));
}

#[test]
fn pages_that_reclaim_takes_wait_in_limbo_instead_of_reclaim() {
    let document = run(&["window_s=0.02", "windows=20", "workload=reclaim"]);
    let [stock, posted, requests, all] = &document.arms[..] else { panic!("four arms") };
    for arm in [requests, all] {
        assert!(mean(arm, "frames_in_limbo_max") >= 16.0, "{}", arm.arm);
        assert!(mean(arm, "limbo_age_max_ns") > 1_000.0, "{}", arm.arm);
        let (waited, before) = (mean(arm, "csd_wait_total_ns"), mean(stock, "csd_wait_total_ns"));
        assert!(waited < 0.1 * before, "{}: {waited} ns", arm.arm);
        assert!(mean(arm, "flushes") > 0.8 * mean(stock, "flushes"), "{}", arm.arm);
    }
    assert_eq!([stock, posted].map(|arm| mean(arm, "frames_in_limbo_max")), [0.0; 2]);
}

#[test]
fn the_same_seed_gives_the_same_fingerprint_under_either_policy() {
    let with = |sched: &str| {
        let settings = ["window_s=0.01", "windows=5", "cpus=6", sched];
        shipped::run(&Request { checks: Checks::Off, ..request(&settings) }).fingerprint
    };
    assert_eq!(with("sched=lazy"), with("sched=naive"));
}

#[test]
fn what_makes_no_sense_is_refused_with_a_way_out() {
    let refusal = |setting: &str| {
        let refused = plan(mmscale_studies::all(), &request(&[setting]));
        refused.expect_err("it makes no sense").to_string()
    };
    let cases = [
        ("workload=flsh", "did you mean `flush`?"),
        ("windows=0", "0 is outside its range, 1 to 100000"),
        ("window_s=0", "0 is outside its range"),
        ("tail=-1", "is outside its range, 0.01 to 100"),
        ("noise=some", "allowed: on or off"),
        ("tial=1", "did you mean `tail`?"),
    ];
    for (setting, expected) in cases {
        let message = refusal(setting);
        assert!(message.contains(expected), "`{message}` does not say `{expected}`");
    }
}

#[test]
fn threads_that_end_make_all_cpus_forget_their_stacks() {
    let document = run(&["window_s=0.01", "windows=20", "workload=spawn", "lazy_mib=1"]);
    for arm in &document.arms {
        let of = |metric| mean(arm, metric);
        // An op creates 32 threads with stacks of 5 pages; a CPU's cache keeps two stacks.
        assert!(of("stacks_given") > 1000.0, "{}: {}", arm.arm, of("stacks_given"));
        let share = of("stack_reuse_share");
        assert!((0.01..0.3).contains(&share), "{}: {share} of the stacks are reused", arm.arm);
        assert!(of("vmap_purges") > 2.0, "{}: {} purges", arm.arm, of("vmap_purges"));
        assert!(of("vmap_lazy_pages_max") > 256.0, "{}", arm.arm);
        // Each purge interrupts every other CPU; other interrupts are rare.
        let sent = of("ipis_sent") / of("vmap_purges");
        assert!((10.0..20.0).contains(&sent), "{}: {sent} interrupts for a purge", arm.arm);
        assert!(of("ops_per_s") > 100.0 && of("call_mean_ns") > 100.0, "{}", arm.arm);
    }
    let [stock, others @ ..] = &document.arms[..] else { panic!("four arms") };
    assert!(mean(stock, "preempt_off_in_call_max_ns") > 1_000.0);
    for arm in others {
        assert_eq!(mean(arm, "preempt_off_in_call_max_ns"), 0.0, "{}", arm.arm);
    }
}

#[test]
fn tasks_have_stacks_of_their_own_where_they_are_what_is_measured() {
    let document = run(&["window_s=0.005", "windows=4", "noise=off"]);
    let left_out = document.arms.iter().all(|arm| !arm.metrics.contains_key("vmap_purges"));
    assert!(left_out, "tasks of the other workloads have no stacks of their own");
}
