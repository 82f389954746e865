//! A comparison of two arms in the layout of the kernel test robot (LKP), which `explain` reads.

use std::collections::BTreeMap;

use mmscale_document::{
    ArmRecord, Better, Counterpart, Document, LOCK_CLASSES, LockKind, LockRecord, Metric, class_of,
    counterpart,
};

/// The functions in which a CPU waits for a spin lock, innermost first.
const WAITING: &str = "native_queued_spin_lock_slowpath._raw_spin_lock";
/// Digits of a share, and the least share that is shown, in percent.
const LEAST: f64 = 0.005;

/// Formats the first arm and another one, with the figures of both. The lines are longer than those
/// of other texts, as those of the robot are.
pub fn lkp_text(
    document: &Document,
    headline: &str,
    before: &ArmRecord,
    after: &ArmRecord,
) -> String {
    let study = &document.study;
    let mut text = String::new();
    let sides = [before, after];
    let claimed = sides.map(|arm| arm.metrics.get(headline));
    if let [Some(one), Some(other)] = claimed {
        text.push_str(&claim(study, headline, one, other));
    }
    text.push_str(&machine(document));
    let arms = format!("commit: \n  {}\n  {}\n\n", before.arm, after.arm);
    text.push_str(&arms);
    text.push_str(&format!("{:>16.16} {:>27.27} \n", before.arm, after.arm));
    text.push_str("---------------- --------------------------- \n");
    text.push_str("         %stddev     %change         %stddev\n");
    text.push_str("             \\          |                \\  \n");
    for (name, one) in &before.metrics {
        let Some(other) = after.metrics.get(name) else { continue };
        if one.mean == 0.0 && other.mean == 0.0 || !one.mean.is_finite() || !other.mean.is_finite()
        {
            continue;
        }
        let change = match one.mean {
            0.0 => format!("{:+.1}", other.mean),
            mean => format!("{:+.1}%", 100.0 * (other.mean / mean - 1.0)),
        };
        let row = row(&figure(one), &change, &figure(other), &format!("{study}.{name}"));
        text.push_str(&row);
    }
    for (path, [one, other]) in waits(sides) {
        let change = format!("{:+.1}", other - one);
        let name = format!("perf-profile.calltrace.cycles-pp.{path}");
        text.push_str(&row(&format!("{one:.2}"), &change, &format!("{other:.2}"), &name));
    }
    text.push_str(&format!(
        "\nSimulated by {}. Shares are of the time of all CPUs; waits for locks for which tasks \
         sleep are not CPU time\nand are not here.\n",
        document.build
    ));
    text
}

/// Formats the sentence that the robot begins with.
fn claim(study: &str, headline: &str, before: &Metric, after: &Metric) -> String {
    let percent = 100.0 * (after.mean / before.mean - 1.0);
    if !percent.is_finite() {
        return String::new();
    }
    let better = before.better.is_none_or(|better| (better == Better::Higher) == (percent >= 0.0));
    let word = if better { "improvement" } else { "regression" };
    format!("mmscale noticed a {percent:+.1}% {word} of {study}.{headline} on:\n\n")
}

/// Formats the benchmark and the machine.
fn machine(document: &Document) -> String {
    let Document { study, profile, cpus, .. } = document;
    let nodes = document.topology.as_ref().map_or(1, |topology| topology.nodes);
    let mut text = format!(
        "testcase: {study}\ntest machine: {cpus} threads {nodes} sockets (profile {profile})\n\
         parameters:\n\n"
    );
    for (key, value) in &document.params {
        text.push_str(&format!("\t{key}: {value}\n"));
    }
    text.push('\n');
    text
}

/// Formats a row as the robot does.
fn row(before: &str, change: &str, after: &str, name: &str) -> String {
    format!("{before:<16} {change:>9} {after:>17}  {name}\n")
}

/// Formats the mean of a metric with its deviation.
fn figure(metric: &Metric) -> String {
    let mean = match metric.mean.abs() {
        x if x >= 1000.0 => format!("{:.0}", metric.mean),
        x if x >= 1.0 || x == 0.0 => format!("{:.3}", metric.mean),
        _ => format!("{:.6}", metric.mean),
    };
    match metric.stddev_percent().filter(|percent| percent.is_finite() && *percent >= 0.5) {
        Some(percent) => format!("{mean:>10} ±{percent:>3.0}%"),
        None => format!("{mean:>10}"),
    }
}

/// Returns the waits for spin locks of both arms by path, in percent of the time of all CPUs, the
/// largest first.
fn waits(sides: [&ArmRecord; 2]) -> Vec<(String, [f64; 2])> {
    let mut all = BTreeMap::<String, [f64; 2]>::new();
    for (side, arm) in sides.into_iter().enumerate() {
        let time = arm.cpu_time.map_or(0.0, |time| time.all_ns as f64);
        for lock in arm.locks.iter().filter(|lock| !lock.sleeps && time > 0.0) {
            if let Some(path) = path(lock) {
                let share = 100.0 * lock.wait_within_ns() as f64 / time;
                all.entry(path).or_default()[side] += share;
            }
        }
    }
    let largest = |shares: &[f64; 2]| shares[0].max(shares[1]);
    let mut all: Vec<_> = all.into_iter().filter(|(_, shares)| largest(shares) >= LEAST).collect();
    all.sort_by(|a, b| largest(&b.1).total_cmp(&largest(&a.1)));
    all
}

/// Returns the path of a wait, innermost function first. If the function alone does not say which
/// lock it is, a function that takes the lock is put in front of it, as Linux has them.
fn path(lock: &LockRecord) -> Option<String> {
    let of = |function: &str| {
        let class = class_of(&[function.to_owned()], LockKind::Spin);
        matches!(counterpart(class), Counterpart::Class(class) if class == lock.class)
    };
    if of(&lock.site) {
        return Some(format!("{WAITING}.{}", lock.site));
    }
    let functions = LOCK_CLASSES.iter().flat_map(|row| row.functions.iter());
    let taker = functions.copied().find(|function| of(function));
    taker.map(|taker| format!("{WAITING}.{taker}.{}", lock.site))
}
