//! Records as text for a mail: a header, one table with arms as columns, locks, the host's cost.

mod calls;
mod header;
mod histograms;
mod locks;
mod sections;
mod table;

use std::collections::BTreeMap;

use mmscale_document::{Document, ParamValue};

/// Columns of the text form.
pub const WIDTH: usize = 72;

/// What a study says about itself, for its report.
#[derive(Clone, Debug, Default)]
pub struct Notes<'a> {
    /// The question, in one line.
    pub summary: &'a str,
    /// Metrics in the order in which they are shown; others follow by name.
    pub order: Vec<&'a str>,
    /// The defaults of its parameters.
    pub defaults: BTreeMap<String, ParamValue>,
    /// Paragraphs to stand under the table.
    pub remarks: Vec<String>,
}

/// A document as text, every line at most [`WIDTH`] columns wide.
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

/// Breaks text between words, so that lines are at most [`WIDTH`] columns wide; the first begins
/// with `first`, the others with `rest`. A word that is wider than a line is broken.
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

/// How many columns a text takes; all our characters take one.
fn columns(text: &str) -> usize {
    text.chars().count()
}

/// A text cut to a width, with a sign that it was.
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
