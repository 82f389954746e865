//! The longest shares of the waits for locks, by waiter and holder.

use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, BlameRecord, Document, PathPart};

use super::only::is_shown;
use super::{Notes, wrap};
use crate::holder::holder;
use crate::number::{percent, scaled};

/// Number of rows per arm.
const SHOWN: usize = 10;
/// Functions of the holder's call path, from the innermost one.
const DEPTH: usize = 3;
/// Number of locks that are named.
const NAMED: usize = 6;
/// Number of operations, and of parts of each.
const OPERATIONS: usize = 3;
const PARTS: usize = 4;

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
            *sums.entry((&row.class, &row.waiter, holder(row, DEPTH))).or_default() +=
                row.wait_total_ns;
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
        let none = if arm.blame.is_empty() { "  no waits" } else { "  no waits of that name" };
        lines.push(none.to_owned());
    }
    lines.extend(by_lock(arm, notes));
    lines.extend(by_operation(arm, notes));
    lines
}

/// Returns the shares of single locks in all waits.
fn by_lock(arm: &ArmRecord, notes: &Notes<'_>) -> Vec<String> {
    let all: u64 = arm.named_locks.iter().map(|lock| lock.wait_total_ns).sum();
    let share = |ns: u64| percent(100.0 * ns as f64 / all.max(1) as f64);
    let shown = arm.named_locks.iter().filter(|row| is_shown(&notes.only, &row.lock));
    let shown: Vec<_> = shown.filter(|row| row.wait_total_ns > 0).collect();
    let mut parts: Vec<String> = shown
        .iter()
        .take(NAMED)
        .map(|row| format!("{} {}", row.lock, share(row.wait_total_ns)))
        .collect();
    if shown.len() > NAMED {
        let rest = shown.iter().skip(NAMED).map(|row| row.wait_total_ns).sum();
        parts.push(format!("{} others {}", shown.len() - NAMED, share(rest)));
    }
    if parts.is_empty() { vec![] } else { wrap(&parts.join(", "), "  by lock: ", "    ") }
}

/// Returns the largest parts of the operations that take most time.
fn by_operation(arm: &ArmRecord, notes: &Notes<'_>) -> Vec<String> {
    let shown = arm.critical_paths.iter().filter(|path| is_shown(&notes.only, &path.function));
    let mut lines = vec![];
    for path in shown.take(OPERATIONS) {
        let of_all = |ns: u64| percent(100.0 * ns as f64 / path.total_ns.max(1) as f64);
        let first = format!(
            "{}: {} a call, {} of it waits for locks",
            path.function,
            scaled(path.total_ns as f64 / path.calls.max(1) as f64, "ns"),
            percent(100.0 * path.waiting()),
        );
        lines.extend(wrap(&first, "  ", "    "));
        for (part, ns) in path.parts.iter().take(PARTS) {
            let share = format!("{:>8}  ", of_all(*ns));
            lines.extend(wrap(&what(part), &share, &" ".repeat(10)));
        }
    }
    lines
}

/// Describes a part of an operation.
fn what(part: &PathPart) -> String {
    let function = &part.function;
    match (&part.lock, part.doing) {
        (None, _) => format!("own work in {function}"),
        (Some(lock), None) => format!("{lock} in {function}"),
        (Some(lock), Some(doing)) => {
            let row = BlameRecord {
                class: lock.clone(),
                waiter: function.clone(),
                holder: part.holder.clone(),
                doing,
                through: part.through.clone(),
                wait_total_ns: 0,
            };
            format!("{lock} in {function}: {}", holder(&row, DEPTH))
        }
    }
}
