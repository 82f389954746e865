//! The names of the columns of a block.

use super::grid::{self, Block, Cell, Divided, Row};
use crate::role::{Role, is_axis, role, side};
use crate::text::Line;

/// The heading of a block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Heading {
    /// The name of the column of labels.
    pub(super) label: String,
    /// The names of the columns of figures.
    pub(super) columns: Vec<String>,
    /// The nearest line above that is not part of the heading.
    pub(super) caption: String,
}

/// The most words of a caption that is a side though no other table has a caption like it.
const FEW: usize = 4;

/// Returns whether a column is a metric where captions are the sides.
pub(super) fn may_be_metric(name: &str) -> bool {
    let of = role(name);
    is_axis(name) || !matches!(of, Role::Before | Role::After | Role::Side)
}

/// Returns whether a caption alone says that its table is one side, and its columns, of processes
/// and of threads, are none.
pub(super) fn is_one_side(heading: &Heading) -> bool {
    let words: Vec<&str> = heading.caption.split_whitespace().collect();
    let begins = words.first().is_some_and(|word| side(word).is_some());
    let columns = || heading.columns.iter();
    let named_so = columns().any(|name| role(name) == Role::Side);
    begins && words.len() <= FEW && named_so && columns().all(|name| may_be_metric(name))
}

/// Returns the heading of a block. `None` if no line above has as many names as there are figures.
pub(super) fn heading(lines: &[&Line], block: &Block) -> Option<Heading> {
    let first = &block.rows[0];
    let n = first.figures.len();
    // The second line of a heading may have fewer names; a paragraph is none.
    let lower = block.above.iter().take(2);
    let mut found =
        lower.enumerate().filter_map(|(nth, &at)| Some((nth, named(lines[at], block, first, n)?)));
    let (nth, (label, columns)) = found.next()?;
    let mut names: Vec<String> = columns.iter().map(|cell| cell.text.clone()).collect();
    let joins = |upper: usize, lower: usize| {
        let (Some(&upper), Some(&lower)) = (block.above.get(upper), block.above.get(lower)) else {
            return false;
        };
        lines[upper + 1..lower].iter().all(|line| grid::is_border(line))
    };
    if nth == 1
        && joins(1, 0)
        && let Some(more) = placed(lines[block.above[0]], &columns)
    {
        names = names.iter().zip(more).map(|(name, more)| joined(name, &more)).collect();
    }
    let mut heading = Heading { label, columns: names, caption: String::new() };
    if block.above.len() > nth + 1 {
        // mmtests prints the names of kernels in two lines, and some have a line only. Lines above
        // that are of the heading as long as names are equal.
        let mut next = nth + 1;
        while nth == 0
            && joins(next, next - 1)
            && !is_caption(lines[block.above[next]])
            && (next == 1 || repeat(&heading.columns))
            && let Some(upper) = named(lines[block.above[next]], block, first, n)
                .map(|(_, cells)| cells.into_iter().map(|cell| cell.text).collect())
                .or_else(|| {
                    placed(lines[block.above[next]], &columns).filter(|_| repeat(&heading.columns))
                })
        {
            let upper: Vec<String> = upper;
            for (name, upper) in heading.columns.iter_mut().zip(upper) {
                *name = joined(&upper, name);
            }
            next += 1;
        }
        let above = block.above.get(next);
        heading.caption = above.map_or(String::new(), |at| lines[*at].text.clone());
    }
    heading.caption = heading.caption.trim().trim_end_matches(':').to_owned();
    Some(heading)
}

/// Returns whether a line is a caption: a colon ends it, and no other name.
fn is_caption(line: &Line) -> bool {
    let mut names = line.text.split_whitespace().rev();
    names.next().is_some_and(|last| last.ends_with(':')) && !names.any(|name| name.ends_with(':'))
}

fn joined(upper: &str, lower: &str) -> String {
    format!("{upper} {lower}").trim().to_owned()
}

