//! Tests of marked tables against documents: equal, changed and missing values.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use xtask::tables::{Mode, run};

const PAGE: &str = "\
# A study

Text, and a table without a mark:

| | stock |
|---|---|
| `wait_ns` | 1 |

<!-- table: reap seeds=2 pages=64 -->
| ms | stock | ours | measured |
|---|---|---|---|
| all waits, `any`: `wait_ns` | 2.000 us | -42.3 % | 7 |
| `any`: `wait_ns` with its spread | 2.000 us ± 71 % | | |
| `app`: `share` | 0.2500 | 0 | |
| `huge`: `share` | 0.7500 | 0 | 1 |
";

fn metric(unit: &str, values: [f64; 2]) -> Value {
    let mean = (values[0] + values[1]) / 2.0;
    json!({ "unit": unit, "mean": mean, "ci95": values, "values": values })
}

/// Returns a document of a run; `layout` is `None` if the result does not depend on it.
fn document(pages: u64, layout: Option<&str>, wait_ns: f64) -> Value {
    let arm = |name: &str, metrics: Value| {
        let (locks, host) = (json!([]), json!({}));
        json!({
            "arm": name, "seeds": [1, 2], "metrics": metrics, "locks": locks, "host_metrics": host,
        })
    };
    let (stock, ours) = match layout {
        None => (
            json!({ "wait_ns": metric("ns", [wait_ns / 2.0, wait_ns * 1.5]) }),
            json!({ "wait_ns": metric("ns", [wait_ns / 2.0 - 1.0, wait_ns / 2.0 + 1.0]) }),
        ),
        Some(layout) => {
            let share = if layout == "app" { 0.25 } else { 0.75 };
            let of = |share| json!({ "share": metric("1", [share, share]) });
            (of(share), of(0.0))
        }
    };
    json!({
        "schema": "mmscale/run/3", "command": ["mmscale"],
        "build": { "name": "mmscale", "version": "0", "commit": "d" },
        "study": "reap", "on": "sim", "profile": "p",
        "cpus": 8, "hz": 250, "params": { "pages": pages, "layout": layout.unwrap_or("any") },
        "host": { "kernel": "k", "cpu": "c" }, "fingerprint": "0123456789abcdef",
        "arms": [arm("stock", stock), arm("ours", ours)],
    })
}

/// A workspace with one page, and the documents of some runs.
struct Workspace(TempDir);

impl Workspace {
    fn new(page: &str, documents: &[Value]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.documents()).unwrap();
        fs::write(place.page(), page).unwrap();
        for (nth, document) in documents.iter().enumerate() {
            let path = place.documents().join(format!("{nth}.json"));
            fs::write(path, document.to_string()).unwrap();
        }
        fs::write(place.documents().join("0.txt"), "the same as text").unwrap();
        place
    }
    fn page(&self) -> PathBuf {
        self.0.path().join("A.md")
    }
    fn documents(&self) -> PathBuf {
        self.0.path().join("runs")
    }
    fn run(&self, mode: Mode) -> Result<String, String> {
        run(self.0.path(), &[self.documents()], mode)
    }
}

/// Returns the documents that the page shows.
fn all(wait_ns: f64) -> Vec<Value> {
    let layouts = [None, Some("app"), Some("huge")];
    layouts.into_iter().map(|layout| document(64, layout, wait_ns)).collect()
}

/// Returns the only error of checking `page`, with its line.
fn error(page: &str, documents: &[Value]) -> String {
    let errors = Workspace::new(page, documents).run(Mode::Check).unwrap_err();
    let lines: Vec<&str> = errors.lines().collect();
    assert!(lines.len() == 2 && lines[1].ends_with(", 1 errors"), "{errors}");
    lines[0].to_owned()
}

#[test]
fn figures_that_are_in_the_documents_pass() {
    let told = Workspace::new(PAGE, &all(2000.0)).run(Mode::Check);
    assert_eq!(told.unwrap(), "tables: 7 figures in 1 marked tables, all equal to the documents");
}

#[test]
fn a_figure_that_has_changed_is_told_with_its_line() {
    let changed = PAGE.replace("0.7500", "0.7600");
    assert_eq!(
        error(&changed, &all(2000.0)),
        "A.md:15: `share`, stock: `0.7600` in the page, `0.7500` in the document"
    );
    let noise = PAGE.replace("-42.3 %", "-50.0 %");
    assert!(
        error(&noise, &all(2000.0)).starts_with("A.md:12: `wait_ns`, ours: `-50.0 %` in the page")
    );
}

