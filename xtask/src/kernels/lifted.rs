//! Replays of recorded kernels for items of the gallery. Their figures are kept next to those of
//! the model.

use super::recording::{called, document};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The files with what is recorded and replayed, with the items, and with the figures.
const REPLAYS: &str = "gallery/lift.toml";
const ITEMS: &str = "gallery/published.toml";
const KEPT: &str = "gallery/lifted.json";

#[derive(Deserialize)]
struct Replays {
    replay: Vec<Replay>,
    #[serde(default)]
    curve: Vec<Curve>,
}

/// A replay on several numbers of CPUs, which no measurement is next to.
#[derive(Deserialize)]
struct Curve {
    name: String,
    profile: String,
    /// CPUs of the replay.
    cpus: Vec<u64>,
    #[serde(flatten)]
    recorded: Recorded,
}

/// The image and the script of a recording.
#[derive(Deserialize)]
struct Recorded {
    kernel: String,
    script: String,
    #[serde(default)]
    set: Vec<String>,
    ops: Option<u64>,
}

/// A replay for an arm of an item.
#[derive(Deserialize)]
struct Replay {
    item: String,
    arm: String,
    #[serde(flatten)]
    recorded: Recorded,
    /// CPUs of the replay.
    cpus: u64,
    /// The point of the item, if it is another number.
    at: Option<u64>,
}

impl Replay {
    /// Returns the arm and the point, as comparisons have them.
    fn label(&self) -> String {
        format!("{} at {}", self.arm, self.at.unwrap_or(self.cpus))
    }
}

