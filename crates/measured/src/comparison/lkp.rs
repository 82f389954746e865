//! Rows of the kernel test robot: figures of each commit with the changes between them, and the
//! name of the metric at the end.

use super::figure::{Change, Figure, figures};
use super::{Comparison, Comparisons, doubt};
use crate::robot::Robot;
use crate::role::{Role, role};
use crate::text::Line;

/// Beginnings of metrics of the system, which are no result of a benchmark.
const SYSTEM: [&str; 15] = [
    "perf-profile.",
    "perf-stat.",
    "perf-sched.",
    "vmstat.",
    "proc-vmstat.",
    "numa-",
    "sched_debug.",
    "turbostat.",
    "mpstat.",
    "meminfo.",
    "slabinfo.",
    "iostat.",
    "uptime.",
    "cpuidle.",
    "syscalls.",
];

/// Enters the rows of the benchmark, and removes all rows of this form from `rest`.
pub(super) fn rows<'a>(
    lines: &[&'a Line],
    robot: Option<&Robot>,
    all: &mut Comparisons,
    rest: &mut Vec<&'a Line>,
) {
    let names = commits(lines);
    let mut used = vec![];
    for line in lines {
        let Some((name, figures)) = row(line) else { continue };
        used.push(line.number);
        let claimed = robot.and_then(|robot| robot.claim.as_ref()).map(|(_, metric)| metric);
        let test = robot.and_then(|robot| robot.testcase.as_deref());
        let own = match test {
            _ if claimed == Some(&name) => true,
            Some(test) => name.starts_with(test) && !name.contains(".time."),
            None => !SYSTEM.iter().any(|begin| name.starts_with(begin)) && !name.contains("time."),
        };
        // A deviation or the share of idle CPUs is no result of a benchmark.
        let field = name.rsplit('.').next().unwrap_or(&name);
        let is_result = claimed == Some(&name) || role(field) != Role::Other;
        if !own || !is_result {
            continue;
        }
        match values(&figures) {
            Ok(values) => {
                let known = names.len() == values.len();
                let sides = (0..values.len()).map(|nth| match (known, nth) {
                    (true, _) => names[nth].clone(),
                    (_, 0) => "before".to_owned(),
                    (_, 1) if values.len() == 2 => "after".to_owned(),
                    (_, nth) => format!("after {nth}"),
                });
                all.found.push(Comparison {
                    line: line.number,
                    metric: name,
                    sides: sides.collect(),
                    values: values.iter().map(|value| vec![*value]).collect(),
                    ..Comparison::default()
                });
            }
            Err(why) => all.doubts.push(doubt(line.number, format!("`{name}` {why}"))),
        }
    }
    rest.retain(|line| !used.contains(&line.number));
}

/// Reads a row: `1234 ±  2%  -34.3%  811  will-it-scale.per_process_ops`.
fn row(line: &Line) -> Option<(String, Vec<Figure>)> {
    let words: Vec<&str> = line.text.split_whitespace().collect();
    let (name, words) = words.split_last()?;
    let dotted = name.contains('.')
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !name.ends_with('.')
        && !name.contains("//");
    if !dotted || words.len() < 3 {
        return None;
    }
    let all: Option<Vec<Figure>> = figures(words)?.into_iter().collect();
    let all = all?;
    // A figure, then changes with figures in turn.
    let turns = all.len() >= 3
        && all.len() % 2 == 1
        && all.iter().enumerate().all(|(nth, figure)| figure.signed == (nth % 2 == 1));
    turns.then(|| ((*name).to_owned(), all))
}

/// Returns the figures of each commit, if all changes lead to them from the first.
fn values(figures: &[Figure]) -> Result<Vec<f64>, String> {
    let first = &figures[0];
    for pair in figures[1..].chunks(2) {
        let (change, after) = (&pair[0], &pair[1]);
        let percent = Change { percent: change.value, half: change.half };
        let difference = after.value - first.value - change.value;
        let agrees = match change.percent {
            true => after.follows(first, percent),
            false => difference.abs() <= change.half + after.half + first.half + 1e-9,
        };
        if !agrees {
            return Err(format!(
                "has a change of {:+} that does not lead from {} to {}",
                change.value, first.value, after.value
            ));
        }
    }
    Ok(figures.iter().step_by(2).map(|figure| figure.value).collect())
}

/// Returns the commits of the heading, in their order.
fn commits(lines: &[&Line]) -> Vec<String> {
    let start = lines.iter().position(|line| line.text.trim() == "commit:");
    let Some(start) = start else { return vec![] };
    let hash = |line: &&&Line| {
        let word = line.text.split_whitespace().next()?;
        let long = word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        long.then(|| word.to_owned())
    };
    lines[start + 1..].iter().map_while(|line| hash(&line)).collect()
}
