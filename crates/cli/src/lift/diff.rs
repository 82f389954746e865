//! `mmscale lift diff`: what the operations of two recordings differ in.

use mmscale_lift::{LineSum, LockSum, Recording, Share, Sums, sums};
use std::collections::BTreeMap;

use super::show::{head, number, read, share};
use crate::args::LiftDiffArgs;
use crate::failure::Failure;
use crate::output;

/// Characters of a name.
const NAME: usize = 42;
/// The smallest change that is shown, as a share of the larger side.
const SHOWN: f64 = 0.01;
/// The smallest value of a row, an operation.
const LEAST: f64 = 0.02;

/// Shows the differences.
pub(super) fn diff(args: &LiftDiffArgs) -> Result<(), Failure> {
    let sides = [read(&args.before)?, read(&args.after)?];
    output::print(&text(&sides, args.rows))
}

fn text(sides: &[Recording; 2], rows: usize) -> String {
    let sums = [sums(&sides[0]), sums(&sides[1])];
    let mut lines = Vec::new();
    for (word, side) in ["A", "B"].iter().zip(sides) {
        lines.push(format!("{word}:"));
        lines.extend(head(side));
    }
    lines.push(String::new());
    lines.push(line("an operation", ["A", "B", "change"]));
    let [a, b] = &sums;
    let of = |name: &str, get: fn(&Sums) -> f64| line(&format!("  {name}"), cells(get(a), get(b)));
    lines.extend([
        of("instructions", |sums| sums.instructions),
        of("locked instructions", |sums| sums.locked),
        of("lines of one CPU", |sums| sums.private_lines),
        of("lines shared and read only", |sums| sums.read_only_lines),
        of("lines written and shared by few", |sums| sums.few_lines),
        of("lines written and shared by many", |sums| sums.many_lines),
        of("bytes cleared", |sums| sums.cleared_bytes),
        of("bytes copied", |sums| sums.copied_bytes),
    ]);
    let locks = |get: fn(&LockSum) -> f64, sums: &Sums, least: f64| {
        let named = sums.locks.iter().filter(|lock| lock.acquisitions >= LEAST);
        named.map(|lock| (lock_name(lock), get(lock))).filter(|row| row.1 >= least).collect()
    };
    let table = |title: &str, sides: [Vec<(String, f64)>; 2]| changed(title, joined(sides), rows);
    let taken = |sums: &Sums| locks(|lock| lock.acquisitions, sums, LEAST);
    let held = |sums: &Sums| locks(|lock| lock.acquisitions * lock.hold_instructions, sums, 1.0);
    lines.extend(table("locks, acquisitions an op", [taken(a), taken(b)]));
    lines.extend(table("locks, instructions held an op", [held(a), held(b)]));
    let accesses = [by_function(a, &sides[0]), by_function(b, &sides[1])];
    lines.extend(table("accesses to shared lines, by function", accesses));
    lines.join("\n") + "\n"
}

fn lock_name(lock: &LockSum) -> String {
    let mode = if lock.is_shared { " (read)" } else { "" };
    format!("{:<5} {}{mode}", share(lock.share), lock.class)
}

/// Accesses to lines that many CPUs share, by function: names of data may differ between kernels.
fn by_function(sums: &Sums, recording: &Recording) -> Vec<(String, f64)> {
    let many = |line: &&LineSum| matches!(line.share, Share::Node | Share::All);
    let functions = sums.lines.iter().filter(many).flat_map(|line| {
        line.functions.iter().map(|(id, accesses)| {
            (format!("{:<5} {}", share(line.share), recording.function(*id)), *accesses)
        })
    });
    functions.collect()
}

/// Joins two sides by name, the largest changes first; none where a side lacks it.
fn joined(sides: [Vec<(String, f64)>; 2]) -> Vec<(String, [f64; 2])> {
    let mut rows: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for (at, side) in sides.into_iter().enumerate() {
        for (name, value) in side {
            rows.entry(name).or_default()[at] += value;
        }
    }
    let mut rows: Vec<(String, [f64; 2])> = rows.into_iter().collect();
    rows.retain(|(_, [a, b])| {
        let larger = a.max(*b);
        larger >= LEAST && (a - b).abs() >= SHOWN * larger
    });
    rows.sort_by(|(_, [a, b]), (_, [c, d])| (d - c).abs().total_cmp(&(b - a).abs()));
    rows
}

fn changed(title: &str, all: Vec<(String, [f64; 2])>, rows: usize) -> Vec<String> {
    if all.is_empty() {
        return vec![String::new(), format!("{title}: no difference")];
    }
    let mut lines = vec![String::new(), line(title, ["A", "B", "change"])];
    let more = all.len().saturating_sub(rows);
    lines.extend(
        all.into_iter().take(rows).map(|(name, [a, b])| line(&format!("  {name}"), cells(a, b))),
    );
    if more > 0 {
        lines.push(format!("  and {more} more; --rows shows them"));
    }
    lines
}

/// Two values, and the change.
fn cells(a: f64, b: f64) -> [String; 3] {
    let change = match (a, b) {
        _ if a == b => "=".to_owned(),
        (0.0, _) => "new".to_owned(),
        (_, 0.0) => "gone".to_owned(),
        _ => format!("{:+.1} %", (b / a - 1.0) * 100.0),
    };
    [number(a), number(b), change]
}

fn line<T: AsRef<str>>(name: &str, cells: [T; 3]) -> String {
    let [a, b, change] = &cells;
    let (a, b, change) = (a.as_ref(), b.as_ref(), change.as_ref());
    let name = match name.chars().count() > NAME {
        true => name.chars().take(NAME - 2).chain("..".chars()).collect(),
        false => format!("{name:<NAME$}"),
    };
    format!("{name} {a:>9} {b:>9} {change:>9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_both_sides_are_joined_and_small_changes_left_out() {
        let side = |rows: &[(&str, f64)]| -> Vec<(String, f64)> {
            rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let one = side(&[("zone", 2.0), ("pcp", 1.0), ("pte", 1.0)]);
        let other = side(&[("zone", 3.0), ("lruvec", 9.0), ("pte", 1.001)]);
        let rows = joined([one, other]);
        let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["lruvec", "pcp", "zone"]);
        let text = changed("locks", rows, 2);
        assert!(text[2].ends_with("new") && text[3].ends_with("gone"), "{text:?}");
        assert!(text[4].contains("1 more"), "{text:?}");
        assert!(text.iter().all(|line| line.chars().count() <= 72), "{text:?}");
        assert_eq!(cells(2.0, 2.0)[2], "=");
    }
}