impl Recorded {
    /// Returns the words of the call that records, without the file.
    fn record(&self) -> Vec<String> {
        let words = ["lift", "record", "--kernel", &self.kernel, &self.script];
        let mut words = words.map(str::to_owned).to_vec();
        words.extend(self.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
        words.extend(self.ops.iter().flat_map(|ops| ["--ops".to_owned(), ops.to_string()]));
        words
    }
}

/// Records and replays all, and keeps the figures. With `only` those whose item, arm, name or
/// script has this word; the others stay as they are kept.
///
/// # Errors
/// The call that failed.
pub(super) fn keep(root: &Path, program: &Path, only: Option<&str>) -> Result<String, String> {
    let read =
        |name: &str| fs::read_to_string(root.join(name)).map_err(|why| format!("{name}: {why}"));
    let replays: Replays =
        toml::from_str(&read(REPLAYS)?).map_err(|why| format!("{REPLAYS}: {why}"))?;
    let items: toml::Table =
        toml::from_str(&read(ITEMS)?).map_err(|why| format!("{ITEMS}: {why}"))?;
    let folder = tempfile::tempdir().map_err(|why| format!("cannot create a folder: {why}"))?;
    let mut files: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut file_of = |record: Vec<String>| -> Result<String, String> {
        if let Some(file) = files.get(&record) {
            return Ok(file.clone());
        }
        println!("kernels: {}", record.join(" "));
        let file = folder.path().join(format!("{}.lift", files.len()));
        let file = file.to_str().expect("UTF-8").to_owned();
        let words: Vec<&str> = record.iter().map(String::as_str).chain(["-o", &file]).collect();
        called(program, &words)?;
        files.insert(record, file.clone());
        Ok(file)
    };
    let kept: Value = match only {
        Some(_) => serde_json::from_str(&read(KEPT)?).map_err(|why| format!("{KEPT}: {why}"))?,
        None => Value::Null,
    };
    let is_meant =
        |words: &[&str]| only.is_none_or(|only| words.iter().any(|word| word.contains(only)));
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    let mut build = kept["build"].clone();
    for curve in &replays.curve {
        let record = curve.recorded.record();
        if !is_meant(&[&curve.name, &curve.recorded.script]) {
            curves.extend(kept_of(&kept["curves"], &[("name", &curve.name)]));
            continue;
        }
        let file = file_of(record.clone())?;
        let points = points_of(program, curve, &file)?;
        build = points.1;
        curves.push(json!({
            "name": curve.name,
            "profile": curve.profile,
            "recorded": record.join(" "),
            "points": points.0,
            "commit": build["commit"],
        }));
    }
    for replay in &replays.replay {
        let record = replay.recorded.record();
        if !is_meant(&[&replay.item, &replay.arm, &replay.recorded.script]) {
            let label = replay.label();
            let same = [("item", replay.item.as_str()), ("label", &label)];
            rows.extend(kept_of(&kept["rows"], &same));
            continue;
        }
        let file = file_of(record.clone())?;
        let machine = machine_of(&items, &replay.item)?;
        let own = root.join(format!("gallery/machines/{machine}.toml"));
        let profile = if own.is_file() { own.to_str().expect("UTF-8") } else { machine };
        let cpus = replay.cpus.to_string();
        let run = ["run", &file, "--profile", profile, "--cpus", &cpus, "--seeds", "1"];
        let run =
            document(program, &[&run[..], &["--shape", "fill", "--format", "json"]].concat())?;
        let shown = document(program, &["lift", "show", &file, "--format", "json"])?;
        build = run["build"].clone();
        println!("kernels: {} {}: {}", replay.item, replay.arm, rate_of(&run["arms"][0]));
        rows.push(row(replay, &record, &run, &shown));
    }
    let document = json!({"build": build, "rows": rows, "curves": curves});
    let text = serde_json::to_string_pretty(&document).expect("a document") + "\n";
    fs::write(root.join(KEPT), text).map_err(|why| format!("{KEPT}: {why}"))?;
    Ok(format!("kernels: kept {} replays in {KEPT}", replays.replay.len()))
}

/// Replays the points of a curve. Returns them, and the program's build.
fn points_of(program: &Path, curve: &Curve, file: &str) -> Result<(Vec<Value>, Value), String> {
    let (mut points, mut build) = (Vec::new(), Value::Null);
    for &number in &curve.cpus {
        let cpus = number.to_string();
        let run = ["run", file, "--profile", &curve.profile, "--cpus", &cpus, "--seeds", "1"];
        let run = [&run[..], &["--shape", "fill", "--format", "json"]].concat();
        let run = document(program, &run)?;
        build = run["build"].clone();
        let arm = &run["arms"][0];
        println!("kernels: {} on {cpus}: {}", curve.name, rate_of(arm));
        points.push(point(arm, number));
    }
    Ok((points, build))
}

/// Returns the kept row with these values.
fn kept_of(all: &Value, same: &[(&str, &str)]) -> Option<Value> {
    let is_same = |row: &&Value| same.iter().all(|(key, value)| row[*key] == json!(value));
    all.as_array()?.iter().find(is_same).cloned()
}

fn machine_of<'a>(items: &'a toml::Table, id: &str) -> Result<&'a str, String> {
    let all = items.get("item").and_then(toml::Value::as_array).into_iter().flatten();
    let item =
        all.into_iter().find(|item| item.get("id").and_then(toml::Value::as_str) == Some(id));
    let machine = item.and_then(|item| item.get("machine")?.as_str());
    machine.ok_or_else(|| format!("{ITEMS} has no machine of an item `{id}`"))
}

fn rate_of(arm: &Value) -> &Value {
    &arm["metrics"]["ops_per_s"]["mean"]
}

/// Returns the figures of a point of a curve.
fn point(arm: &Value, cpus: u64) -> Value {
    let (lock, share) = longest_waits(arm);
    let of_calls = ["call_wait_share", "called_share"];
    let calls = of_calls.iter().map(|name| arm["metrics"][*name]["mean"].as_f64().unwrap_or(0.0));
    json!({
        "cpus": cpus,
        "value": rate_of(arm),
        "lock": lock,
        "share": share,
        "calls_share": calls.sum::<f64>(),
    })
}

/// Returns the lock that is waited for longest, and its share, as the answer of a run has it: of
/// the time of CPUs that are not idle, for a sleeping lock with the waits of tasks.
fn longest_waits(arm: &Value) -> (String, f64) {
    let number = |of: &Value| of.as_f64().unwrap_or(0.0);
    let locks = arm["locks"].as_array().cloned().unwrap_or_default();
    let within = |lock: &Value| number(&lock["wait_total_ns"]) - number(&lock["wait_after_ns"]);
    let sleeps = |lock: &Value| lock["sleeps"].as_bool() == Some(true);
    let busy = number(&arm["cpu_time"]["busy_ns"]);
    let asleep: f64 = locks.iter().filter(|lock| sleeps(lock)).map(within).sum();
    let mut by_class: BTreeMap<&str, f64> = BTreeMap::new();
    for lock in &locks {
        let class = lock["class"].as_str().unwrap_or("?");
        let of = busy + if sleeps(lock) { asleep } else { 0.0 };
        *by_class.entry(class).or_default() += within(lock) / of.max(1.0);
    }
    let longest = by_class.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    longest.map_or(("none".to_owned(), 0.0), |(lock, share)| (lock.to_owned(), share))
}

