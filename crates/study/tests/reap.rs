//! The study `reap` as a user runs it: what it must show, on small victims.

use mmscale_record::{ArmRecord, Document, On};
use mmscale_study::{
    Checks, Interrupt, Length, ProgressSink, Registry, Request, RunEvent, Settings, execute, plan,
};
use std::sync::Arc;

struct Silent;

impl ProgressSink for Silent {
    fn event(&self, _: RunEvent) {}
}

fn run(settings: &[&str]) -> Document {
    let request = Request {
        studies: vec!["reap".to_owned()],
        on: Some(On::Sim),
        arms: vec![],
        profile: None,
        settings: Settings::parse(settings).expect("the test's settings are spelt well"),
        seeds: Some(2),
        first_seed: 1,
        length: Length::Full,
        checks: Checks::On,
    };
    let plans = plan(Registry::shipped(), &request).unwrap_or_else(|why| panic!("{why}"));
    let [plan] = &plans[..] else { panic!("one layout is one plan") };
    let sink: Arc<dyn ProgressSink> = Arc::new(Silent);
    execute(plan, &Interrupt::default(), &sink).unwrap_or_else(|why| {
        let source = std::error::Error::source(&why).map(ToString::to_string);
        panic!("{why}: {}", source.unwrap_or_default())
    })
}

fn mean(arm: &ArmRecord, name: &str) -> f64 {
    arm.metrics.get(name).unwrap_or_else(|| panic!("no metric {name}")).mean
}

#[test]
fn the_two_sides_add_up() {
    let document = run(&["layout=app", "pages=16384"]);
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
        assert!(mean(arm, "frames_freed") > 16_000.0, "{}", arm.arm);
    }
}

#[test]
fn the_reverse_walk_ends_the_convoy_where_there_are_many_vmas() {
    let document = run(&["layout=app", "pages=16384"]);
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
