//! Documents as text for a mail: a header, one table with arms as columns, locks, the host's cost.

mod calls;
mod header;
mod histograms;
mod locks;
mod robust;
mod sections;
mod table;

use std::collections::BTreeMap;

use mmscale_document::{Document, ParamValue};

pub(crate) use header::listed;
pub use robust::robust_text;
pub(crate) use table::beside;

/// Columns of the text form.
pub const WIDTH: usize = 72;

/// Additions of a study to its report.
#[derive(Clone, Debug, Default)]
pub struct Notes<'a> {
    /// The question that the study answers, in one line.
    pub summary: &'a str,
    /// Metrics in the order in which they are shown; others follow, sorted by name.
    pub order: Vec<&'a str>,
    /// Default values of the parameters.
    pub defaults: BTreeMap<String, ParamValue>,
    /// Paragraphs below the table.
    pub remarks: Vec<String>,
}

/// Formats a document as text, with lines of at most [`WIDTH`] columns.
pub fn text(document: &Document, notes: &Notes<'_>) -> String {
    let mut lines = header::lines(document, notes);
    lines.extend(table::metrics(document, notes));
    lines.extend(locks::lines(document));
    lines.extend(calls::lines(document));
    lines.extend(histograms::lines(document));
    lines.extend(sections::lines(document));
    lines.extend(table::host(document));
    for remark in &notes.remarks {
        lines.push(String::new());
        lines.extend(wrap(remark, "", ""));
    }
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

/// Cuts a text to a width, with a visible mark.
fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
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
    }
}
