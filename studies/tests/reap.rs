//! Tests of the study `reap` with small victims.

use std::sync::LazyLock;

use crate::shipped::{self, mean};
use mmscale_document::{ArmRecord, Document};
use mmscale_harness::{Checks, PolicyArm, Request};
use mmscale_sim::profile::Shape;

fn run(settings: &[&str]) -> Document {
    shipped::run(&shipped::request("reap", settings))
}

/// Returns a run of an application with 16,384 pages, which several tests read.
fn app() -> &'static Document {
    static APP: LazyLock<Document> = LazyLock::new(|| run(&["layout=app", "pages=16384"]));
    &APP
}

#[test]
fn the_two_sides_add_up() {
    let document = app();
    assert_eq!(document.window_ns, None);
    for arm in &document.arms {
        for name in ["cpu_ns", "pte_lock_wait_ns", "rmap_ns", "gather_flush_ns"] {
            let all = if name == "cpu_ns" { "total_cpu_ns".into() } else { name.to_owned() };
            let sides = mean(arm, &format!("exit_{name}")) + mean(arm, &format!("reaper_{name}"));
            assert!((mean(arm, &all) - sides).abs() < 1.0, "{}: {name}", arm.arm);
        }
        let roots: Vec<_> = arm.calls.iter().filter(|call| call.path.len() == 1).collect();
        assert_eq!(roots.len(), 2, "a tree for each side");
        let trees: u64 = roots.iter().map(|root| root.total_ns).sum();
        let runs = arm.seeds.len() as f64;
        assert!((trees as f64 / runs - mean(arm, "total_cpu_ns")).abs() < 1000.0, "{}", arm.arm);
        assert!(mean(arm, "frames_freed") > 13_000.0, "{}", arm.arm);
    }
}

#[test]
fn the_reverse_walk_ends_the_convoy_where_there_are_many_vmas() {
    let document = app();
    let [stock, posted, claims] = &document.arms[..] else { panic!("three arms") };
    let wait = |arm| mean(arm, "pte_lock_wait_ns");
    assert!(wait(posted) * 10.0 < wait(stock), "{} and {}", wait(posted), wait(stock));
    assert!(mean(posted, "total_cpu_ns") < 0.97 * mean(stock, "total_cpu_ns"));
    assert_eq!((wait(claims), mean(claims, "tables_visited_twice")), (0.0, 0.0));
    assert!(mean(claims, "total_cpu_ns") < mean(posted, "total_cpu_ns"));
    assert!(mean(claims, "flushes") * 10.0 < mean(posted, "flushes"));
}

#[test]
fn in_one_giant_vma_only_claims_help() {
    let document = run(&["layout=single", "pages=16384", "swapped_1024=0"]);
    let [stock, posted, claims] = &document.arms[..] else { panic!("three arms") };
    for name in ["total_cpu_ns", "pte_lock_wait_ns", "wall_to_last_frame_ns"] {
        assert_eq!(mean(posted, name), mean(stock, name), "{name}: there is nothing to reverse");
    }
    assert!(mean(posted, "tables_visited_twice") > 20.0);
    assert_eq!(mean(claims, "tables_visited_twice"), 0.0);
    let work = mean(posted, "total_cpu_ns")
        - mean(posted, "pte_lock_wait_ns")
        - mean(posted, "other_lock_wait_ns");
    let wall = mean(claims, "wall_to_last_frame_ns");
    assert!(wall <= 1.1 * (work / 2.0).max(mean(claims, "serial_ns")), "{wall} ns of {work}");
}

#[test]
fn every_layout_comes_to_its_end_with_any_number_of_walkers() {
    for layout in ["app", "single", "sparse", "huge"] {
        for walkers in [1, 4] {
            let (layout, walkers) = (format!("layout={layout}"), format!("walkers={walkers}"));
            let document = run(&[&layout, &walkers, "pages=4096", "notice_ms=0.1"]);
            for arm in &document.arms {
                let share = mean(arm, "frames_freed_by_reaper_share");
                assert_eq!(share > 0.0, walkers != "walkers=1", "{layout} {walkers}: {share}");
            }
        }
    }
}

/// Four walkers tear down a few huge pages nearly as fast as possible: several pages per lock hold,
/// and without sleeping when they contend.
#[test]
fn huge_pages_are_shared_out_among_four() {
    let document = run(&["layout=huge", "walkers=4", "pages=200000"]);
    let [stock, _, claims] = &document.arms[..] else { panic!("three arms") };
    let (wall, bound) = (mean(claims, "wall_to_last_frame_ns"), mean(claims, "amdahl_bound_ns"));
    // The bound does not count the locks that an exit shares with other tasks: no helper takes
    // them.
    assert!(wall <= 1.25 * bound, "{wall} ns, and {bound} could be");
    // The exit spins for reapers, in all arms.
    assert!(mean(claims, "mmap_lock_spin_ns") > 0.0);
    assert!(mean(stock, "mmap_lock_spin_ns") > 0.0);
    assert!(mean(claims, "pte_lock_wait_ns") * 5.0 < mean(stock, "pte_lock_wait_ns"));
}