#[test]
fn figures_are_written_and_nothing_else() {
    let place = Workspace::new(PAGE, &all(3_000_000.0));
    assert!(
        place.run(Mode::Check).unwrap_err().ends_with("7 figures in 1 marked tables, 2 errors")
    );
    let told = place.run(Mode::Write).unwrap();
    assert_eq!(told, "tables: 7 figures in 1 marked tables, 1 pages written");
    let written = fs::read_to_string(place.page()).unwrap();
    assert_eq!(written, PAGE.replace("2.000 us", "3.000 ms"));
    place.run(Mode::Check).unwrap();
}

#[test]
fn what_the_documents_do_not_have_is_told() {
    let unknown = PAGE.replace("`app`: `share`", "`app`: `shares`");
    assert_eq!(error(&unknown, &all(2000.0)), "A.md:14: `reap` has no metric `shares`");
    let missing = &all(2000.0)[..2];
    assert_eq!(
        error(PAGE, missing),
        "A.md:15: no document of `reap seeds=2 pages=64, `huge`` is given: run it, or correct the \
         mark"
    );
    let other = PAGE.replace("pages=64", "pages=65");
    assert_eq!(
        error(&other, &all(2000.0)),
        "A.md:10: no document of `reap seeds=2 pages=65` is given: run it, or correct the mark"
    );
}

#[test]
fn a_row_that_fits_several_documents_says_what_they_differ_in() {
    let open = PAGE.replace("`huge`: `share`", "`share`");
    let found = error(&open, &all(2000.0));
    assert!(found.starts_with("A.md:15: 3 documents fit `reap seeds=2 pages=64`: "), "{found}");
    assert!(found.ends_with("select one by: layout"), "{found}");
    let twice = [all(2000.0), vec![document(64, Some("huge"), 0.0)]].concat();
    assert!(error(PAGE, &twice).ends_with("they are of the same run; give only one of them"));
    let last = PAGE.replace("`huge`: `share`", "`huge`, `pages=64`: `share`");
    let of_any = |page: &str| page.replace("pages=64 -->", "-->");
    let more = [all(2000.0), vec![document(65, Some("huge"), 0.0)]].concat();
    Workspace::new(&of_any(&last), &more).run(Mode::Check).unwrap();
    assert!(error(&of_any(PAGE), &more).ends_with("select one by: pages"));
    // A run with other parameters does not prevent the match.
    Workspace::new(PAGE, &more).run(Mode::Check).unwrap();
}

#[test]
fn a_mark_that_says_nothing_is_an_error() {
    let cases = [
        ("reap seeds=2 pages=64 -->", "reap seeds=2 pages=64", "a mark must end with"),
        ("seeds=2", "2", "`2` in a mark is neither KEY=VALUE nor COLUMN:ARM"),
        ("stock | ours |", "before | after |", "no column of this table is an arm"),
        ("-->\n", "-->\n\n", "a mark must be on the line before a table's head"),
        ("| `app`: `share`", "| app: share", "no metric in back quotes"),
    ];
    for (from, to, what) in cases {
        let found = error(&PAGE.replace(from, to), &all(2000.0));
        assert!(found.contains(what), "{found}");
    }
}

#[test]
fn folders_without_documents_are_refused() {
    let place = Workspace::new(PAGE, &[]);
    assert!(place.run(Mode::Check).unwrap_err().starts_with("no documents in these folders"));
    let none: &Path = &place.0.path().join("none");
    assert!(run(place.0.path(), &[none.into()], Mode::Check).unwrap_err().contains("reading "));
    let place = Workspace::new(PAGE, &[json!({ "schema": "other" })]);
    assert!(place.run(Mode::Check).unwrap_err().contains("0.json: not a document of a run: "));
}

#[test]
fn a_table_of_several_runs_has_a_mark_for_each() {
    let page = "\
# Results

<!-- table: reap layout=any best:ours -->
<!-- table: reap layout=huge best:stock -->
| | stock | best |
|---|---|---|
| `wait_ns` | 2.000 us | -50.0 % |
| `share` | 0.7500 | 0.7500 |
";
    let noisy = page.replace("-50.0 %", "-42.3 %");
    let told = Workspace::new(&noisy, &all(2000.0)).run(Mode::Check);
    assert_eq!(told.unwrap(), "tables: 4 figures in 1 marked tables, all equal to the documents");
    assert!(
        error(page, &all(2000.0)).starts_with("A.md:7: `wait_ns`, ours: `-50.0 %` in the page")
    );
    let unknown = noisy.replace("layout=huge", "layout=wide");
    assert!(error(&unknown, &all(2000.0)).starts_with("A.md:5: no document of `reap layout=wide`"));
}
