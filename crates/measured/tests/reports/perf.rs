//! `perf lock contention`.

use mmscale_document::MeasuredWait;
use mmscale_measured::{Table, UNKNOWN_CLASS, read};

use crate::samples::{PERF, PERF_CSV, PERF_LOCKS, PERF_STACKS, PERF_TASKS};

/// Reads a text with one table.
pub(crate) fn only(text: &str) -> Table {
    let mut tables = read(text.as_bytes()).expect("a text").tables;
    assert_eq!(tables.len(), 1, "{tables:?}");
    tables.remove(0)
}

fn figures(wait: &MeasuredWait) -> (Option<u64>, Option<u64>, Option<u64>) {
    (wait.contentions, wait.wait_total_ns, wait.wait_max_ns)
}

#[test]
fn rows_have_figures_a_class_and_a_caller() {
    let table = only(PERF);
    assert_eq!((table.tool.as_str(), table.fault), ("perf lock contention, callers", None));
    assert_eq!(table.lines, (1, 7));
    assert_eq!(table.notes, ["perf lost 3 of 80 records"]);
    let classes: Vec<&str> = table.waits.iter().map(|wait| wait.class.as_str()).collect();
    assert_eq!(classes, ["lruvec", "runqueue", "slab", "mmap_lock", "mutex"]);
    assert_eq!(figures(&table.waits[0]), (Some(1638), Some(7_800_000), Some(37_400)));
    assert_eq!(table.waits[0].path, ["folio_lruvec_lock_irqsave"]);
    assert_eq!(table.waits[3].kind.as_deref(), Some("rwsem:R"));
    assert_eq!(figures(&table.waits[4]), (Some(1), Some(12_000), Some(12_000)));
}

#[test]
fn stacks_are_paths_without_the_locking_functions() {
    let table = only(PERF_STACKS);
    assert_eq!(table.tool, "perf lock contention, callers with stacks");
    let paths: Vec<String> = table.waits.iter().map(|wait| wait.path.join(" ")).collect();
    assert_eq!(
        paths,
        [
            "lru_add_drain_cpu folio_batch_move_lru folio_lruvec_lock_irqsave",
            "vmstat_update decay_pcp_high free_pcppages_bulk"
        ]
    );
    assert_eq!(figures(&table.waits[1]), (Some(300), Some(2_200_000), Some(90_000)));
}

#[test]
fn fields_with_a_separator_are_in_ns() {
    let table = only(PERF_CSV);
    assert_eq!(table.tool, "perf lock contention -x");
    assert_eq!(table.notes, ["perf lost 2 of 1640 records"]);
    let [first, second] = &table.waits[..] else { panic!("{:?}", table.waits) };
    assert_eq!(figures(first), (Some(1638), Some(7_800_000), Some(37_400)));
    assert_eq!(first.path, ["folio_batch_move_lru", "folio_lruvec_lock_irqsave"]);
    assert_eq!((second.class.as_str(), figures(second).1), ("mmap_lock", Some(61_000)));
    let other = PERF_CSV.replace(',', ";");
    assert_eq!(only(&other).waits, table.waits);
}

#[test]
fn tasks_have_no_lock_and_locks_have_names() {
    let table = only(PERF_TASKS);
    let tasks: Vec<Option<&str>> = table.waits.iter().map(|wait| wait.task.as_deref()).collect();
    assert_eq!(tasks, [Some("tokio runtime"), Some("kworker/1:1H-kb")]);
    assert!(table.waits.iter().all(|wait| wait.class == UNKNOWN_CLASS));
    let table = only(PERF_LOCKS);
    let locks: Vec<(&str, Option<&str>)> =
        table.waits.iter().map(|wait| (wait.class.as_str(), wait.lock.as_deref())).collect();
    assert_eq!(
        locks,
        [
            ("zone", Some("zone_lock")),
            ("mmap_lock", Some("mmap_lock")),
            ("other", Some("ffff88812bc00e80"))
        ]
    );
    assert_eq!(figures(&table.waits[0]), (Some(5), Some(24_000), Some(14_000)));
}

#[test]
fn columns_and_languages_may_differ() {
    let chosen = "  total wait    contended         type   caller\n\n\
                  \x20    7,80 ms         1638     spinlock   rmqueue_bulk+0x5\n";
    let table = only(chosen);
    assert_eq!(figures(&table.waits[0]), (Some(1638), Some(7_800_000), None));
    let cgroup = " contended   total wait   cgroup\n\n   3   1.00 s   /system.slice/x y\n";
    assert_eq!(only(cgroup).waits[0].task.as_deref(), Some("/system.slice/x y"));
}

#[test]
fn a_mail_breaks_and_quotes_rows() {
    let mail = "> >  contended   total wait     max wait     avg wait\n> > type   caller\n> >\n\
                > >       1638      7.80 ms     37.40 us      4.76 us     spinlock\n\
                > > folio_lruvec_lock_irqsave+0x5f\n> >\n> > Any idea?\n";
    let table = only(mail);
    assert_eq!(table.waits, only(PERF).waits[..1]);
    assert_eq!((table.lines, table.fault), ((1, 5), None));
    let twice = format!("{}\n{}", PERF, mail.replace("> > ", "> "));
    let tables = read(twice.as_bytes()).unwrap().tables;
    assert_eq!(tables.len(), 2, "a shortened quote is another table");
    let quoted: String = PERF.lines().map(|line| format!("> {line}\n")).collect();
    assert_eq!(read(format!("{PERF}\n{quoted}").as_bytes()).unwrap().tables.len(), 1);
}

#[test]
fn a_sentence_after_the_table_is_no_row() {
    let text = PERF.replace("\n=== output", "\n3 more rows were empty.\n=== output");
    let table = only(&text);
    assert_eq!((table.waits.len(), table.fault), (5, None));
}
