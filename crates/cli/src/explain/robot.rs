//! A report of the kernel test robot: its claim, its locks before and after the commit, and the
//! script that is nearest to its benchmark.

use std::collections::BTreeMap;

use mmscale_document::{Counterpart, Document, counterpart};
use mmscale_harness::{Registry, Shape};
use mmscale_measured::{Robot, lock_of_robot};

use super::Recipe;
use super::benchmark::{self, Said};

/// Number of metrics and locks that are shown.
const NAMED: usize = 4;
/// Waits below this are not shown, in percent of the CPU time.
const LEAST: f64 = 0.1;

/// Returns what a report says, as keys and texts.
pub(super) fn lines(robot: &Robot) -> Vec<(&'static str, String)> {
    let mut lines = vec![("report", what(robot))];
    if let Some((percent, metric)) = &robot.claim {
        lines.push(("claim", format!("{metric} {percent:+} %")));
    }
    let claimed = robot.claim.as_ref().map(|(_, metric)| metric.as_str());
    let own = robot.metrics.iter().filter(|metric| {
        let test = robot.testcase.as_deref().unwrap_or("?");
        Some(metric.name.as_str()) == claimed || metric.name.starts_with(test)
    });
    for metric in own.take(NAMED) {
        let change = 100.0 * (metric.after / metric.before - 1.0);
        let change = if change.is_finite() { format!(", {change:+.1} %") } else { String::new() };
        let text = format!("{}: {} -> {}{change}", metric.name, metric.before, metric.after);
        lines.push(("metric", text));
    }
    let mut locks = locks(robot);
    locks.truncate(NAMED);
    for (class, (before, after)) in locks {
        let text = match robot.is_single {
            true => format!("{class}: {after:.1} % of all samples"),
            false => format!("{class}: {before:.1} -> {after:.1} % of all samples"),
        };
        lines.push(("locks", text));
    }
    lines.extend(robot.cut.map(|line| {
        ("note", format!("line {line}: a row that was cut within its functions: not counted"))
    }));
    lines.extend(fast(robot).map(|text| ("note", text)));
    lines.extend(tasks(robot).map(|text| ("note", text)));
    lines.extend(not_said(robot).map(|text| ("note", text)));
    lines
}

