//! The longest shares of the waits for locks, by waiter and holder.

use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, BlameRecord, Document, Doing};

use super::only::is_shown;
use super::{Notes, wrap};
use crate::number::{percent, scaled};

/// Number of rows per arm.
const SHOWN: usize = 10;
/// Functions of the holder's call path, from the innermost one.
const DEPTH: usize = 3;

/// Returns the lines on blame; none if none was recorded.
pub(super) fn lines(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    if document.arms.iter().all(|arm| arm.blame.is_empty()) {
        return vec![];
    }
    let what = "holders and waiters: share of all waits for spin locks, time summed over seeds; \
                lock and waiter; what the holder did meanwhile";
    let mut lines = vec![String::new()];
    lines.extend(wrap(what, "", "  "));
    for arm in &document.arms {
        lines.push(arm.arm.clone());
        lines.extend(of_arm(arm, notes));
    }
    lines
}

fn of_arm(arm: &ArmRecord, notes: &Notes<'_>) -> Vec<String> {
    let all: u64 = arm.blame.iter().map(|row| row.wait_total_ns).sum();
    let mut sums = BTreeMap::<_, u64>::new();
    for row in &arm.blame {
        if is_shown(&notes.only, &format!("{} {}", row.class, row.waiter)) {
            *sums.entry((&row.class, &row.waiter, holder(row))).or_default() += row.wait_total_ns;
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let mut lines: Vec<String> = vec![];
    for ((class, waiter, holder), ns) in sums.iter().take(SHOWN) {
        let share = percent(100.0 * *ns as f64 / all.max(1) as f64);
        let first = format!("{share:>6} {:>9}  ", scaled(*ns as f64, "ns"));
        lines.extend(wrap(&format!("{class} in {waiter}: {holder}"), &first, &" ".repeat(20)));
    }
    let rest: u64 = sums.iter().skip(SHOWN).map(|(_, ns)| ns).sum();
    if rest > 0 {
        let share = percent(100.0 * rest as f64 / all.max(1) as f64);
        let others = sums.len() - SHOWN;
        lines.push(format!("{share:>6} {:>9}  {others} others", scaled(rest as f64, "ns")));
    }
    if lines.is_empty() {
        lines.push("  no waits".to_owned());
    }
    lines
}

/// Describes what the holder did, with the innermost functions of its call path.
fn holder(row: &BlameRecord) -> String {
    let path: Vec<&str> = row.holder.iter().rev().take(DEPTH).map(String::as_str).collect();
    let path = path.join(" < ");
    let did = match row.doing {
        Doing::Work => path,
        Doing::Handover => "handover from CPU to CPU".to_owned(),
        Doing::Stolen => format!("time stolen from {path}"),
        Doing::Handler => format!("a foreign interrupt in {path}"),
    };
    match &row.through {
        Some(class) => format!("its holder waited for {class}: {did}"),
        None => did,
    }
}
