//! Documents of `mmscale live watch`.

use mmscale_measured::read;

use crate::perf::only;
use crate::samples::LIVE;

#[test]
fn a_document_has_cpus_and_duration() {
    let table = only(LIVE);
    assert_eq!((table.tool.as_str(), table.cpus), ("mmscale live", Some(2)));
    assert_eq!(table.window_ns, Some(2_500_000_000));
    assert_eq!(table.notes, ["hidden by that kernel: zap_pte_range"]);
    let row = &table.waits[0];
    assert_eq!((row.class.as_str(), row.wait_total_ns), ("lruvec", Some(120_000)));
}

#[test]
fn other_documents_are_refused_with_their_place() {
    let why = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
    let cut = why(&LIVE[..100]);
    assert!(cut.starts_with("line 1, column 100: not a complete document"), "{cut}");
    let run = why("{\"schema\": \"mmscale/run/3\"}");
    assert!(run.contains("`mmscale/run/3`") && run.contains("mmscale compare"), "{run}");
    let other = why("{\"seconds\": 1}");
    assert!(other.contains("without schema"), "{other}");
    let field = why(&LIVE.replace("2.5", "\"long\""));
    assert!(field.contains("line 1, column"), "{field}");
}
