//! The longest shares of the waits for locks, by waiter and holder.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, BlameRecord, Document, PathPart};

use super::only::is_shown;
use super::{Notes, wrap};
use crate::holder::holder;
use crate::number::{percent, scaled};

/// Number of locks with their waiters per arm, and of what holders did meanwhile for each.
const SHOWN: usize = 6;
const HOLDERS: usize = 3;
/// Locks and waiters with a smaller share are among the others.
const LEAST: f64 = 0.001;
/// Functions of the holder's call path, from the innermost one.
const DEPTH: usize = 3;
/// Number of locks that are named.
const NAMED: usize = 6;
/// Number of operations, of parts of each, and of holders of a part.
const OPERATIONS: usize = 3;
const PARTS: usize = 4;
const HOLDERS_OF_PART: usize = 2;

/// Returns the lines on blame; none if none was recorded.
pub(super) fn lines(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    if document.arms.iter().all(|arm| arm.blame.is_empty()) {
        return vec![];
    }
    let what = "holders and waiters: share of all waits for spin locks, time summed over seeds; \
                lock and waiter; below, what holders did meanwhile, in shares of all waits too";
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
    let share = |ns: u64| percent(100.0 * ns as f64 / all.max(1) as f64);
    let shown = arm
        .blame
        .iter()
        .filter(|row| is_shown(&notes.only, &format!("{} {}", row.class, row.waiter)));
    let waits = Waits::of(
        shown.map(|row| ((&row.class, &row.waiter), Some(holder(row, DEPTH)), row.wait_total_ns)),
    );
    let is_large = |ns: u64| ns as f64 >= LEAST * all as f64;
    let large = waits.iter().take(SHOWN).take_while(|(_, wait)| is_large(wait.ns)).count();
    let mut lines: Vec<String> = vec![];
    for ((class, waiter), wait) in &waits[..large] {
        let first = format!("{:>6} {:>9}  ", share(wait.ns), scaled(wait.ns as f64, "ns"));
        lines.extend(wrap(&format!("{class} in {waiter}"), &first, &" ".repeat(18)));
        let holders = wait.holders(HOLDERS, share);
        lines.extend(wrap(&holders, &" ".repeat(20), &" ".repeat(20)));
    }
    let rest: u64 = waits[large..].iter().map(|(_, wait)| wait.ns).sum();
    if rest > 0 {
        let others = waits.len() - large;
        let rest_text = scaled(rest as f64, "ns");
        lines.push(format!("{:>6} {rest_text:>9}  {others} others", share(rest)));
    }
    if lines.is_empty() {
        let none = if arm.blame.is_empty() { "  no waits" } else { "  no waits of that name" };
        lines.push(none.to_owned());
    }
    lines.extend(by_lock(arm, notes));
    lines.extend(by_operation(arm, notes));
    lines
}

/// Time of waits with one key, and what holders did in it.
#[derive(Default)]
struct Waits {
    ns: u64,
    by_holder: BTreeMap<String, u64>,
}

impl Waits {
    /// Sums waits by their keys: the longest first. Those without a holder have none to name.
    fn of<K: Ord>(rows: impl Iterator<Item = (K, Option<String>, u64)>) -> Vec<(K, Self)> {
        let mut sums = BTreeMap::<K, Self>::new();
        for (key, holder, ns) in rows {
            let sum = sums.entry(key).or_default();
            sum.ns += ns;
            if let Some(holder) = holder {
                *sum.by_holder.entry(holder).or_default() += ns;
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, sum)| Reverse(sum.ns));
        sums
    }
    /// Names what holders did for the longest time, with shares.
    fn holders(&self, most: usize, share: impl Fn(u64) -> String) -> String {
        let mut sums: Vec<_> = self.by_holder.iter().collect();
        sums.sort_by_key(|(_, ns)| Reverse(**ns));
        let named = sums.iter().take(most).map(|(holder, ns)| format!("{} {holder}", share(**ns)));
        let mut parts: Vec<String> = named.collect();
        let rest: u64 = sums.iter().skip(most).map(|(_, ns)| **ns).sum();
        if rest > 0 {
            parts.push(format!("{} {} others", share(rest), sums.len() - most));
        }
        parts.join("; ")
    }
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
        let parts = Waits::of(
            path.parts
                .iter()
                .map(|(part, ns)| ((&part.function, &part.lock), holder_of(part), *ns)),
        );
        for ((function, lock), part) in parts.iter().take(PARTS) {
            let what = match lock {
                None => format!("own work in {function}"),
                Some(lock) => format!("{lock} in {function}"),
            };
            let holders = part.holders(HOLDERS_OF_PART, of_all);
            let what = if holders.is_empty() { what } else { format!("{what}: {holders}") };
            lines.extend(wrap(&what, &format!("{:>8}  ", of_all(part.ns)), &" ".repeat(10)));
        }
    }
    lines
}

/// Describes what the holder did in a part of an operation, if that was recorded.
fn holder_of(part: &PathPart) -> Option<String> {
    let row = BlameRecord {
        class: part.lock.clone()?,
        waiter: part.function.clone(),
        holder: part.holder.clone(),
        doing: part.doing?,
        through: part.through.clone(),
        wait_total_ns: 0,
    };
    Some(holder(&row, DEPTH))
}
