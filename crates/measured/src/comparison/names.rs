//! The names of the columns of a block.

use super::grid::{self, Block, Cell, Divided, Row};
use super::role::{Role, role};
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

/// Returns the heading of a block. `None` if no line above has as many names as there are figures.
pub(super) fn heading(lines: &[&Line], block: &Block) -> Option<Heading> {
    let first = &block.rows[0];
    let n = first.figures.len();
    let mut found: Option<(usize, String, Vec<String>)> = None;
    for (nth, &at) in block.above.iter().enumerate() {
        if let Some((label, columns)) = named(lines[at], block, first, n) {
            found = Some((nth, label, columns));
            break;
        }
        // The second line of a heading may have fewer names; a paragraph is none.
        if nth >= 1 {
            break;
        }
    }
    let (nth, label, columns) = found?;
    let mut heading = Heading { label, columns, caption: String::new() };
    let mut above = block.above[nth + 1..].iter().map(|at| lines[*at]);
    if let Some(line) = above.next() {
        // mmtests prints the names of kernels in two lines.
        match named(line, block, first, n)
            .filter(|_| nth == 0 && line.number + 1 == lines[block.above[0]].number)
        {
            Some((_, upper)) => {
                for (name, upper) in heading.columns.iter_mut().zip(upper) {
                    *name = format!("{upper} {name}").trim().to_owned();
                }
                heading.caption = above.next().map_or(String::new(), |line| line.text.clone());
            }
            None => heading.caption = line.text.clone(),
        }
    }
    heading.caption = heading.caption.trim().trim_end_matches(':').to_owned();
    Some(heading)
}

/// Reads the names of a line: as many as there are figures, and one for the labels.
fn named(line: &Line, block: &Block, first: &Row, n: usize) -> Option<(String, Vec<String>)> {
    let text = grid::plain(line);
    let has_label = !first.label.text.is_empty();
    if first.divided != Divided::Spaces {
        if grid::divided(&text) != first.divided {
            return None;
        }
        let mut cells: Vec<String> =
            grid::cells(&text, first.divided).into_iter().map(|cell| cell.text).collect();
        // An empty first cell has no bar of its own where outer bars are there.
        if has_label && cells.len() + 1 == first.cells && text.trim_start().starts_with('|') {
            cells.insert(0, String::new());
        }
        if cells.len() != first.cells {
            return None;
        }
        let label = if has_label { cells.remove(0) } else { String::new() };
        return (cells.len() == n && are_names(&cells)).then_some((label, cells));
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
) -> Option<(String, Vec<String>)> {
    let ends = block.rows.iter().map(|row| row.label.to);
    let end = ends.max().unwrap_or(0);
    let texts = || cells.iter().map(|cell| cell.text.clone());
    let names: Vec<String> = match cells.len() {
        k if k == n => texts().collect(),
        k if k == n + 1 && has_label => texts().skip(1).collect(),
        _ => return None,
    };
    let first = cells.first()?;
    if cells.len() == n {
        // The first name is not that of the labels: it begins behind them or is a side.
        let behind = first.to > end || !has_label;
        let side = matches!(role(&first.text), Role::Before | Role::After | Role::Side);
        if !(behind || side) {
            return None;
        }
        return are_names(&names).then_some((String::new(), names));
    }
    // The first name is that of the labels.
    let start = block.rows.iter().map(|row| row.label.from).min().unwrap_or(0);
    let above = first.from < end && first.to > start || first.from <= start;
    let no_side = !matches!(role(&first.text), Role::Before | Role::After | Role::Change);
    (above && no_side && are_names(&names)).then(|| (first.text.clone(), names))
}

/// Returns whether texts can be names: not one of them is a figure, and one has a letter.
fn are_names(names: &[String]) -> bool {
    let is_figure = |name: &String| super::figure::word(name).is_some() && role(name) != Role::Side;
    let is_name = |name: &String| name.contains(char::is_alphabetic) || role(name) == Role::Side;
    names.iter().any(is_name) && !names.iter().any(is_figure)
}