/// Returns the figures of a replay: its rate, and the lock and the line that are waited for
/// longest; the share of lines is of the time of all CPUs.
fn row(replay: &Replay, record: &[String], run: &Value, shown: &Value) -> Value {
    let arm = &run["arms"][0];
    let number = |of: &Value| of.as_f64().unwrap_or(0.0);
    let (lock, share) = longest_waits(arm);
    let wait_of = |line: &&Value| number(&line["wait_ns"]);
    let lines = arm["lines"].as_array().into_iter().flatten();
    let line = lines.max_by(|a, b| wait_of(a).total_cmp(&wait_of(b)));
    json!({
        "line": line.map_or("none", |line| line["line"].as_str().unwrap_or("?")),
        "lines_share": arm["metrics"]["line_wait_share"]["mean"],
        "item": replay.item,
        "label": replay.label(),
        "value": arm["metrics"]["ops_per_s"]["mean"],
        "lock": lock,
        "share": share,
        "recorded": record.join(" "),
        "package": shown["origin"]["package"],
        "commit": run["build"]["commit"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay() -> Replay {
        toml::from_str::<Replays>(
            "[[replay]]\nitem = 'A'\narm = 'b'\nkernel = 'k'\nscript = 's'\ncpus = 80\nat = 79\n\
             set = ['x=1']\nops = 2\n",
        )
        .unwrap()
        .replay
        .remove(0)
    }

    #[test]
    fn a_row_has_the_rate_and_the_lock_with_the_longest_waits() {
        let run = json!({"arms": [{
            "cpu_time": {"all_ns": 200.0, "busy_ns": 100.0},
            "metrics": {"ops_per_s": {"mean": 5.0}, "line_wait_share": {"mean": 0.1}},
            "lines": [{"line": "a", "wait_ns": 1.0}, {"line": "b", "wait_ns": 2.0}],
            "locks": [
                {"class": "zone", "wait_total_ns": 30.0},
                {"class": "lruvec", "wait_total_ns": 20.0},
                {"class": "lruvec", "wait_total_ns": 20.0},
            ],
        }]});
        let replay = replay();
        let record = replay.recorded.record();
        assert_eq!(record.join(" "), "lift record --kernel k s --set x=1 --ops 2");
        let row = row(&replay, &record, &run, &json!({"origin": {"package": "p"}}));
        assert_eq!((&row["label"], &row["lock"]), (&json!("b at 79"), &json!("lruvec")));
        assert_eq!((&row["value"], &row["share"]), (&json!(5.0), &json!(0.4)));
        // Waits beyond the window, and without a CPU.
        let slept = json!({"arms": [{
            "cpu_time": {"all_ns": 200.0, "busy_ns": 50.0},
            "locks": [{
                "class": "mmap_lock", "sleeps": true,
                "wait_total_ns": 210.0, "wait_after_ns": 60.0,
            }],
        }]});
        let row_of = |run| super::row(&replay, &record, run, &json!({}));
        assert_eq!(row_of(&slept)["share"], json!(150.0 / 200.0));
        assert_eq!((&row["line"], &row["lines_share"]), (&json!("b"), &json!(0.1)));
    }

    #[test]
    fn rows_that_are_not_meant_stay() {
        let kept = json!([{"item": "A", "label": "b at 79", "value": 3.0}, {"item": "A"}]);
        let (replay, other) = (replay(), Replay { at: None, ..replay() });
        let of = |label: &str| kept_of(&kept, &[("item", "A"), ("label", label)]);
        assert_eq!(of(&replay.label()).unwrap()["value"], json!(3.0));
        assert_eq!([of(&other.label()), kept_of(&Value::Null, &[("item", "A")])], [None, None]);
    }

    #[test]
    fn an_item_without_machine_is_an_error() {
        let items = toml::from_str("[[item]]\nid = \"A\"\nmachine = \"m\"\n").unwrap();
        assert_eq!(machine_of(&items, "A"), Ok("m"));
        assert!(machine_of(&items, "B").is_err());
    }
}
