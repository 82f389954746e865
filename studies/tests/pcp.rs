//! Tests of the study `pcp` on small machines: the lazy against the naive schedule, the checkers,
//! and metrics whose values follow from the workload.

use crate::shipped::{self, arm, mean, quick};
use mmscale_document::Document;
use mmscale_harness::{Checks, PolicyArm, Request};

const WORKLOADS: [&str; 5] = ["build", "purger", "exit", "mixed", "oom-edge"];
const SMALL: [&str; 8] = [
    "cpus=8",
    "memory_gib=1",
    "build_ms=2",
    "edge_ms=4",
    "purger_ms=1",
    "exit_pages=600",
    "mixed_ms=1",
    "mixed_pages=512",
];

/// Runs `pcp` and returns all documents.
fn run(checks: Checks, seeds: u64, settings: &[&str]) -> Result<Vec<Document>, String> {
    shipped::try_run(mmscale_studies::all(), &quick("pcp", seeds, checks, settings))
}

fn one(workload: &str, settings: &[&str]) -> Document {
    let workload = format!("workload={workload}");
    let settings: Vec<&str> =
        SMALL.into_iter().chain([workload.as_str()]).chain(settings.iter().copied()).collect();
    shipped::run(&quick("pcp", 1, Checks::Off, &settings))
}

/// Runs one arm.
fn only(arm: &str, workload: &str, settings: &[&str]) -> Document {
    let workload = format!("workload={workload}");
    let settings: Vec<&str> =
        SMALL.into_iter().chain([workload.as_str()]).chain(settings.iter().copied()).collect();
    let arms = vec![arm.to_owned()];
    shipped::run(&Request { arms, ..quick("pcp", 1, Checks::Off, &settings) })
}

#[test]
fn every_workload_has_a_document_and_the_same_result_under_either_schedule() {
    let with = |sched: &str| {
        let settings: Vec<&str> = SMALL.into_iter().chain([sched]).collect();
        run(Checks::Off, 1, &settings).unwrap_or_else(|why| panic!("{why}"))
    };
    let lazy = with("sched=lazy");
    let names: Vec<String> = lazy.iter().map(|d| d.params["workload"].to_string()).collect();
    assert_eq!(names, WORKLOADS);
    let windows_ns: Vec<_> = lazy.iter().map(|d| d.window_ns).collect();
    let ms = |n: u64| Some(n * 1_000_000);
    assert_eq!(
        windows_ns,
        [ms(2), ms(1), None, ms(1), ms(4)],
        "the end of `exit` is its last page"
    );
    for (lazy, naive) in lazy.iter().zip(with("sched=naive")) {
        let workload = &lazy.params["workload"];
        assert_eq!(lazy.arms[0].metrics, naive.arms[0].metrics, "{workload}");
        assert_eq!(lazy.fingerprint, naive.fingerprint, "{workload}");
    }
}

/// With checkers on, a frame with two owners, a lost frame, or a stale translation fails the run.
#[test]
fn nothing_is_lost_when_allocations_fail() {
    let settings: Vec<&str> = SMALL.into_iter().chain(["alloc_fail_1024=20"]).collect();
    let documents = run(Checks::On, 2, &settings).unwrap_or_else(|why| panic!("{why}"));
    for document in &documents[..4] {
        for arm in &document.arms {
            let failures = mean(arm, "alloc_failures");
            assert!(failures > 0.0, "{}: faults were injected", document.params["workload"]);
        }
    }
}

#[test]
fn pages_come_back_where_the_workload_frees_them() {
    let purger = one("purger", &[]);
    assert!(
        mean(arm(&purger, "stock"), "remote_free_share") > 0.95,
        "one thread frees for all others"
    );
    let exit = one("exit", &[]);
    let share = mean(arm(&exit, "stock"), "remote_free_share");
    assert!((0.7..0.8).contains(&share), "three of four threads' pages: {share}");
    assert_eq!(
        mean(arm(&exit, "stock"), "clear_ns_per_page"),
        0.0,
        "there are no allocations after the fill phase"
    );
    let mixed = one("mixed", &[]);
    assert!(mean(arm(&mixed, "stock"), "remote_free_share") < 0.01, "each frees its own");
    assert!(mean(arm(&mixed, "stock"), "partial_blocks") > 0.0, "long-lived pages are scattered");
}

const COMPILE: [&str; 3] = ["compile_ms=40", "compile_pages=4000", "compile_user_ns=3000"];

/// A build whose memory is full of a page cache: reclaim takes it, so that no allocation fails, and
/// page caches of CPUs stay small.
#[test]
fn compilers_get_the_memory_of_the_page_cache() {
    let compile = one("compile", &COMPILE);
    for arm in &compile.arms {
        let of = |metric| mean(arm, metric);
        assert!(of("sys_ns_per_page") > 500.0, "{}", arm.arm);
        assert_eq!(of("alloc_failures"), 0.0, "{}", arm.arm);
        let reclaimed = arm.locks.iter().any(|row| row.site == "isolate_lru_folios");
        assert!(reclaimed, "{}: memory is full", arm.arm);
    }
    let of = |document: &Document, metric| mean(arm(document, "stock"), metric);
    assert!(of(&compile, "pages_stranded_max") < 32_768.0, "1/8 of all pages");
    let settings: Vec<&str> = COMPILE.into_iter().chain(["compile_cache=off"]).collect();
    let free = one("compile", &settings);
    assert!(free.arms[0].locks.iter().all(|row| row.site != "isolate_lru_folios"));
    assert!(of(&free, "free_order9_blocks") > of(&compile, "free_order9_blocks"));
    assert!(of(&free, "remote_free_share") < 0.01, "no reclaim frees for others");
}

