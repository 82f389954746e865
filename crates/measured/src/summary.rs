//! Small tables with the number of waits and their times, as mails have them: a row for each
//! figure, a column for each kernel.
//!
//! ```text
//! | Metric      | before   | after   |
//! | Contentions | 100      | 20      |
//! | Total wait  | 12.50ms  | 3.10ms  |
//! ```

use mmscale_document::{LockKind, MeasuredWait, plain_function};

use crate::number::{count, real, time_word, to_ns, unit_ns};
use crate::table::{Table, enter_path};
use crate::text::Line;

/// The figures, by words of their labels in lower case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    Contentions,
    Total,
    Max,
    Ignored,
}

fn figure(label: &str) -> Option<Figure> {
    let label = label.to_lowercase();
    let has = |word: &str| label.contains(word);
    match () {
        () if has("wait") && has("total") => Some(Figure::Total),
        () if has("wait") && (has("max") || has("longest")) => Some(Figure::Max),
        () if has("wait") && (has("avg") || has("mean") || has("min")) => Some(Figure::Ignored),
        () if has("contention") || has("contended") || label == "waits" => {
            Some(Figure::Contentions)
        }
        () => None,
    }
}

/// The most rows of a summary.
const ROWS: usize = 32;

/// Reads the table that begins at a line: a heading, and at least the number of waits and their
/// total. `None` if none begins there.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<Table> {
    let names = cells(&lines[from])?;
    let (_, names) = names.split_first()?;
    if names.is_empty() || names.iter().any(|name| name.is_empty() || value(name).is_some()) {
        return None;
    }
    let mut waits: Vec<MeasuredWait> = names
        .iter()
        .map(|name| MeasuredWait { task: Some((*name).to_owned()), ..MeasuredWait::default() })
        .collect();
    let mut end = from + 1;
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().skip(from + 1).take(ROWS) {
        if is_rule(line) {
            end = at + 1;
            continue;
        }
        let Some(cells) = cells(line) else { break };
        let (label, values) = cells.split_first()?;
        let Some(figure) = figure(label) else { break };
        for (wait, text) in waits.iter_mut().zip(values) {
            let Some(n) = value(text) else { continue };
            match figure {
                Figure::Contentions => wait.contentions = Some(n),
                Figure::Total => wait.wait_total_ns = Some(n),
                Figure::Max => wait.wait_max_ns = Some(n),
                Figure::Ignored => {}
            }
        }
        found.push(figure);
        end = at + 1;
    }
    if !(found.contains(&Figure::Contentions) && found.contains(&Figure::Total)) {
        return None;
    }
    let caption = caption(lines, from);
    let path = function(&caption);
    for wait in &mut waits {
        enter_path(wait, path.clone(), LockKind::Spin);
    }
    Some(Table {
        tool: "summary".to_owned(),
        lines: (lines[from].number, lines[end - 1].number),
        caption,
        waits,
        end,
        ..Table::default()
    })
}

/// Returns the cells of a line with bars.
fn cells(line: &Line) -> Option<Vec<&str>> {
    let text = line.text.trim();
    let inner = text.strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
    (cells.len() >= 2).then_some(cells)
}

fn is_rule(line: &Line) -> bool {
    let text = line.text.trim();
    text.len() >= 3 && text.chars().all(|c| "+-=|: ".contains(c))
}

/// Returns a count, or a time in ns.
fn value(text: &str) -> Option<u64> {
    if let Some(n) = count(text).or_else(|| time_word(text)) {
        return Some(n);
    }
    let (number, unit) = text.split_once(' ')?;
    Some(to_ns(real(number)?, unit_ns(unit.trim())?))
}

/// Returns the text above the table, without rules of dashes.
fn caption(lines: &[Line], from: usize) -> String {
    let above = lines[..from].iter().rev().take(4);
    let text = above.filter(|line| !is_rule(line) && !line.is_blank()).map(|line| line.text.trim());
    text.take(1).next().unwrap_or("").trim_end_matches(':').to_owned()
}

/// Returns the function of the caption that takes a known lock.
fn function(caption: &str) -> Vec<String> {
    let words = caption.split_whitespace().map(plain_function).map(|w| w.trim_end_matches("()"));
    let known = words.filter(|word| {
        mmscale_document::LOCK_CLASSES.iter().any(|row| row.functions.contains(word))
    });
    known.take(1).map(str::to_owned).collect()
}
