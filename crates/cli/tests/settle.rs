//! Maps: what is run, what is continued, and what other programs run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use mmscale_document::Settlement;

mod fake;

const KNOBS: [&str; 4] = ["--knob", "factor=1..60", "--knob", "cpus=8..64"];

/// Runs `settle` of the fake study in a folder.
fn settle(folder: &Path, more: &[&str]) -> Output {
    command(folder, more).output().unwrap()
}

fn command(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(fake::path());
    command.args(["settle", "fake", "--arm", "stock,posted", "--seeds", "1", "-o", "map"]);
    command.args(KNOBS).args(more).current_dir(folder);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn map(folder: &Path) -> Settlement {
    serde_json::from_str(&fs::read_to_string(folder.join("map/settle.json")).unwrap()).unwrap()
}

fn kept(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder.join("map/runs")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".json")).collect()
}

#[test]
fn a_second_call_runs_nothing_and_more_runs_continue() {
    let folder = tempfile::tempdir().unwrap();
    let first = settle(folder.path(), &["--runs", "30"]);
    assert!(first.status.success(), "{}", stderr(&first));
    let (few, runs) = (map(folder.path()), kept(folder.path()));
    assert_eq!((few.points.len(), runs.len()), (15, 30));
    let again = settle(folder.path(), &["--runs", "30"]);
    assert!(!stderr(&again).contains("points;"), "{}", stderr(&again));
    assert_eq!(again.stdout, first.stdout);
    let more = settle(folder.path(), &["--runs", "40"]);
    assert!(more.status.success(), "{}", stderr(&more));
    let (more, all) = (map(folder.path()), kept(folder.path()));
    assert_eq!(more.points[..15], few.points[..]);
    assert!(all.len() == 40 && all.is_superset(&runs));
    // The second arm has half of the waits everywhere.
    assert_eq!((few.regions.len(), &few.regions[0].best[..]), (1, &["posted".to_owned()][..]));
    assert!(few.error.missed == 0 && few.error.distance.is_none());
}

/// Another program asks for the next runs, has them executed, and asks again.
#[test]
fn runs_that_another_program_executes_give_the_same_map() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(settle(own.path(), &["--runs", "32"]).status.success());
    let mut rounds = 0;
    loop {
        let plan = settle(other.path(), &["--runs", "32", "--plan"]);
        let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
        let runs = plan["runs"].as_array().unwrap();
        if runs.is_empty() {
            break;
        }
        rounds += 1;
        for run in runs {
            fs::write(other.path().join("one.json"), run["spec"].to_string()).unwrap();
            let mut one = Command::new(fake::path());
            one.args(["sweep", "one.json", "-o", "map", "--one", run["key"].as_str().unwrap()]);
            assert!(one.current_dir(other.path()).output().unwrap().status.success());
        }
    }
    assert_eq!(rounds, 2, "the first points, and a batch near the boundary");
    assert_eq!(kept(own.path()), kept(other.path()));
    let collected = settle(other.path(), &["--runs", "32", "--collect", "--format", "json"]);
    let collected: Settlement = serde_json::from_slice(&collected.stdout).unwrap();
    assert_eq!(
        Settlement { command: vec![], ..collected },
        Settlement { command: vec![], ..map(own.path()) }
    );
}

/// A kill in the second batch loses the runs that it interrupts, and nothing else.
#[test]
fn a_killed_map_continues_as_if_it_had_not_been() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let runs = ["--runs", "32", "--set", "pause_s=0.1"];
    let mut first = command(own.path(), &[&runs[..], &["--jobs", "1"]].concat());
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has =
        |number: usize| own.path().join("map/runs").exists() && kept(own.path()).len() >= number;
    while !has(20) {
        assert!(first.try_wait().unwrap().is_none(), "it ended by itself");
        thread::sleep(Duration::from_millis(5));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let before = kept(own.path());
    assert!(before.len() < 32 && !own.path().join("map/settle.json").exists(), "{before:?}");
    let [again, whole] = [own.path(), other.path()].map(|folder| settle(folder, &runs));
    assert!(again.status.success() && whole.status.success(), "{}", stderr(&again));
    assert_eq!(again.stdout, whole.stdout);
    assert!(kept(own.path()) == kept(other.path()) && kept(own.path()).is_superset(&before));
}

/// Points whose runs fail are left out, and said.
#[test]
fn failed_runs_lose_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let knob = ["--knob", "factor=66..67", "--knob", "cpus=8..64"];
    let mut command = Command::new(fake::path());
    command.args(["settle", "fake", "--arm", "stock,posted", "--seeds", "1", "-o", "map"]);
    let output = command.args(knob).args(["--runs", "60"]).current_dir(folder.path()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told = stderr(&output);
    assert!(told.contains("runs failed, and their points are left out"), "{told}");
    let map = map(folder.path());
    let lost = map.points.iter().filter(|point| point.values.is_empty());
    assert!(lost.clone().count() > 0 && lost.clone().all(|point| point.at[0] == 66.0));
}

#[test]
fn places_near_no_boundary_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let output = settle(folder.path(), &["--runs", "30", "--robust", "--machines", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let costs = map(folder.path()).costs.expect("asked for");
    assert_eq!((costs.machines, costs.places.len()), (2, 0));
}
