//! Tests of the study `churn` with 16 CPUs.

use crate::shipped::{self, mean};
use mmscale_document::Document;
use mmscale_harness::Request;

/// Runs one process per CPU, so that a window has hundreds of ops of each, with checkers on.
fn run(arms: &[&str], settings: &[&str]) -> Document {
    let common = [
        "cpus=16",
        "processes_per_cpu=1",
        "duration_ms=5",
        "move_processes_per_cpu=1",
        "move_duration_ms=20",
    ];
    let settings: Vec<&str> = common.iter().chain(settings).copied().collect();
    let arms = arms.iter().map(|&arm| arm.to_owned()).collect();
    shipped::run(&Request { arms, seeds: Some(1), ..shipped::request("churn", &settings) })
}

/// As measured on a live kernel: a batch of one folio per page, and two lock acquisitions.
#[test]
fn populate_lists_each_page_by_itself() {
    let document = run(&["stock", "freeze", "lazy"], &["madvise=none"]);
    assert_eq!(document.window_ns, Some(5_000_000), "duration_ms");
    let [stock, freeze, lazy] = &document.arms[..] else { panic!("three arms") };
    for arm in [stock, freeze] {
        assert_eq!(mean(arm, "lru_batch_size_mean"), 1.0, "{}", arm.arm);
        let taken = mean(arm, "lruvec_acquisitions_per_op");
        assert!((1.95..=2.05).contains(&taken), "{}: {taken}", arm.arm);
    }
    assert_eq!(mean(lazy, "lruvec_acquisitions_per_op"), 0.0);
    assert_eq!(mean(lazy, "memory_charged_after_unmap_max_pages"), 0.0);
    // Both threads of each core work, and share it: operations take 1.59 times as long.
    let amplified = mean(lazy, "amplification");
    assert!((1.3..=1.59).contains(&amplified), "{amplified}");
    assert!(mean(stock, "amplification") > amplified);
}

/// Without MAP_POPULATE, batches have 31 folios, of which all but the last are unmapped already.
#[test]
fn touched_pages_fill_batches_and_die_in_them() {
    let document = run(&["stock", "freeze"], &["madvise=none", "populate=off"]);
    for arm in &document.arms {
        assert_eq!(mean(arm, "lru_batch_size_mean"), 31.0, "{}", arm.arm);
        assert!(mean(arm, "lru_batch_dead_mean") > 29.5, "{}", arm.arm);
    }
}

/// MADV_PAGEOUT isolates pages under every policy, with and without swap.
#[test]
fn lazy_pays_for_pageout_without_swap_too() {
    let cost = |advice: &str| {
        let document = run(&["lazy"], &[&format!("madvise={advice}")]);
        let [lazy] = &document.arms[..] else { panic!("one arm") };
        assert_eq!(mean(lazy, "lruvec_acquisitions_per_op"), 0.0);
        mean(lazy, "sys_ns_per_op")
    };
    // `willneed` does nothing here, so its cost is that of the call.
    let (nothing, pageout) = (cost("willneed"), cost("pageout"));
    assert!(pageout > nothing + 50.0, "{pageout} against {nothing}");
}

#[test]
fn beside_others_an_op_is_compared_with_no_other() {
    let settings = ["madvise=none", "swap=zeromap", "beside=mixed"];
    for arm in &run(&["stock", "lazy"], &settings).arms {
        assert!(mean(arm, "meddler_rounds") > 0.0, "{}", arm.arm);
        let alone = ["amplification", "cpu_ns_per_op_alone"];
        assert!(alone.iter().all(|&name| !arm.metrics.contains_key(name)), "{}", arm.arm);
    }
}

/// Ops that fail leave nothing mapped: with one in ten allocations refused, processes continue.
#[test]
fn ops_that_fail_count_as_failures_and_leave_nothing() {
    for arm in &run(&["numa", "lazy"], &["alloc_fail_1024=100"]).arms {
        assert!(mean(arm, "op_failures") > 10.0, "{}", arm.arm);
        assert!(mean(arm, "ops_per_s") > 0.0, "{}", arm.arm);
    }
}

#[test]
fn where_every_allocation_fails_each_study_says_so() {
    for study in ["vmstat", "churn", "reap", "pcp", "ipi"] {
        let settings = ["cpus=4", "alloc_fail_1024=1024"];
        let checks = mmscale_harness::Checks::Off;
        let shape = mmscale_harness::Shape::Fill;
        let request = Request { shape, ..shipped::quick(study, 1, checks, &settings) };
        let why = shipped::try_run(mmscale_studies::all(), &request).unwrap_err();
        assert!(why.contains("100 attempts to allocate its memory failed"), "{study}: {why}");
        assert!(!why.contains("panic"), "{study}: {why}");
    }
}

/// A window that is shorter than a few ops gives no result: its first ops are not typical.
#[test]
fn a_window_must_be_several_ops_long() {
    let refusal = |arm: &str, settings: &[&str]| {
        let common = ["cpus=16", "processes_per_cpu=1", "madvise=none"];
        let settings: Vec<&str> = common.iter().chain(settings).copied().collect();
        let request = shipped::request("churn", &settings);
        let request = Request { arms: vec![arm.to_owned()], seeds: Some(1), ..request };
        shipped::try_run(mmscale_studies::all(), &request).map(|_| ()).unwrap_err()
    };
    let why = refusal("stock", &["pages=256", "duration_ms=0.1"]);
    assert!(why.contains("increase --set duration_ms"), "{why}");
    let why = refusal("numa", &["move_duration_ms=0.1"]);
    assert!(why.contains("increase --set move_duration_ms"), "{why}");
}

/// Ops that end in the window count, each once: their number times their mean time is the time of
/// all processes.
#[test]
fn the_time_of_ops_is_that_of_the_processes() {
    let document = run(&["stock", "numa", "lazy"], &["madvise=none"]);
    assert_eq!(document.window_ns, None, "arms have windows of different lengths");
    for arm in &document.arms {
        let running = mean(arm, "ops_per_s") * mean(arm, "op_ns_mean") / 1e9;
        assert!((15.5..=16.5).contains(&running), "{}: {running} of 16 processes", arm.arm);
    }
}
