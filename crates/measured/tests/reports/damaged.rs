//! Reports that are cut, in other encodings, or wrong.

use mmscale_measured::{Fault, ReadError, read};

use crate::perf::only;
use crate::samples::{ALL, KLOCKSTAT, LOCK_STAT, PERF, PERF_CSV};

fn fault(text: &str) -> Fault {
    only(text).fault.unwrap_or_else(|| panic!("no fault in {text}"))
}

#[test]
fn a_table_that_is_cut_has_the_place_of_the_cut() {
    let cut = PERF.split_inclusive("505.64").next().unwrap();
    let found = fault(cut);
    assert_eq!((found.line, found.column), (4, 21));
    assert!(found.what.contains("the table is cut"), "{found}");
    assert_eq!(only(cut).waits.len(), 1, "rows before the cut are kept");
    let cut = PERF_CSV.split_inclusive("2, 61000").next().unwrap();
    assert_eq!((fault(cut).line, fault(cut).column), (3, 9));
    assert!(fault(cut).what.contains("2 of 6 fields"));
    let cut = LOCK_STAT.split_inclusive("16371.53").next().unwrap();
    assert_eq!(fault(cut).line, 6);
    assert!(fault(cut).what.contains("waittime-avg"), "{}", fault(cut));
    let cut = KLOCKSTAT.split_inclusive("40.0 us").next().unwrap();
    assert_eq!(fault(cut).line, 4);
    assert!(fault(cut).what.contains("the total time"), "{}", fault(cut));
}

#[test]
fn a_wrong_word_has_its_place() {
    let text = PERF.replace("505.64 us", "505.64 ux");
    let found = fault(&text);
    assert_eq!((found.line, found.column), (4, 22));
    assert!(found.what.contains("`ux` is no unit of time"), "{found}");
    let text = PERF.replace("     rwsem:R", "     rwsam:R");
    let found = fault(&text);
    assert_eq!((found.line, found.column), (6, 56));
    assert!(found.what.contains("`rwsam:R` is no kind of lock"), "{found}");
    let quoted: String = text.lines().map(|line| format!("> {line}\n")).collect();
    assert_eq!(fault(&quoted).column, 58, "columns are those of the file");
    let text = PERF_CSV.replace("40000", "4o000");
    assert_eq!((fault(&text).line, fault(&text).column), (3, 11));
}

#[test]
fn rows_that_were_left_out_are_noted() {
    let text = PERF.replace("        27    505.64 us", "[...]\n        27    505.64 us");
    let table = only(&text);
    assert_eq!((table.waits.len(), table.fault), (5, None));
    assert!(table.notes[0].contains("left out at line 4"), "{:?}", table.notes);
}

#[test]
fn encodings_and_line_ends_change_nothing() {
    for text in ALL {
        let plain = read(text.as_bytes()).unwrap();
        let same = |bytes: &[u8], what: &str| {
            let found = read(bytes).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!(found.tables, plain.tables, "{what}");
        };
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        same(&utf16, "UTF-16 without a mark");
        let marked: Vec<u8> =
            format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_be_bytes).collect();
        same(&marked, "UTF-16, big endian");
        same(format!("\u{feff}{text}").as_bytes(), "a mark of UTF-8");
        same(text.replace('\n', "\r\n").as_bytes(), "CR LF");
    }
    let latin = [b"Gr\xfc\xdfe\n\n".as_slice(), PERF.as_bytes()].concat();
    let found = read(&latin).unwrap();
    assert_eq!(found.tables[0].waits, only(PERF).waits);
    assert!(found.notes[0].contains("Latin-1"), "{:?}", found.notes);
}

#[test]
fn a_mail_in_quoted_printable_is_decoded() {
    let body = PERF.replace('=', "=3D").replace("spinlock   folio", "spinlock =\n  folio");
    let mail = format!(
        "From: A B <a@example.org>\nSubject: waits\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n\
         {body}"
    );
    assert_eq!(only(&mail).waits, only(PERF).waits);
    let note = &read(mail.as_bytes()).unwrap().notes[0];
    assert!(note.contains("decoded"), "{note}");
}

#[test]
fn other_texts_have_no_table() {
    for text in [
        "Hello,\nthis is contended wait\n",
        " contended   total wait\n  5 6\n",
        "class name\n",
        "                               Caller  Avg Wait\n",
        "# output: a, b\n1, 2\n",
    ] {
        assert_eq!(read(text.as_bytes()).unwrap().tables, [], "{text}");
    }
    let report =
        read(b"                Name   acquired  contended   avg wait\n x 1 2 3 us\n").unwrap();
    assert!(report.others[0].contains("perf lock contention -v -i"), "{:?}", report.others);
    for heading in ["umkaempft   Wartezeit   laengste", ""] {
        let (_, rows) = PERF.split_once('\n').unwrap();
        let report = read(format!("{heading}\n{rows}").as_bytes()).unwrap();
        assert_eq!(report.tables, []);
        assert!(report.others[0].starts_with("line 3: rows of"), "{:?}", report.others);
    }
    assert_eq!(read(b""), Err(ReadError::Empty));
}

#[test]
fn figures_below_zero_are_left_out_and_noted() {
    // A time of -5 s without its sign, and a count of -1.
    for (text, good, broken) in [
        (PERF, "505.64 us", "5124095.6 h"),
        (PERF_CSV, "61000", "18446744068709551616"),
        (LOCK_STAT, "16371.53", "18446744068709551.61"),
        (KLOCKSTAT, "40.0 us", "5124095.6 h"),
    ] {
        assert!(text.contains(good), "{text}");
        let (sound, table) = (only(text), only(&text.replacen(good, broken, 1)));
        assert_eq!(table.waits.len() + 1, sound.waits.len(), "{broken}: {:?}", table.waits);
        assert!(table.wait_total_ns() <= sound.wait_total_ns(), "{table:?}");
        let noted = table.notes.iter().any(|note| note.starts_with("1 of") && note.contains("292"));
        assert!(noted, "{:?}", table.notes);
    }
    let summary = "| Metric | before | after |\n| Contentions | 100 | 20 |\n\
                   | Total wait | 12.50ms | 5124095.6h |\n";
    let kept: Vec<Option<String>> = only(summary).waits.into_iter().map(|wait| wait.task).collect();
    assert_eq!(kept, [Some("before".to_owned())]);
}

#[test]
fn a_sum_beyond_64_bits_is_no_time() {
    let row = |time: &str, name: &str| format!("{name} {time} 1 {time} {time}\n");
    let head = "Caller  Avg Wait    Count   Max Wait   Total Wait\n";
    let rows = ["one", "two", "three"].map(|name| row("2000000.0 h", name)).concat();
    let table = only(&format!("{head}{rows}"));
    assert_eq!(table.wait_total_ns(), 7_200_000_000_000_000_000, "two rows are beyond the end");
    assert!(table.notes.iter().any(|note| note.starts_with("2 of 3 rows")), "{:?}", table.notes);
}
