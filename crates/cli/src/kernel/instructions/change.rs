//! Tables of two images: what the second changes.

use mmscale_vm::instructions::Summary;
use std::collections::BTreeMap;

use super::document::{Document, Script};
use super::locks::{class, place};
use super::text::{counted, cut, head, image, number};

/// Characters of a name.
const NAME: usize = 40;
/// Instructions an operation below which a difference is not shown.
const SHOWN: f64 = 0.5;

/// Writes the tables, with so many rows each.
pub(super) fn text(document: &Document, rows: usize) -> String {
    let words = ["A", "B"];
    let mut lines: Vec<String> =
        words.iter().zip(&document.images).flat_map(|(word, side)| image(word, side)).collect();
    counted(&mut lines);
    lines.push(String::new());
    lines.push(line("an operation", ["A", "B", "change"]));
    for script in &document.scripts {
        if let [a, b] = &script.operations[..] {
            let (a, b) = (a.instructions.median, b.instructions.median);
            lines.push(line(&format!("  {}", script.name), cells(a, b)));
        }
    }
    for script in &document.scripts {
        if let [a, b] = &script.operations[..] {
            lines.push(String::new());
            lines.extend(head(script));
            lines.extend(of_script(script, a, b, rows));
        }
    }
    lines.join("\n") + "\n"
}

fn of_script(_: &Script, a: &Summary, b: &Summary, rows: usize) -> Vec<String> {
    let mut lines = vec![
        line("  all", cells(a.instructions.median, b.instructions.median)),
        line("  locked instructions", cells(a.locked.median, b.locked.median)),
    ];
    let changed = |title: &str, all: Vec<Changed>| {
        let shown: Vec<Changed> = all.into_iter().filter(|row| row.is_shown()).collect();
        let more = shown.len().saturating_sub(rows);
        let mut lines = vec![line(title, ["A", "B", "change"])];
        lines.extend(shown.iter().take(rows).map(Changed::line));
        match shown.is_empty() {
            true => vec![format!("{title}: no difference")],
            false if more > 0 => {
                lines.push(format!("  and {more} more; --rows shows them"));
                lines
            }
            false => lines,
        }
    };
    lines.extend(changed("  held locks, instructions an op", holds(a, b)));
    lines.extend(changed("  one hold, median", lengths(a, b)));
    lines.extend(changed("  functions, own instructions an op", functions(a, b)));
    lines
}

/// A row of both sides; none where a side lacks it.
struct Changed {
    name: String,
    sides: [Option<f64>; 2],
}

impl Changed {
    fn size(&self) -> f64 {
        let [a, b] = self.sides.map(|side| side.unwrap_or(0.0));
        (b - a).abs()
    }
    fn is_shown(&self) -> bool {
        self.size() >= SHOWN
    }
    fn line(&self) -> String {
        let [a, b] = self.sides;
        let name = format!("  {}", self.name);
        match (a, b) {
            (Some(a), Some(b)) => line(&name, cells(a, b)),
            (a, b) => {
                let shown = |side: Option<f64>| side.map_or("-".to_owned(), number);
                let word = if a.is_none() { "new" } else { "gone" };
                line(&name, [shown(a), shown(b), word.to_owned()])
            }
        }
    }
}

/// Joins two sides by name, the largest differences first.
fn joined(sides: [Vec<(String, f64)>; 2]) -> Vec<Changed> {
    let mut rows: BTreeMap<String, [Option<f64>; 2]> = BTreeMap::new();
    for (at, side) in sides.into_iter().enumerate() {
        for (name, value) in side {
            *rows.entry(name).or_default()[at].get_or_insert(0.0) += value;
        }
    }
    let mut rows: Vec<Changed> =
        rows.into_iter().map(|(name, sides)| Changed { name, sides }).collect();
    rows.sort_by(|a, b| b.size().total_cmp(&a.size()));
    rows
}

/// Instructions of an operation under locks of a class.
fn holds(a: &Summary, b: &Summary) -> Vec<Changed> {
    joined([a, b].map(|side| {
        side.holds.iter().map(|hold| (class(hold).to_owned(), hold.instructions)).collect()
    }))
}

/// Instructions of a hold, by its place. A place of one side only says nothing of the lock.
fn lengths(a: &Summary, b: &Summary) -> Vec<Changed> {
    let rows = joined([a, b].map(|side| {
        let first_of_place = |at: usize| {
            let hold = &side.holds[at];
            side.holds[..at]
                .iter()
                .all(|other| (&other.caller, &other.outer) != (&hold.caller, &hold.outer))
        };
        let places = (0..side.holds.len()).filter(|at| first_of_place(*at));
        places
            .map(|at| &side.holds[at])
            .map(|hold| (format!("{:<8} {}", class(hold), place(hold)), hold.hold.median))
            .collect()
    }));
    rows.into_iter().filter(|row| row.sides.iter().all(Option::is_some)).collect()
}

fn functions(a: &Summary, b: &Summary) -> Vec<Changed> {
    joined([a, b].map(|side| {
        side.functions.iter().map(|function| (function.name.clone(), function.own)).collect()
    }))
}

/// Two values, and the change.
fn cells(a: f64, b: f64) -> [String; 3] {
    let change = match a {
        _ if a == b => "=".to_owned(),
        0.0 => "new".to_owned(),
        _ => format!("{:+.1} %", (b / a - 1.0) * 100.0),
    };
    [number(a), number(b), change]
}

fn line<T: AsRef<str>>(name: &str, cells: [T; 3]) -> String {
    let [a, b, change] = &cells;
    let (a, b, change) = (a.as_ref(), b.as_ref(), change.as_ref());
    format!("{} {a:>9} {b:>9} {change:>10}", cut(name, NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_both_sides_are_joined() {
        let side = |rows: &[(&str, f64)]| {
            rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let rows = joined([side(&[("a", 10.0), ("b", 5.0)]), side(&[("a", 11.0), ("c", 7.0)])]);
        let shown: Vec<String> = rows.iter().map(|row| row.line()).collect();
        assert!(shown[0].contains('c') && shown[0].ends_with("new"), "{shown:?}");
        assert!(shown[1].contains('b') && shown[1].ends_with("gone"), "{shown:?}");
        assert!(shown[2].ends_with("+10.0 %"), "{shown:?}");
        assert!(!joined([side(&[("a", 1.0)]), side(&[("a", 1.2)])])[0].is_shown());
        assert_eq!(cells(3.0, 3.0)[2], "=");
    }
}
