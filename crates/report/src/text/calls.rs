//! CPU time as call trees, arms side by side. Each function has its time with and without callees.

use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, Document};

use super::{cut, wrap};

/// Columns of a function's name, and of each number.
const NAME: usize = 30;
const FIGURE: usize = 7;
/// Maximum number of arms side by side.
const ARMS: usize = 3;
/// Minimum share of its tree that a function must have in some arm to be shown.
const SHOWN_SHARE: f64 = 0.005;

/// Time of a call path in one arm: with and without callees, in ms per run.
type Times = (f64, f64);

/// Returns the lines on CPU time; none if it was not collected.
pub(super) fn lines(document: &Document) -> Vec<String> {
    if document.arms.iter().all(|arm| arm.calls.is_empty()) {
        return vec![];
    }
    let what = "CPU time in ms of one run, spinning included and sleeping not: with all that a \
                function calls, and in it alone; functions below 0.5 % of their tree add up in (-)";
    let mut lines = vec![String::new()];
    lines.extend(wrap(what, "", "  "));
    for group in document.arms.chunks(ARMS) {
        lines.extend(head(group));
        lines.extend(tree(group));
    }
    lines
}

fn head(arms: &[ArmRecord]) -> [String; 2] {
    let mut names = " ".repeat(NAME);
    let mut kinds = names.clone();
    for arm in arms {
        names.push_str(&format!("{:>1$}", cut(&arm.arm, 2 * FIGURE - 1), 2 * FIGURE));
        kinds.push_str(&format!("{:>1$}{2:>1$}", "total", FIGURE, "self"));
    }
    [names, kinds]
}

/// Returns the lines of all trees, callees under their callers, ordered by the times of the first
/// arm.
fn tree(arms: &[ArmRecord]) -> Vec<String> {
    let mut paths = BTreeMap::<&[String], Vec<Times>>::new();
    for (at, arm) in arms.iter().enumerate() {
        let ms = |ns: u64| ns as f64 / 1e6 / arm.seeds.len().max(1) as f64;
        for call in &arm.calls {
            let times = paths.entry(&call.path).or_insert_with(|| vec![(0.0, 0.0); arms.len()]);
            times[at] = (ms(call.total_ns), ms(call.self_ns));
        }
    }
    let mut lines = vec![];
    for (root, times) in children(&paths, &[]) {
        let least: Vec<f64> = times.iter().map(|(total, _)| total * SHOWN_SHARE).collect();
        show(&paths, root, times, &least, &mut lines);
    }
    lines
}

/// Returns the callees of the last function of a path, the longest first.
fn children<'a>(
    paths: &'a BTreeMap<&'a [String], Vec<Times>>,
    of: &[String],
) -> Vec<(&'a [String], &'a [Times])> {
    let below = paths.iter().filter(|(path, _)| path.len() == of.len() + 1 && path.starts_with(of));
    let mut below: Vec<_> = below.map(|(path, times)| (*path, times.as_slice())).collect();
    let most = |times: &[Times]| times.iter().map(|(total, _)| *total).fold(0.0, f64::max);
    below.sort_by(|a, b| most(b.1).total_cmp(&most(a.1)));
    below
}

fn show(
    paths: &BTreeMap<&[String], Vec<Times>>,
    path: &[String],
    times: &[Times],
    least: &[f64],
    lines: &mut Vec<String>,
) {
    lines.push(row(path.len() - 1, path.last().map_or("", String::as_str), times));
    let shown = |times: &[Times]| times.iter().zip(least).any(|((total, _), least)| total > least);
    let (large, small): (Vec<_>, Vec<_>) =
        children(paths, path).into_iter().partition(|(_, times)| shown(times));
    for (path, times) in large {
        show(paths, path, times, least, lines);
    }
    if !small.is_empty() {
        let sum = |at: usize| small.iter().map(|(_, times)| times[at].0).sum::<f64>();
        let rest: Vec<Times> = (0..times.len()).map(|at| (sum(at), sum(at))).collect();
        lines.push(row(path.len(), "(-)", &rest));
    }
}

fn row(depth: usize, name: &str, times: &[Times]) -> String {
    let name = format!("{:depth$}{name}", "");
    let mut line = format!("{:<NAME$}", cut(&name, NAME - 1));
    for (total, own) in times {
        line.push_str(&format!("{}{}", figure(*total), figure(*own)));
    }
    line
}

fn figure(ms: f64) -> String {
    let decimals = if ms < 99.995 { 2 } else { 1 };
    if ms == 0.0 { format!("{:>FIGURE$}", "-") } else { format!("{ms:>FIGURE$.decimals$}") }
}
