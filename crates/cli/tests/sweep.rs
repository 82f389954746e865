//! Sweeps: what is kept, what is executed again, and what a kill leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use mmscale_document::Document;

mod fake;

/// Runs `sweep` with a spec in a folder, and `-o` there.
fn sweep(folder: &Path, spec: &str, more: &[&str]) -> Output {
    command(folder, spec, more).output().unwrap()
}

fn command(folder: &Path, spec: &str, more: &[&str]) -> Command {
    fs::write(folder.join("spec.toml"), spec).unwrap();
    let mut command = Command::new(fake::path());
    command.args(["sweep", "spec.toml", "-o", "out"]).args(more).current_dir(folder);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns the files of runs, with the times at which they were written. A file under its temporary
/// name may be renamed at any moment, so only names that stay are looked up.
fn kept(folder: &Path) -> BTreeMap<String, SystemTime> {
    let Ok(entries) = fs::read_dir(folder.join("out/runs")) else { return BTreeMap::new() };
    let finished = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        let is_run = name.ends_with(".json");
        is_run.then(|| (name, entry.metadata().unwrap().modified().unwrap()))
    };
    entries.filter_map(|entry| finished(entry.unwrap())).collect()
}

fn documents(text: &[u8]) -> Vec<Document> {
    let text = std::str::from_utf8(text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const SPEC: &str = "study = 'fake'\ncpus = [8, 16]\narm = ['stock', 'posted']\nseeds = 2\n";

#[test]
fn a_second_call_executes_nothing_and_more_seeds_only_those() {
    let folder = tempfile::tempdir().unwrap();
    let first = sweep(folder.path(), SPEC, &[]);
    assert!(first.status.success(), "{}", stderr(&first));
    assert!(stderr(&first).contains("8 runs, 0 of them finished before"), "{}", stderr(&first));
    let before = kept(folder.path());
    assert_eq!(before.len(), 8);
    let again = sweep(folder.path(), SPEC, &["--jobs", "1"]);
    assert!(stderr(&again).contains("8 runs, 8 of them finished before"), "{}", stderr(&again));
    assert_eq!(again.stdout, first.stdout);
    assert_eq!(kept(folder.path()), before);
    let more = sweep(folder.path(), &SPEC.replace("seeds = 2", "seeds = 3"), &[]);
    assert!(stderr(&more).contains("12 runs, 8 of them finished before"), "{}", stderr(&more));
    let after = kept(folder.path());
    assert!(after.len() == 12 && before.iter().all(|(name, time)| after[name] == *time));
    let csv = fs::read_to_string(folder.path().join("out/results.csv")).unwrap();
    assert_eq!(csv.lines().filter(|line| line.contains(",waits,")).count(), 12);
}

#[test]
fn points_have_the_arms_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let points = sweep(folder.path(), SPEC, &["--format", "json"]);
    let mut run = Command::new(fake::path());
    run.args(["run", "fake", "--cpus", "8,16", "--arm", "stock,posted", "--seeds", "2"]);
    let run = run.args(["--format", "json"]).output().unwrap();
    let (points, runs) = (documents(&points.stdout), documents(&run.stdout));
    assert_eq!((points.len(), runs.len()), (2, 2));
    for (point, run) in points.iter().zip(&runs) {
        assert_eq!((point.cpus, &point.params), (run.cpus, &run.params));
        for (own, other) in point.arms.iter().zip(&run.arms) {
            assert_eq!((&own.arm, &own.seeds), (&other.arm, &other.seeds));
            assert_eq!((&own.metrics, &own.locks), (&other.metrics, &other.locks));
        }
    }
    let collected = sweep(folder.path(), SPEC, &["--collect", "--format", "json"]);
    assert_eq!(documents(&collected.stdout), points);
}

#[test]
fn a_killed_sweep_continues() {
    let folder = tempfile::tempdir().unwrap();
    let spec = "study = 'fake'\narm = 'stock'\nseeds = 6\nset = { pause_s = 1 }\n";
    let mut first = command(folder.path(), spec, &["--jobs", "1"]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while kept(folder.path()).len() < 2 {
        assert!(first.try_wait().unwrap().is_none(), "it ended by itself");
        thread::sleep(Duration::from_millis(5));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let before = kept(folder.path());
    assert!((2..6).contains(&before.len()), "{before:?}");
    let again = sweep(folder.path(), spec, &[]);
    let said = format!("6 runs, {} of them finished before", before.len());
    assert!(stderr(&again).contains(&said), "{}", stderr(&again));
    let after = kept(folder.path());
    assert!(after.len() == 6 && before.iter().all(|(name, time)| after[name] == *time));
}

#[test]
fn a_failed_run_loses_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let spec = "study = 'fake'\narm = 'stock'\nseeds = 2\nset = { factor = [3, 66] }\n";
    let output = sweep(folder.path(), spec, &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("error: 2 of 4 runs failed: study `fake`, arm `stock`"), "{told}");
    assert!(told.contains("66 is not a valid factor"), "{told}");
    assert_eq!(kept(folder.path()).len(), 2);
    assert!(String::from_utf8(output.stdout).unwrap().contains("waits"));
}

#[test]
fn a_run_is_executed_alone_under_its_key_only() {
    let folder = tempfile::tempdir().unwrap();
    let plan = sweep(folder.path(), SPEC, &["--plan"]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    let runs = plan["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 8);
    let (key, spec) = (runs[3]["key"].as_str().unwrap(), runs[3]["spec"].to_string());
    let other = sweep(folder.path(), &spec, &["--one", "0123456789abcdef"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("differs from that of the plan"), "{}", stderr(&other));
    for executed in ["true", "false"] {
        let one = sweep(folder.path(), &spec, &["--one", key]);
        let told = String::from_utf8(one.stdout).unwrap();
        assert!(told.contains(&format!("\"executed\":{executed}")), "{told}");
    }
    assert_eq!(kept(folder.path()).len(), 1);
    assert!(sweep(folder.path(), SPEC, &["--one", key]).status.code() == Some(2));
}

#[test]
fn a_wrong_spec_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (spec, why) in [
        ("arm = 'stock'", "the sweep names no study"),
        ("study = 'fkae'", "there is no study or script named `fkae`"),
        ("study = 'fake'\nseed = 'one'", "invalid type"),
        ("study = 'fake'\narms = 'stock'", "unknown field `arms`"),
        ("study = 'fake'\nshape = 'round'", "there is no shape `round` (known: keep, fill, flat)"),
        ("study = 'fake'\nset = { factor = 1000 }", "factor"),
        ("study = [", "the sweep `spec.toml` is wrong"),
    ] {
        let output = sweep(folder.path(), spec, &[]);
        assert_eq!(output.status.code(), Some(2), "{spec}");
        assert!(stderr(&output).contains(why), "{spec}: {}", stderr(&output));
        assert!(!folder.path().join("out").exists());
    }
}

/// Returns the keys of the runs of a sweep.
fn keys(folder: &Path, spec: &str) -> Vec<String> {
    let planned = command(folder, spec, &[]).arg("--plan").output().unwrap();
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    let runs = plan["runs"].as_array().unwrap();
    runs.iter().map(|run| run["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_kept_file_that_is_not_the_document_of_its_run_is_named_and_executed_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = sweep(folder.path(), SPEC, &[]);
    assert!(first.status.success(), "{}", stderr(&first));
    let keys = keys(folder.path(), SPEC);
    let file = |at: usize| folder.path().join(format!("out/runs/{}.json", keys[at]));
    let whole = fs::read_to_string(file(0)).unwrap();
    // A copy of another run, an edited value, half a document, and nothing.
    fs::copy(file(0), file(1)).unwrap();
    let edited = whole.replacen("\"mean\":", "\"mean\":1", 1);
    assert_ne!(edited, whole);
    fs::write(file(0), edited).unwrap();
    fs::write(file(2), &whole[..whole.len() / 2]).unwrap();
    fs::write(file(3), "").unwrap();
    let collected = sweep(folder.path(), SPEC, &["--collect"]);
    assert_eq!(collected.status.code(), Some(1), "{}", stderr(&collected));
    let again = sweep(folder.path(), SPEC, &[]);
    let told = stderr(&again);
    assert!(again.status.success(), "{told}");
    assert_eq!(told.matches("note: not the document of its run").count(), 4, "{told}");
    let executed = told.find("4 of them finished before").expect("the other four are kept");
    assert!(told.rfind("note: not the").unwrap() < executed, "before anything runs: {told}");
    assert_eq!(again.stdout, first.stdout);
}

/// A folder of another user has files under the names that a sweep uses.
#[test]
fn planted_files_are_neither_followed_nor_emptied_nor_waited_for() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("out/runs");
    fs::create_dir_all(&runs).unwrap();
    let [secret, absent] = ["secret", "absent"].map(|name| folder.path().join(name));
    fs::write(&secret, "precious").unwrap();
    let keys = keys(folder.path(), SPEC);
    let place = |at: usize, end: &str| runs.join(format!("{}.{end}", keys[at]));
    symlink(&secret, place(0, "lock")).unwrap();
    symlink(&absent, place(1, "lock")).unwrap();
    let pipe = |path: &Path| Command::new("mkfifo").arg(path).status().unwrap().success();
    assert!(pipe(&place(2, "lock")) && pipe(&place(3, "json")));
    symlink("/dev/zero", place(4, "json")).unwrap();
    symlink(&secret, place(5, "json")).unwrap();
    let output = sweep(folder.path(), SPEC, &[]);
    assert!(!output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "precious");
    assert!(!absent.exists(), "a link created its target");
    // The folder of runs itself may be a link as well.
    let other = tempfile::tempdir().unwrap();
    fs::create_dir(other.path().join("out")).unwrap();
    symlink(&runs, other.path().join("out/runs")).unwrap();
    let output = sweep(other.path(), SPEC, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn a_sweep_of_too_many_runs_is_refused_before_it_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let many = "study = 'fake'\ncpus = [1, 2, 3, 4, 5, 6, 7, 8]\nseeds = 10000\n\
                set.factor = [1, 2, 3, 4, 5]\n";
    let output = sweep(folder.path(), many, &["--plan"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("allows at most 200000"), "{}", stderr(&output));
}
