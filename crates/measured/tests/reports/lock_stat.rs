//! `/proc/lock_stat`.

use mmscale_document::Site;
use mmscale_measured::{read, resemble};

use crate::perf::only;
use crate::samples::LOCK_STAT;

fn site(function: &str, contentions: u64) -> Site {
    Site { function: function.into(), contentions }
}

#[test]
fn rows_have_waits_holds_and_points() {
    let table = only(LOCK_STAT);
    assert_eq!((table.tool.as_str(), &table.fault), ("/proc/lock_stat", &None));
    let [zone, write, read] = &table.waits[..] else { panic!("{:?}", table.waits) };
    assert_eq!((zone.class.as_str(), zone.contentions), ("zone", Some(1500)));
    assert_eq!((zone.wait_total_ns, zone.wait_max_ns), (Some(16_371_530), Some(939_100)));
    assert_eq!((zone.acquisitions, zone.hold_total_ns), (Some(2_922_365), Some(746_402_550)));
    assert_eq!(zone.waiters, [site("free_pcppages_bulk", 900), site("rmqueue_bulk", 600)]);
    assert_eq!(zone.holders, [site("free_pcppages_bulk", 1500)]);
    assert_eq!((write.class.as_str(), write.kind.as_deref()), ("mmap_lock", Some("write")));
    assert_eq!((read.contentions, read.wait_total_ns), (Some(100), Some(500_250)));
    assert_eq!(read.waiters, [site("vm_mmap_pgoff", 84)]);
}

#[test]
fn a_mail_breaks_rows_anywhere() {
    let mut broken = String::new();
    for line in LOCK_STAT.lines() {
        for (at, word) in line.split_whitespace().enumerate() {
            let end = if at % 4 == 3 { "\n" } else { " " };
            broken.push_str(&format!("{}{word}{end}", if at % 4 == 0 { "> " } else { "" }));
        }
        broken.push('\n');
    }
    assert_eq!(only(&broken).waits, only(LOCK_STAT).waits);
}

#[test]
fn version_0_3_has_no_means() {
    let old = "class name con-bounces contentions waittime-min waittime-max waittime-total \
               acq-bounces acquisitions holdtime-min holdtime-max holdtime-total\n\
               &(&zone->lru_lock)->rlock: 10 20 0.23 31.09 387.72 30 40 0.00 45.20 60.97\n";
    let table = only(old);
    let row = &table.waits[0];
    assert_eq!((row.contentions, row.wait_total_ns), (Some(20), Some(387_720)));
    assert_eq!((row.acquisitions, row.hold_total_ns), (Some(40), Some(60_970)));
}

#[test]
fn counts_beyond_64_bits_do_not_overflow() {
    let huge = LOCK_STAT
        .replace("            900          [", " 18446744073709551615          [")
        .replace("            600          [", " 18446744073709551615          [");
    let report = read(huge.as_bytes()).expect("a text");
    assert_eq!(report.tables[0].waits[0].waiters[0].contentions, u64::MAX);
    let found = resemble(&report, &report.tables.iter().collect::<Vec<_>>());
    let shares: Vec<f64> = found.items.iter().map(|item| item.weight / found.weight()).collect();
    assert_eq!(shares[0], shares[1], "equal counts have equal parts of the time");
}

#[test]
fn labels_between_rows_begin_tables() {
    let (head, rows) = LOCK_STAT.split_once("holdtime-avg\n").unwrap();
    let text =
        format!("{head}holdtime-avg\nBEFORE\n{rows}\nAFTER:\n{}", rows.replace("1500", "700"));
    let report = mmscale_measured::read(text.as_bytes()).unwrap();
    let tables: Vec<(&str, usize, Option<u64>)> = report
        .tables
        .iter()
        .map(|table| (table.caption.as_str(), table.waits.len(), table.waits[0].contentions))
        .collect();
    assert_eq!(tables, [("BEFORE", 3, Some(1500)), ("AFTER", 3, Some(700))]);
}

#[test]
fn a_row_of_an_unknown_class_keeps_its_name_with_its_callers() {
    let (head, _) = LOCK_STAT.split_once("holdtime-avg\n").unwrap();
    let text = format!(
        "{head}holdtime-avg\n\
         &pot->lock: 20 40 0.08 20.00 1000.00 25.00 30 90 0.03 1.00 50.00 0.50\n\
         ---------\n&pot->lock 30 [<00000000aaaa0001>] fill_pot+0x4d/0x51\n\
         &pot->lock 10 [<00000000aaaa0002>] pour_pot+0x45/0x53\n"
    );
    let report = read(text.as_bytes()).expect("a text");
    let found = resemble(&report, &report.tables.iter().collect::<Vec<_>>());
    let named: Vec<(String, f64)> =
        found.items.iter().map(|item| (item.named(), item.weight / found.weight())).collect();
    let expected = [
        ("other lock &pot->lock in fill_pot".to_owned(), 0.75),
        ("other lock &pot->lock in pour_pot".to_owned(), 0.25),
    ];
    assert_eq!(named, expected);
    let (alone, _) = text.rsplit_once("---------\n").expect("a row");
    let report = read(alone.as_bytes()).expect("a text");
    let found = resemble(&report, &report.tables.iter().collect::<Vec<_>>());
    assert_eq!(found.items[0].named(), "other lock &pot->lock");
}
