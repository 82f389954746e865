//! Measured waits next to those of a run.

mod records;

use mmscale_document::{
    ArmRecord, Build, CpuTimeRecord, Document, Host, LockRecord, MEASURED_SCHEMA, MeasuredWait,
    Measurement,
};
use mmscale_report::WIDTH;
use mmscale_report::compare::{Waits, waits_csv, waits_text};

fn wait(class: &str, function: &str, n: u64, total_ns: u64, max_ns: u64) -> MeasuredWait {
    MeasuredWait {
        class: class.into(),
        path: vec![function.into()],
        contentions: Some(n),
        wait_total_ns: Some(total_ns),
        wait_max_ns: Some(max_ns),
        ..MeasuredWait::default()
    }
}

fn measured(cpus: Option<u32>) -> Measurement {
    Measurement {
        schema: MEASURED_SCHEMA.into(),
        build: Build::new("mmscale", "0.1.0", "9ccc9e473612"),
        command: vec![],
        tool: "perf lock contention, callers".into(),
        file: "production.txt".into(),
        cpus,
        window_ns: Some(10_000_000_000),
        waits: vec![
            wait("zone", "free_pcppages_bulk", 100, 600_000_000, 9_000_000),
            wait("zone", "rmqueue_bulk", 100, 200_000_000, 5_000_000),
            wait("mmap_lock", "do_user_addr_fault", 10, 100_000_000, 50_000_000),
            wait("slab", "get_partial_node", 50, 100_000_000, 4_000_000),
        ],
        notes: vec![],
        checksum: None,
    }
}

/// Returns a run of two seeds.
fn run() -> Document {
    let lock = |class: &str, site: &str, contentions: u64, wait_total_ns: u64| LockRecord {
        class: class.into(),
        sleeps: false,
        site: site.into(),
        acquisitions: 10 * contentions,
        contentions,
        wait_total_ns,
        wait_max_ns: 30_000,
        hold_total_ns: 1,
        ..LockRecord::default()
    };
    let arm = ArmRecord {
        arm: "stock".into(),
        seeds: vec![1, 2],
        cpu_time: Some(CpuTimeRecord {
            all_ns: 10_000_000,
            busy_ns: 10_000_000,
            ..CpuTimeRecord::default()
        }),
        locks: vec![
            lock("zone", "free_pcppages_bulk", 20, 400_000),
            lock("mmap_lock", "do_munmap", 10, 100_000),
            lock("pcp", "free_pages", 0, 0),
        ],
        ..ArmRecord::default()
    };
    Document {
        study: "pcp".into(),
        profile: "x86-32".into(),
        cpus: 32,
        window_ns: Some(5_000_000),
        host: Host { kernel: "Linux".into(), cpu: "CPU".into() },
        arms: vec![arm],
        ..records::empty()
    }
}

fn row(text: &str, name: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no row `{name}` in\n{text}"));
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn classes_of_a_run_stand_for_those_of_linux() {
    let document = run();
    let sides =
        [Waits::of_measurement(&measured(Some(2))), Waits::of_arm(&document, &document.arms[0])];
    let text = waits_text(["measured", "simulated"], [&sides[0], &sides[1]]);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert_eq!(
        row(&text, "zone"),
        ["80%", "4.0%", "4.00ms", "9.00ms", "80%", "4.0%", "20.0us", "30.0us"]
    );
    assert_eq!(
        row(&text, "mmap_lock"),
        ["10%", "0.5%", "10.0ms", "50.0ms", "20%", "1.0%", "10.0us", "30.0us"]
    );
    assert_eq!(row(&text, "slab")[4..], ["-"; 4]);
    assert!(text.contains("not simulated: kmem_cache_node->list_lock\n"), "{text}");
    assert!(text.contains("zone, measured: free_pcppages_bulk 75%, rmqueue_bulk 25%\n"), "{text}");
    assert!(!text.contains("pcp "), "a lock without a wait is not shown: {text}");
}

#[test]
fn a_measured_lock_that_the_workload_does_not_wait_for_is_named() {
    let mut document = run();
    document.arms[0].locks.retain(|lock| lock.class != "zone");
    let sides =
        [Waits::of_measurement(&measured(Some(2))), Waits::of_arm(&document, &document.arms[0])];
    let text = waits_text(["measured", "simulated"], [&sides[0], &sides[1]]);
    assert!(text.contains("not reproduced: zone (80%); the simulated workload"), "{text}");
    assert!(!text.contains("not reproduced: zone (80%), slab"), "slab is not simulated: {text}");
    let text = waits_text(["simulated", "simulated"], [&sides[1], &sides[1]]);
    assert!(!text.contains("not reproduced"), "nothing was measured: {text}");
}

#[test]
fn unknown_figures_are_missing_and_not_zero() {
    let mut one = measured(None);
    one.waits[2].contentions = None;
    let side = Waits::of_measurement(&one);
    let text = waits_text(["before", "after"], [&side, &side]);
    assert_eq!(row(&text, "zone")[..2], ["80%", "-"]);
    assert_eq!(row(&text, "mmap_lock")[..4], ["10%", "-", "-", "50.0ms"]);
    assert!(!text.contains("not simulated"), "neither side is simulated: {text}");
    let csv = waits_csv(["before", "after"], [&side, &side]);
    assert!(csv.contains("before,mmap_lock,do_user_addr_fault,100000000,,50000000\n"), "{csv}");
    assert_eq!(csv.lines().count(), 9);
}

#[test]
fn a_function_that_only_takes_the_lock_is_named_by_its_caller() {
    let mut one = measured(None);
    one.waits = vec![MeasuredWait {
        path: vec!["folio_batch_move_lru".into(), "folio_lruvec_lock_irqsave".into()],
        ..wait("lruvec", "", 3, 1000, 900)
    }];
    let side = Waits::of_measurement(&one);
    let text = waits_text(["before", "after"], [&side, &side]);
    assert!(text.contains("lruvec, before: folio_batch_move_lru 100%\n"), "{text}");
}
