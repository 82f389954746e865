//! Small texts of public reports, with their right values.

use std::fs;

use mmscale_document::Problem;
use mmscale_measured::{Basis, Report, Resemblance, Table, read, resemble};

pub(crate) fn input(name: &str) -> String {
    let path = format!("{}/tests/inputs/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"))
}

pub(crate) fn found(text: &str) -> (Report, Resemblance) {
    let report = read(text.as_bytes()).expect("a text");
    let found = resemble(&report, &report.tables.iter().collect::<Vec<&Table>>());
    (report, found)
}

/// Returns the classes with their shares of the waits, in percent, the largest first.
pub(crate) fn shares(text: &str) -> Vec<(String, f64)> {
    let (_, found) = found(text);
    let mut all: Vec<(String, f64)> = vec![];
    for item in &found.items {
        let share = 100.0 * item.weight / found.weight();
        match all.iter_mut().find(|(class, _)| *class == item.class) {
            Some((_, sum)) => *sum += share,
            None => all.push((item.class.clone(), share)),
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

#[track_caller]
fn are(name: &str, expected: &[(&str, f64)]) {
    let all = shares(&input(name));
    let close = all.len() == expected.len()
        && all.iter().zip(expected).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 0.06);
    assert!(close, "{name}: {all:?}");
}

#[track_caller]
fn best(name: &str, problem: Option<Problem>) {
    let best = found(&input(name)).1.best().map(|likeness| likeness.problem);
    assert_eq!(best, problem, "{name}");
}

#[test]
fn trees_have_the_shares_of_the_file() {
    are("relchain", &[("zone", 78.98), ("lruvec", 21.02)]);
    are("stdio2", &[("lruvec", 100.0)]);
    are("tree", &[("rstat", 100.0)]);
    are("tree2", &[("lruvec", 67.23), ("zone", 32.77)]);
    are("tui", &[("lruvec", 84.375), ("zone", 15.625)]);
    are("tui2", &[("i_pages", 100.0)]);
    // Under `vm_mmap_pgoff` 0.85 % spin in functions that the text does not have.
    are("tui3", &[("mmap_lock", 99.02), ("other", 0.98)]);
    are("zlru", &[("lruvec", 99.86), ("other", 0.14)]);
    for (name, of_all) in [("stdio2", 0.431), ("tree", 0.0494), ("tui3", 0.8685), ("tui", 0.32)] {
        let found = found(&input(name)).1;
        assert!((found.of_all.unwrap() - of_all).abs() < 0.0002, "{name}: {:?}", found.of_all);
    }
    let (_, tree) = found(&input("stdio2"));
    let paths: Vec<(String, i32)> = tree
        .items
        .iter()
        .map(|item| (item.path.join(" "), (100.0 * item.weight / tree.weight()).round() as i32))
        .collect();
    assert_eq!(
        paths,
        [
            (
                "exit_mmap tlb_finish_mmu tlb_batch_pages_flush release_pages \
                 folio_lruvec_lock_irqsave"
                    .to_owned(),
                51
            ),
            (
                "do_anonymous_page folio_add_lru folio_batch_move_lru folio_lruvec_lock_irqsave"
                    .to_owned(),
                49
            ),
        ]
    );
    best("tui", Some(Problem::Churn));
    best("stdio2", Some(Problem::Churn));
    best("zlru", None);
    best("tree", None);
}

#[test]
fn the_function_that_takes_the_lock_decides() {
    are("split", &[("split_queue", 100.0)]);
    are("xa", &[("vmap", 100.0)]);
    are("old2", &[("lruvec", 100.0)]);
    are("old-nots", &[("lruvec", 100.0)]);
    are("compact", &[("lruvec", 100.0)]);
    best("old2", Some(Problem::Churn));
    best("old-nots", Some(Problem::Churn));
    best("compact", None);
    let (_, exit) = found(&input("doexit"));
    let of = |function: &str| {
        let item = exit.items.iter().find(|item| item.path == [function.to_owned()]);
        item.map(|item| item.class.clone()).unwrap_or_default()
    };
    for function in
        ["do_exit", "do_wait", "release_task", "copy_process", "kill_something_info", "send_sigio"]
    {
        assert_eq!(of(function), "tasklist", "{function}");
    }
    assert_eq!(of("ep_poll_callback"), "ep");
    are(
        "swapold",
        &[("swap", 83.85), ("pte", 14.71), ("list_lru", 1.77)]
            .map(|(class, share): (&str, f64)| (class, share / 1.00333)),
    );
    // `dup_mmap` takes the lock of the files that it copies, too.
    are("r5", &[("mmap_lock", 95.30), ("rwsem", 4.70)]);
}

#[test]
fn logs_are_read_with_any_prefix() {
    for name in ["dmesg-nots", "dmesg-ts", "dmesg-caller", "syslog"] {
        are(name, &[("lruvec", 100.0)]);
        best(name, Some(Problem::Churn));
        let (_, log) = found(&input(name));
        assert_eq!((log.basis, log.items.len()), (Basis::Tasks, 1), "{name}");
        let who = log.items[0].who.as_deref();
        assert_eq!(who, Some("CPU 11, stress-ng:878, 22 s, soft lockup"), "{name}");
    }
    are("old", &[("lruvec", 100.0)]);
    are("joined", &[("rstat", 100.0)]);
    are("slablock", &[("zone", 100.0)]);
    are("slablock-q", &[("zone", 100.0)]);
    best("slablock-q", Some(Problem::Vmstat));
    are("memstat", &[("rstat", 100.0)]);
    are("csd", &[("calls", 100.0)]);
    are("tlbwait", &[("calls", 100.0)]);
    are("tlbwait-ts", &[("calls", 100.0)]);
    are("rwsem2", &[("mmap_lock", 100.0)]);
    are("kswapd", &[("lruvec", 100.0)]);
    best("kswapd", None);
}

#[test]
fn stacks_have_their_weights() {
    are("bpfstack", &[("lruvec", 97.546), ("zone", 2.454)]);
    are("bpfmulti", &[("mmap_lock", 100.0), ("lruvec", 0.0)]);
    are("offcpu", &[("mmap_lock", 100.0)]);
    are("script", &[("lruvec", 100.0)]);
    are("folded", &[("lruvec", 100.0)]);
    let of_all = found(&input("folded")).1.of_all.unwrap();
    assert!((of_all - 0.8525).abs() < 0.0002, "{of_all}");
    for name in ["folded-reap", "bpfmulti"] {
        best(name, None);
    }
    assert_eq!(found(&input("folded-reap")).1.basis, Basis::None);
}

#[test]
fn tables_lose_no_rows() {
    let waits = |name: &str| found(&input(name)).0.tables[0].waits.len();
    assert_eq!((waits("snip"), waits("qpn3"), waits("qpnohead")), (2, 2, 2));
    are("qpn3", &[("zone", 57.25), ("lruvec", 42.75)]);
    let names: Vec<String> = found(&input("qpnohead")).0.tables[0]
        .waits
        .iter()
        .filter_map(|wait| wait.task.clone())
        .collect();
    assert_eq!(names, ["sched-messaging", "node"]);
}

#[test]
fn a_robot_has_both_commits() {
    let (report, found) = found(&input("lkp2"));
    let robot = report.robot.expect("a report");
    let sum =
        |of: fn(&mmscale_measured::PathChange) -> f64| robot.paths.iter().map(of).sum::<f64>();
    assert!((sum(|p| p.before) - 83.07).abs() < 0.01 && sum(|p| p.after) == 0.0);
    assert_eq!(found.best().map(|likeness| likeness.problem), Some(Problem::Churn));
}

#[test]
fn sizes_are_found() {
    let (report, _) = found(&input("cpus"));
    // A CPU with the number 466 is on another machine than one with 104 CPUs.
    assert_eq!(report.sizes.at_least.map(|(n, _)| n), Some(467));
    assert_eq!(report.sizes.cpus.len(), 0);
    let (report, _) = found(&input("cpus2"));
    assert_eq!(report.sizes.cpus.keys().collect::<Vec<_>>(), [&80]);
}

#[test]
fn chains_with_shares_are_read_in_both_forms() {
    for (name, of_all) in [("flat", 0.431), ("chains", 0.431), ("chains-relative", 0.431)] {
        are(name, &[("lruvec", 69.84), ("zone", 30.16)]);
        let all = found(&input(name)).1.of_all.unwrap();
        assert!((all - of_all).abs() < 0.0005, "{name}: {all}");
    }
}

#[test]
fn rows_of_the_tracepoint_have_no_lock() {
    are("traceiter", &[("other", 97.5), ("mutex", 2.5)]);
    let (report, found) = found(&input("traceiter"));
    assert_eq!(report.tables[0].waits.len(), 3);
    assert_eq!(found.best(), None);
    let paths: Vec<&str> =
        report.tables[0].waits.iter().map(|wait| wait.path[0].as_str()).collect();
    assert_eq!(
        paths,
        ["__traceiter_contention_begin", "__traceiter_contention_begin", "trace_contention_begin"]
    );
}
