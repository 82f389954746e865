//! A report of the kernel test robot: its claim, its locks before and after the commit, and the
//! script that is nearest to its benchmark.

use std::collections::BTreeMap;

use mmscale_document::{CALLING, LockKind, class_of, is_acquiring, is_sleeping};
use mmscale_harness::Registry;
use mmscale_measured::Robot;

/// Number of metrics and locks that are shown.
const NAMED: usize = 4;

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
        let text = format!("{class}: {before:.1} -> {after:.1} % of all samples");
        lines.push(("before", text));
    }
    lines
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
pub(super) fn locks(robot: &Robot) -> Vec<(String, (f64, f64))> {
    let mut sums = BTreeMap::<String, (f64, f64)>::new();
    for row in &robot.paths {
        let inner = row.path.last().map_or("", String::as_str);
        let class = match is_acquiring(inner) {
            true => lock(&row.path),
            false if CALLING.contains(&inner) => "waits for other CPUs".to_owned(),
            false => continue,
        };
        let sum = sums.entry(class).or_default();
        *sum = (sum.0 + row.before, sum.1 + row.after);
    }
    let mut all: Vec<(String, (f64, f64))> = sums.into_iter().collect();
    let largest = |(before, after): (f64, f64)| before.max(after);
    all.sort_by(|a, b| largest(b.1).total_cmp(&largest(a.1)));
    all
}

fn lock(path: &[String]) -> String {
    let is_lock = |name: &&String| is_acquiring(name) || is_sleeping(name);
    let inner = path.iter().rev().take_while(is_lock).count();
    let outer = &path[..path.len() - inner];
    let has = |parts: &[&str]| {
        path[path.len() - inner..].iter().any(|name| parts.iter().any(|part| name.contains(part)))
    };
    let kind = match () {
        () if has(&["rwsem", "down_"]) => LockKind::Rwsem,
        () if has(&["mutex"]) => LockKind::Mutex,
        () if has(&["_read_lock", "_write_lock"]) => LockKind::Rwlock,
        () => LockKind::Spin,
    };
    match (class_of(outer, kind), outer.last()) {
        ("other" | "rwsem" | "mutex", Some(taker)) => format!("lock in {taker}"),
        (class, _) => class.to_owned(),
    }
}

/// Returns the command of the built-in script that is nearest to the benchmark.
pub(super) fn script(robot: &Robot, registry: &Registry, cpus: Option<u32>) -> Option<String> {
    let test = robot.parameters.get("test")?;
    registry.find(test).ok()?;
    let size = cpus.map_or(String::new(), |cpus| format!(" --cpus {cpus} --shape fill"));
    let threads = match robot.parameters.get("mode").map(String::as_str) {
        Some("thread") => " --set in_threads=1",
        _ => "",
    };
    Some(format!("mmscale run {test}{threads}{size}"))
}