/// Returns whether two names are equal.
fn repeat(names: &[String]) -> bool {
    names.iter().enumerate().any(|(at, name)| names[..at].contains(name))
}

/// Returns the part of a line that is above or below each name. `None` if a part is not at exactly
/// one of them.
fn placed(line: &Line, columns: &[Cell]) -> Option<Vec<String>> {
    let cells = grid::cells(&grid::plain(line), Divided::Spaces);
    let mut parts = vec![String::new(); columns.len()];
    for cell in &cells {
        let mut at = (0..columns.len())
            .filter(|at| columns[*at].from < cell.to && cell.from < columns[*at].to);
        let only = at.next().filter(|_| at.next().is_none())?;
        if !parts[only].is_empty() {
            return None;
        }
        parts[only].clone_from(&cell.text);
    }
    let names: Vec<String> = parts.iter().filter(|part| !part.is_empty()).cloned().collect();
    are_names(&names).then_some(parts)
}

/// Reads the names of a line: as many as there are figures, and one for the labels.
fn named(line: &Line, block: &Block, first: &Row, n: usize) -> Option<(String, Vec<Cell>)> {
    let text = grid::plain(line);
    let has_label = !first.label.text.is_empty();
    if first.divided != Divided::Spaces {
        if grid::divided(&text) != first.divided {
            return None;
        }
        let mut cells = grid::cells(&text, first.divided);
        // An empty first cell has no bar of its own where outer bars are there.
        if has_label && cells.len() + 1 == first.cells && text.trim_start().starts_with('|') {
            cells.insert(0, Cell { text: String::new(), from: 0, to: 0 });
        }
        if cells.len() != first.cells {
            return None;
        }
        let label = if has_label { cells.remove(0).text } else { String::new() };
        return (cells.len() == n && are_names(&texts(&cells))).then_some((label, cells));
    }
    if grid::divided(&text) != Divided::Spaces {
        return None;
    }
    let chunks = grid::cells(&text, Divided::Spaces);
    for cells in [chunks, grid::words(&text)] {
        if let Some(found) = fitting(&cells, block, has_label, n) {
            return Some(found);
        }
    }
    None
}

/// Returns the names if their number and their places fit.
fn fitting(
    cells: &[Cell],
    block: &Block,
    has_label: bool,
    n: usize,
) -> Option<(String, Vec<Cell>)> {
    let ends = block.rows.iter().map(|row| row.label.to);
    let end = ends.max().unwrap_or(0);
    let names = match cells.len() {
        k if k == n => cells,
        k if k == n + 1 && has_label => &cells[1..],
        _ => return None,
    };
    let are_names = are_names(&texts(names));
    let first = cells.first()?;
    if cells.len() == n {
        // The first name is not that of the labels: it begins behind them or is a side.
        let behind = first.to > end || !has_label;
        let side = matches!(role(&first.text), Role::Before | Role::After | Role::Side);
        if !(behind || side) {
            return None;
        }
        return are_names.then_some((String::new(), names.to_vec()));
    }
    // The first name is that of the labels.
    let start = block.rows.iter().map(|row| row.label.from).min().unwrap_or(0);
    let above = first.from < end && first.to > start || first.from <= start;
    let no_side = !matches!(role(&first.text), Role::Before | Role::After | Role::Change);
    (above && no_side && are_names).then(|| (first.text.clone(), names.to_vec()))
}

fn texts(cells: &[Cell]) -> Vec<String> {
    cells.iter().map(|cell| cell.text.clone()).collect()
}

/// Returns whether texts can be names: not one of them is a figure, and one has a letter.
fn are_names(names: &[String]) -> bool {
    let is_figure = |name: &String| super::figure::word(name).is_some() && role(name) != Role::Side;
    let is_name = |name: &String| name.contains(char::is_alphabetic) || role(name) == Role::Side;
    names.iter().any(is_name) && !names.iter().any(is_figure)
}
