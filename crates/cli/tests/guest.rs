//! The guest allocator in C of `examples/guest`: it is compiled, and runs as an arm.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles a guest, with a macro defined, into a folder.
fn compile(folder: &TempDir, define: &str) -> String {
    let library = folder.path().join(format!("buddy{}.so", define.len()));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("crates/frames/include"))
        .args((!define.is_empty()).then(|| format!("-D{define}")))
        .arg("-o")
        .arg(&library)
        .arg(root().join("examples/guest/buddy.c"))
        .output()
        .expect("a C compiler: the linker that Rust uses is one");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library.display().to_string()
}

fn run(cpus: &str, args: &[&str]) -> Output {
    run_study("page_fault1", &[&["--cpus", cpus], args].concat())
}

fn run_study(study: &str, args: &[&str]) -> Output {
    let mut mmscale = Command::new(env!("CARGO_BIN_EXE_mmscale"));
    mmscale.args(["run", study, "--quick", "--seeds", "1"]).args(args);
    mmscale.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_guest_runs_under_both_schedules_with_all_checks_and_on_threads() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let policy = format!("caches=guest:{}", compile(&folder, ""));
    let both = &["--set", "sched=both"][..];
    // A busy computer may run no thread of the program for a moment.
    let threads = &["--on", "threads", "--set", "duration_ms=2000"][..];
    for (cpus, more) in [("4", both), ("2", threads)] {
        let ran = run(cpus, &[&["--policy", &policy][..], more].concat());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        assert!(text(&ran.stdout).contains("caches=guest-buddy0"), "{}", text(&ran.stdout));
    }
}

#[test]
fn what_a_guest_keeps_for_a_cpu_is_not_known() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let policy = format!("caches=guest:{}", compile(&folder, ""));
    let ran = run_study("pcp", &["--cpus", "4", "--arm", "stock", "--policy", &policy]);
    let shown = text(&ran.stdout);
    let (_, table) = shown.split_once("pages_stranded_max by workload\n").expect("a table");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(
        rows.iter().all(|row| matches!(row[..], [_, known, "-", "-"] if known != "-")),
        "{rows:?}"
    );
    assert_eq!(rows.len(), 5, "workloads: {shown}");
}

#[test]
fn a_guest_that_hands_out_a_page_twice_is_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let policy = format!("caches=guest:{}", compile(&folder, "TWICE"));
    let ran = run("4", &["--policy", &policy]);
    let said = text(&ran.stderr);
    assert!(!ran.status.success() && said.contains("which is allocated"), "{said}");
}

#[test]
fn files_that_are_no_guests_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text_file = folder.path().join("text.so");
    std::fs::write(&text_file, "no library").expect("it can be written");
    let missing = folder.path().join("missing.so");
    for (file, why) in [(&text_file, "text.so"), (&missing, "No such file")] {
        let ran = run("4", &["--policy", &format!("caches=guest:{}", file.display())]);
        let said = text(&ran.stderr);
        assert!(!ran.status.success() && said.contains("loading the allocator"), "{said}");
        assert!(said.contains(why), "{said}");
    }
    let ran = run("4", &["--policy", "lru=guest:a.so"]);
    assert!(text(&ran.stderr).contains("cannot read --policy"), "{}", text(&ran.stderr));
}