#[test]
fn files_are_read_however_little_each_cpu_reads() {
    let entries = |setting: &str| {
        let settings: Vec<&str> = COMPILE.into_iter().chain([setting]).collect();
        let compile = one("compile", &settings);
        let rows = arm(&compile, "stock").locks.iter();
        let advised = rows.filter(|row| row.class == "pte" && row.site == "do_madvise");
        advised.map(|row| row.acquisitions).sum::<u64>()
    };
    assert_eq!(entries("compile_read_mb_per_s=0"), 0);
    assert!(entries("compile_read_mb_per_s=4") > 0, "a page in 8 ms on each of 8 CPUs");
}

#[test]
fn settings_of_the_allocator_reach_it() {
    let of = |settings: &[&str]| {
        let document = only("stock", "purger", settings);
        let stock = arm(&document, "stock");
        (mean(stock, "zone_lock_acquisitions_per_page"), mean(stock, "pages_stranded_max"))
    };
    let (taken, stranded) = of(&[]);
    assert!(of(&["pcp_batch=7"]).0 > 2.0 * taken, "smaller batches");
    assert!(of(&["pcp_batch_scale_max=0"]).0 > 1.2 * taken, "refills that do not grow");
    assert!(of(&["percpu_pagelist_high_fraction=1000"]).1 < 0.7 * stranded, "smaller caches");
    assert!(of(&["watermark_scale_factor=1000"]).1 > 1.2 * stranded, "a larger least `high`");
    let edge = |setting: &str| {
        mean(arm(&only("stock", "oom-edge", &[setting]), "stock"), "order0_failures")
    };
    let failures = edge("min_free_kbytes=0");
    assert!(edge("min_free_kbytes=16384") > failures, "a reserve that programs may not use");
    for (setting, why) in [
        ("percpu_pagelist_high_fraction=5", "8 or more is allowed"),
        ("min_free_kbytes=1000000", "a quarter of the machine's 1048576 KiB"),
        ("pcp_batch=1025", "0 to 1024"),
        ("pcp_batch=7", "pcp_batch has no effect in arm `blockmap`"),
    ] {
        let said = run(Checks::Off, 1, &["memory_gib=1", setting]).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    let policies = vec![PolicyArm::parse("high=watermark").unwrap()];
    let asked = quick("pcp", 1, Checks::Off, &["pcp_batch_scale_max=3"]);
    let asked = Request { arms: vec!["stock".to_owned()], policies, ..asked };
    let said = shipped::try_run(mmscale_studies::all(), &asked).unwrap_err();
    assert!(said.contains("which has high=watermark: a refill has one batch"), "{said}");
}

#[test]
fn at_the_edge_pages_run_out() {
    let edge = one("oom-edge", &[]);
    let refused = mean(arm(&edge, "stock"), "order0_failures");
    assert!(refused > 0.0 && mean(arm(&edge, "stock"), "alloc_failures") >= refused);
    let share = mean(arm(&edge, "stock"), "order9_success_share");
    assert!((0.0..1.0).contains(&share), "{share}");
}

#[test]
fn what_does_not_fit_is_refused_with_a_way_out() {
    let why =
        run(Checks::Off, 1, &["workload=exit", "memory_gib=1", "exit_pages=9000"]).unwrap_err();
    assert!(why.contains("increase --set memory_gib"), "{why}");
    let why = run(Checks::Off, 1, &["workload=exist"]).unwrap_err();
    assert!(why.contains("did you mean `exit`?"), "{why}");
    assert!(run(Checks::Off, 1, &["edge_free_percent=50"]).unwrap_err().contains("0.01 to 2"));
}

#[test]
fn ranges_go_offline_unless_a_page_of_them_is_in_use() {
    for workload in ["exit", "build"] {
        let document = one(workload, &["offline_mib=2"]);
        for arm in &document.arms {
            let of = |metric| mean(arm, metric);
            assert!(of("offline_tries") >= 1.0, "{workload} {}", arm.arm);
            let share = of("offline_success_share");
            assert!(share > 0.0 && share <= 1.0, "{workload} {}: {share}", arm.arm);
            assert!(of("offline_mean_ns") > 100.0, "{workload} {}", arm.arm);
            assert!(of("offline_max_ns") >= of("offline_mean_ns"), "{workload} {}", arm.arm);
        }
    }
    // Nearly all memory is in use.
    let document = one("oom-edge", &["offline_mib=4"]);
    for arm in &document.arms {
        assert!(mean(arm, "offline_success_share") < 0.5, "{}", arm.arm);
        assert!(mean(arm, "offline_busy_pages") > 400.0, "{}", arm.arm);
    }
    let without = one("purger", &[]);
    assert!(without.arms.iter().all(|arm| !arm.metrics.contains_key("offline_tries")));
}

/// With checkers on, and under both schedules.
#[test]
fn what_goes_offline_comes_back() {
    let with = |checks, sched| {
        let settings = SMALL.into_iter().chain([sched, "offline_mib=4", "workload=build,purger"]);
        let settings: Vec<&str> = settings.collect();
        run(checks, 1, &settings).unwrap_or_else(|why| panic!("{why}"))
    };
    let fingerprints = |documents: Vec<Document>| {
        documents.into_iter().map(|document| document.fingerprint).collect::<Vec<_>>()
    };
    let lazy = fingerprints(with(Checks::On, "sched=lazy"));
    assert_eq!(lazy, fingerprints(with(Checks::On, "sched=naive")));
}
