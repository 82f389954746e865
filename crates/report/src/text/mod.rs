//! Documents as text for a mail: answer, header, table of metrics, locks, the host's cost.
//!
//! [`text`] has all of that. [`brief`] is for a terminal: the answer and the headlines. [`page`]
//! has the answers of many documents, and [`sweep_text`] the points of sweeps side by side.

mod ablation;
mod answer;
mod blame;
mod calls;
mod header;
mod histograms;
mod letter;
mod lkp;
mod locks;
mod only;
mod page;
mod plot;
mod robust;
mod sections;
mod settlement;
mod sweep;
mod table;
mod whatif;

use std::collections::BTreeMap;

use mmscale_document::{Document, ParamValue};

pub use ablation::ablation_text;
pub(crate) use answer::{answer, in_order};
pub(crate) use header::listed;
pub use letter::{About, Calls, Letter, letter_text};
pub use lkp::lkp_text;
pub(crate) use only::is_shown;
pub(crate) use page::basis;
pub use page::{foot_text, page};
pub use robust::{robust_brief, robust_text};
pub use settlement::settlement_text;
pub(crate) use settlement::{name_of, value_of};
pub(crate) use sweep::point;
pub use sweep::sweep_text;
pub(crate) use table::{beside, ordered};
pub use whatif::whatif_text;

/// Columns of the text form.
pub const WIDTH: usize = 72;

/// Additions of a study to its report.
#[derive(Clone, Debug, Default)]
pub struct Notes<'a> {
    /// The question that the study answers, in one line.
    pub summary: String,
    /// Metrics in the order in which they are shown; others follow, sorted by name.
    pub order: Vec<&'a str>,
    /// Default values of the parameters.
    pub defaults: BTreeMap<String, ParamValue>,
    /// Paragraphs below the table.
    pub remarks: Vec<String>,
    /// Patterns of the metrics and locks to show, with `*` for any text; empty: all. A pattern
    /// without `*` matches names that contain it.
    pub only: Vec<String>,
    /// Whether the conclusions hold on other machines, if that was analysed.
    pub robust: Option<String>,
}

/// The extent of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// The answer and the headlines.
    Brief,
    /// Everything that is in the document.
    Whole,
}

/// Formats a document as text, with lines of at most [`WIDTH`] columns: the answer first, then
/// everything else.
pub fn text(document: &Document, notes: &Notes<'_>) -> String {
    let mut lines = header::title(document, notes);
    lines.extend(answer::lines(document, notes));
    lines.extend(header::lines(document, notes, Extent::Whole));
    lines.extend(table::metrics(document, notes, Extent::Whole));
    lines.extend(locks::lines(document, notes));
    lines.extend(blame::lines(document, notes));
    lines.extend(calls::lines(document));
    lines.extend(histograms::lines(document));
    lines.extend(sections::lines(document));
    lines.extend(table::host(document));
    for remark in &notes.remarks {
        lines.push(String::new());
        lines.extend(wrap(remark, "", ""));
    }
    joined(lines)
}

/// Formats the answer and the headlines of a document, and how to repeat it, with lines of at most
/// [`WIDTH`] columns.
pub fn brief(document: &Document, notes: &Notes<'_>) -> String {
    let mut lines = header::title(document, notes);
    lines.extend(answer::lines(document, notes));
    lines.extend(header::lines(document, notes, Extent::Brief));
    lines.extend(table::metrics(document, notes, Extent::Brief));
    if !notes.only.is_empty() {
        lines.extend(locks::lines(document, notes));
    }
    lines.extend(blame::lines(document, notes));
    lines.push(String::new());
    lines
        .push("all metrics, locks and call paths: --details; the same as files: -o DIR".to_owned());
    joined(lines)
}

/// Joins lines, without spaces at their ends.
fn joined(lines: Vec<String>) -> String {
    let mut text = String::new();
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Breaks text between words into lines of at most [`WIDTH`] columns. The first line begins with
/// `first`, the others with `rest`. A word that is wider than a line is broken.
pub fn wrap(text: &str, first: &str, rest: &str) -> Vec<String> {
    let mut lines = vec![];
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && columns(&line) + 1 + columns(word) > WIDTH {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        for letter in word.chars() {
            if columns(&line) == WIDTH {
                lines.push(std::mem::replace(&mut line, rest.to_owned()));
            }
            line.push(letter);
        }
        empty = false;
    }
    lines.push(line);
    lines
}

/// Returns the columns that a text takes; each of its characters takes one.
fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Cuts a text to a width of at least 1, with a visible mark.
fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let lines = wrap(&"word ".repeat(30), "key  ", "     ");
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("key  word") && lines[1].starts_with("     word"));
        assert!(lines.iter().all(|line| columns(line) <= WIDTH));
        assert_eq!(wrap("", "a", "b"), ["a"]);
        let broken = wrap(&"x".repeat(80), "key ", "  ");
        let [first, second] = &broken[..] else { panic!("{broken:?}") };
        assert_eq!((first.len(), second.as_str()), (72, "  xxxxxxxxxxxx"));
    }

    #[test]
    fn long_names_are_cut_visibly() {
        assert_eq!(cut("posted", 6), "posted");
        assert_eq!(cut("posted-twice", 6), "poste…");
        assert_eq!(cut("posted", 0), "…");
    }
}