/// Before 5.3 a writer did not spin for readers: the policy reaches mmap_lock.
#[test]
fn an_exit_without_handoff_does_not_spin_for_reapers() {
    let policies = vec![PolicyArm::parse("rwsem=no-handoff").unwrap()];
    let settings = ["layout=huge", "walkers=4", "pages=200000"];
    let arms = vec!["stock".to_owned()];
    let document = shipped::run(&Request { arms, policies, ..shipped::request("reap", &settings) });
    let [stock, old] = &document.arms[..] else { panic!("two arms") };
    // One look at the semaphore counts too.
    assert!(100.0 * mean(old, "mmap_lock_spin_ns") < mean(stock, "mmap_lock_spin_ns"));
}

/// As in Linux, a victim that exits within two seconds is never reaped. A victim that cannot notice
/// its signal is reaped, and meets its reaper when it does notice it.
#[test]
fn the_out_of_memory_reaper_comes_after_its_delay() {
    let plain = run(&["via=oom", "layout=app", "pages=16384"]);
    for arm in &plain.arms {
        assert_eq!(mean(arm, "reaper_cpu_ns"), 0.0, "{}", arm.arm);
        assert!(mean(arm, "wall_to_last_frame_ns") < 50e6, "{}", arm.arm);
        assert!(mean(arm, "frames_freed") > 12_000.0, "{}", arm.arm);
    }
    let stuck = run(&["via=oom", "layout=app", "pages=16384", "delay_ms=20", "notice_ms=29"]);
    let [stock, posted, claims] = &stuck.arms[..] else { panic!("three arms") };
    for arm in [stock, posted, claims] {
        let share = mean(arm, "frames_freed_by_reaper_share");
        assert!(share > 0.05 && share < 1.0, "{}: {share}", arm.arm);
        let wall_ns = mean(arm, "wall_to_last_frame_ns");
        assert!((20e6..40e6).contains(&wall_ns), "{}: {wall_ns}", arm.arm);
    }
    // A reaper that has started continues concurrently with the exit.
    let late = run(&["via=oom", "layout=app", "pages=16384", "delay_ms=20", "notice_ms=31"]);
    let share = mean(&late.arms[2], "frames_freed_by_reaper_share");
    assert!(share > 0.6, "{share}");
    let twice = |arm| mean(arm, "tables_visited_twice");
    assert!(twice(stock) > 0.0 && twice(claims) == 0.0, "{} and {}", twice(stock), twice(claims));
    assert_eq!(mean(claims, "pte_lock_wait_ns"), 0.0);
}

/// A folio that only the swap cache references is freed with the rest, not separately under a
/// page-table lock.
#[test]
fn folios_of_the_swap_cache_cost_no_lock_of_their_own_in_claims() {
    let document = run(&["swap=block", "layout=app", "pages=16384", "walkers=4"]);
    let [stock, _, claims] = &document.arms[..] else { panic!("three arms") };
    let taken = |arm: &ArmRecord| {
        let rows = arm.locks.iter().filter(|row| row.class == "lruvec");
        let rows = rows.filter(|row| row.site == "swap_free");
        rows.map(|row| row.acquisitions).sum::<u64>()
    };
    assert!(taken(stock) > 500, "{}", taken(stock));
    assert_eq!(taken(claims), 0);
    let compressed = app();
    assert!(compressed.arms.iter().all(|arm| taken(arm) == 0), "nothing is in the swap cache");
}

/// Pages of the file stay; those in shared mappings are handled by the exit only.
#[test]
fn pages_of_files_are_unmapped_and_not_freed() {
    let frames = |settings: &[&str]| {
        let document = run(settings);
        document.arms.iter().map(|arm| mean(arm, "frames_freed")).collect::<Vec<_>>()
    };
    let with = frames(&["layout=app", "pages=16384", "file_1024=256", "notice_ms=2"]);
    let without = frames(&["layout=app", "pages=16384", "file_1024=0", "notice_ms=2"]);
    for (with, without) in with.into_iter().zip(without) {
        assert!((3_000.0..4_400.0).contains(&(without - with)), "{without} and {with}");
    }
}

#[test]
fn costs_ten_times_as_high_are_planned_for() {
    let document = run(&["cost_scale=10", "layout=app"]);
    assert_eq!(document.params["cost_scale"].to_string(), "10");
    let phone =
        Request { profile: Some("phone".into()), ..shipped::request("reap", &["layout=app"]) };
    let phone = shipped::run(&phone);
    assert!(phone.arms.iter().all(|arm| arm.seeds.len() == 1), "small cores are planned for");
    assert!(document.arms.iter().all(|arm| arm.seeds.len() == 1), "{document:?}");
}

/// Programs tell each other in order who the victim is and when it is killed, under both schedules.
/// The seed is that of a difference between them.
#[test]
fn programs_tell_each_other_in_order() {
    let settings = ["layout=sparse", "pcp_batch=7", "cpus=12", "hz=1000", "sched=both"];
    let quick = shipped::quick("reap", 1, Checks::On, &settings);
    let document = shipped::run(&Request {
        arms: vec!["stock".to_owned()],
        profile: Some("x86-26".into()),
        first_seed: 130_598,
        shape: Shape::Fill,
        ..quick
    });
    assert_eq!(document.arms[0].seeds.len(), 1);
}