/// Says which samples are in functions that take a lock and show no wait.
fn fast(robot: &Robot) -> Option<String> {
    let own = || robot.paths.iter().filter(|row| row.is_fast);
    let (before, after) =
        own().fold((0.0, 0.0), |sum, row| (sum.0 + row.before, sum.1 + row.after));
    let mut names: Vec<&str> = own().filter_map(|row| Some(row.path.last()?.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    let shares = match robot.is_single {
        true => format!("{after:.1} %"),
        false => format!("{before:.1} -> {after:.1} %"),
    };
    (f64::max(before, after) >= LEAST).then(|| {
        format!(
            "of these, {shares} of all samples are in {} without a slow path below, so that they \
             may not wait",
            names.join(", ")
        )
    })
}

/// Describes the benchmark and the machine.
fn what(robot: &Robot) -> String {
    let mut parts = vec!["kernel test robot".to_owned()];
    parts.extend(robot.testcase.clone());
    let keys = ["test", "mode", "nr_task", "nr_threads"];
    let of = |key: &&str| robot.parameters.get(*key).map(|value| format!("{key} {value}"));
    parts.extend(keys.iter().filter_map(of));
    parts.extend(robot.machine.clone());
    parts.extend(robot.hardware.clone());
    parts.join(", ")
}

/// Returns the classes of locks with their shares before and after, the largest first.
pub(crate) fn locks(robot: &Robot) -> Vec<(String, (f64, f64))> {
    let mut sums = BTreeMap::<String, (f64, f64)>::new();
    for row in &robot.paths {
        let Some(class) = lock_of_robot(row) else { continue };
        let sum = sums.entry(class).or_default();
        *sum = (sum.0 + row.before, sum.1 + row.after);
    }
    let mut all: Vec<(String, (f64, f64))> = sums.into_iter().collect();
    let largest = |(before, after): (f64, f64)| before.max(after);
    all.sort_by(|a, b| largest(b.1).total_cmp(&largest(a.1)));
    all
}

/// Returns the built-in script of the benchmark: it repeats the report at the size of its machine.
pub(super) fn script(robot: &Robot, registry: &Registry) -> Option<Recipe> {
    let Some(Said::Script(study, set)) = said(robot) else { return None };
    let study = registry.find(study).ok()?;
    let has = |name: &str| study.params().iter().any(|param| param.name == name);
    let mut settings: Vec<String> =
        set.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let threads = robot.parameters.get("mode").is_some_and(|mode| mode == "thread");
    if threads && has("in_threads") {
        settings.push("in_threads=1".to_owned());
    }
    Some(Recipe { study: study.name().to_owned(), arms: &["stock"], settings, shape: Shape::Keep })
}

/// Returns what there is for the test of a report.
fn said(robot: &Robot) -> Option<Said> {
    benchmark::said(robot.testcase.as_deref()?, robot.parameters.get("test")?)
}

/// Says why no script makes the calls of the test.
fn not_said(robot: &Robot) -> Option<String> {
    let Some(Said::Not(why)) = said(robot) else { return None };
    let test = robot.parameters.get("test").map_or("", String::as_str);
    Some(format!("no script makes the calls of {test}: {why}"))
}

/// Says how the number of tasks of the report differs from that of the script, which has one on
/// each CPU.
fn tasks(robot: &Robot) -> Option<String> {
    let tasks = robot.parameters.get("nr_task")?;
    (tasks != "100%").then(|| {
        format!("the report has nr_task {tasks}; the script runs one program on each CPU: --cpus")
    })
}

/// The waits for a lock: those of the report before and after, and those of each arm.
type Row = (Option<(f64, f64)>, Vec<f64>);

/// Formats the locks of the report, before and after, next to those of the arms of a run: waiting
/// in percent of all CPU time.
pub(super) fn next_to(robot: &Robot, document: &Document) -> String {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (class, sides) in locks(robot) {
        rows.entry(class).or_default().0 = Some(sides);
    }
    let arms = document.arms.len();
    for (at, arm) in document.arms.iter().enumerate() {
        let all = arm.cpu_time.map_or(f64::NAN, |time| time.all_ns as f64);
        for lock in &arm.locks {
            let name = match counterpart(&lock.class) {
                Counterpart::Class(class) => class.to_owned(),
                _ => lock.class.clone(),
            };
            let row = rows.entry(name).or_default();
            row.1.resize(arms, 0.0);
            row.1[at] += 100.0 * lock.wait_total_ns as f64 / all;
        }
    }
    let mut text = format!("{:<24}{:>9}{:>9}", "waits, % of CPU time", "before", "after");
    document.arms.iter().for_each(|arm| text.push_str(&format!("{:>12.12}", arm.arm)));
    text.push('\n');
    let largest = |row: &Row| {
        let claimed = row.0.map_or(0.0, |(a, b)| a.max(b));
        row.1.iter().copied().fold(claimed, f64::max)
    };
    let mut rows: Vec<_> = rows.into_iter().filter(|(_, row)| largest(row) >= LEAST).collect();
    rows.sort_by(|a, b| largest(&b.1).total_cmp(&largest(&a.1)));
    for (class, (claimed, mut simulated)) in rows {
        simulated.resize(arms, 0.0);
        let side = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.1}"));
        let (before, after) = (side(claimed.map(|c| c.0)), side(claimed.map(|c| c.1)));
        text.push_str(&format!("{class:<24.24}{before:>9}{after:>9}"));
        simulated.iter().for_each(|n| text.push_str(&format!("{n:>12.1}")));
        text.push('\n');
    }
    text + "before and after are of the report, the others are simulated\n"
}
