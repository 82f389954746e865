//! klockstat of bcc.

use crate::perf::only;
use crate::samples::{KLOCKSTAT, KLOCKSTAT_PYTHON};

#[test]
fn times_have_units_with_libbpf() {
    let table = only(KLOCKSTAT);
    assert_eq!((table.tool.as_str(), &table.fault), ("klockstat (libbpf)", &None));
    let [fault, inode] = &table.waits[..] else { panic!("{:?}", table.waits) };
    assert_eq!((fault.class.as_str(), fault.acquisitions), ("mmap_lock", Some(400)));
    assert_eq!((fault.wait_total_ns, fault.wait_max_ns), (Some(480_000), Some(40_000)));
    assert_eq!((fault.contentions, fault.hold_total_ns), (None, Some(4_000_000)));
    assert_eq!((inode.class.as_str(), inode.hold_total_ns), ("other", None));
}

#[test]
fn times_are_in_ns_in_python() {
    let table = only(KLOCKSTAT_PYTHON);
    assert_eq!(table.tool, "klockstat (Python)");
    let row = &table.waits[0];
    assert_eq!((row.wait_total_ns, row.wait_max_ns), (Some(1_947_922), Some(16_825)));
    assert_eq!((row.acquisitions, row.hold_total_ns), (Some(4134), Some(1_990_080)));
    assert_eq!((row.class.as_str(), row.path.join(" ").as_str()), ("mutex", "pipe_write"));
}

#[test]
fn frames_follow_a_row_and_intervals_are_tables_of_their_own() {
    let stacks = KLOCKSTAT_PYTHON.replace("1947922\n", "1947922\n   ksys_write+0x20\n");
    assert_eq!(only(&stacks).waits[0].path, ["ksys_write", "pipe_write"]);
    let second = KLOCKSTAT_PYTHON.replace("1947922", "1947000");
    let both = format!("{KLOCKSTAT_PYTHON}{second}");
    let tables = mmscale_measured::read(both.as_bytes()).unwrap().tables;
    let sums: Vec<u64> = tables.iter().map(mmscale_measured::Table::wait_total_ns).collect();
    assert_eq!(sums, [1_947_922, 1_947_000]);
}

#[test]
fn a_stack_begins_with_the_function_of_the_lock() {
    let head = "                      Caller  Avg Wait    Count   Max Wait   Total Wait\n";
    let row = |lock: &str, caller: &str, total: &str| {
        format!(
            "{head}   {lock}+0x5    155 ns    33052   115.5 us       {total}\n   \
             {caller}+0x115\n     \
             Max PID 39643, COMM a, Lock b_rwsem (0xffffffff89f87e00)\n\n"
        )
    };
    let text = row("down_read", "one_readdir", "5.1 ms") + &row("mutex_lock", "two_open", "2.3 ms");
    let table = only(&text);
    let waits: Vec<(&str, String)> =
        table.waits.iter().map(|wait| (wait.class.as_str(), wait.path.join(" "))).collect();
    assert_eq!(waits, [("rwsem", "one_readdir".to_owned()), ("mutex", "two_open".to_owned())]);
}

#[test]
fn the_first_version_writes_words_out() {
    let text = KLOCKSTAT_PYTHON.replace("Avg", "Average");
    assert_eq!(only(&text).waits[0].wait_total_ns, Some(1_947_922));
}
