//! The frame finds every kind of failure, in the case that has it, and goes on.

use std::path::Path;
use std::time::Duration;

use mmscale_fuzz::{NAMES, Search};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mmscale-fuzz");
const CASES: u64 = 48;

#[test]
fn each_planted_failure_is_found_and_its_input_kept() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let _ = std::fs::remove_dir_all(&folder);
    let mut search = Search::of(&["planted"], 1, CASES);
    search.longest = Duration::from_secs(1);
    let all = search.run(Path::new(PROGRAM), &folder).unwrap();
    let counts = &all[0].1;
    let found = [counts.panics, counts.ended, counts.hangs, counts.memory, counts.output];
    assert!(found.iter().all(|count| *count > 0), "{counts}");
    assert!(counts.accepted > 0 && counts.refused > 0 && counts.cases() == CASES, "{counts}");
    let kept = |way: &str| {
        let files = std::fs::read_dir(&folder).unwrap().flatten();
        files.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).any(|text| text == way)
    };
    for way in ["wrong", "panic", "abort", "overflow", "loop", "memory"] {
        assert!(kept(way), "{way}: {counts}");
    }
}

#[test]
fn each_target_has_inputs_that_are_accepted_and_ones_that_are_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("few");
    let all = Search::of(&NAMES, 1, 60).run(Path::new(PROGRAM), &folder).unwrap();
    for (name, counts) in &all {
        assert!(counts.accepted > 5 && counts.refused > 5, "{name}: {counts}");
        assert_eq!(counts.failed(), 0, "{name}: {counts}");
    }
}
