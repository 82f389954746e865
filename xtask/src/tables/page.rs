//! The marked tables of one page.

use mmscale_document::Document;

use super::Mode;
use super::cell::Kind;
use super::documents::{Documents, Mark};

/// The beginning of a mark.
const MARK: &str = "<!-- table:";

/// Counts and errors of a check.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) tables: usize,
    pub(super) figures: usize,
    pub(super) errors: Vec<String>,
}

impl Seen {
    pub(super) fn add(&mut self, other: Self) {
        self.tables += other.tables;
        self.figures += other.figures;
        self.errors.extend(other.errors);
    }
}

/// Returns the page at `path` with the documents' values in its marked tables, and the result of
/// the check.
pub(super) fn look(path: &str, text: &str, documents: &Documents, mode: Mode) -> (String, Seen) {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let mut seen = Seen::default();
    let mut from = 0;
    while let Some(first) = (from..lines.len()).find(|&at| lines[at].starts_with(MARK)) {
        let head = past(&lines, first, MARK);
        from = past(&lines, head, "|");
        let marks: Result<Vec<Mark>, String> =
            lines[first..head].iter().map(|line| mark(line)).collect();
        let mut table = Table { path, first: head + 1, documents, mode, seen: &mut seen };
        match marks {
            Ok(marks) => table.look(&marks, &mut lines[head..from]),
            Err(why) => table.fail(0, &why),
        }
    }
    (lines.join("\n"), seen)
}

/// The first line from `from` that does not begin with `prefix`.
fn past(lines: &[String], from: usize, prefix: &str) -> usize {
    (from..lines.len()).find(|&at| !lines[at].starts_with(prefix)).unwrap_or(lines.len())
}

fn mark(line: &str) -> Result<Mark, String> {
    let text = line[MARK.len()..].trim().strip_suffix("-->");
    text.ok_or_else(|| "a mark must end with `-->`".to_owned()).and_then(Mark::parse)
}

/// One marked table.
struct Table<'a> {
    path: &'a str,
    /// The line number of the table's head, from 1.
    first: usize,
    documents: &'a Documents,
    mode: Mode,
    seen: &'a mut Seen,
}

impl Table<'_> {
    fn fail(&mut self, row: usize, why: &str) {
        self.seen.errors.push(format!("{}:{}: {why}", self.path, self.first + row));
    }
    fn look(&mut self, marks: &[Mark], rows: &mut [String]) {
        self.seen.tables += 1;
        let [head, _, rows @ ..] = rows else {
            return self.fail(0, "a mark must be on the line before a table's head");
        };
        if let Some(why) = marks.iter().find_map(|mark| self.documents.has(mark).err()) {
            return self.fail(0, &why);
        }
        let head = cells(head);
        let before = (self.seen.figures, self.seen.errors.len());
        for (at, row) in rows.iter_mut().enumerate() {
            match self.row(marks, &head, row, at + 2) {
                Ok(new) => *row = new,
                Err(why) => self.fail(at + 2, &why),
            }
        }
        if before == (self.seen.figures, self.seen.errors.len()) {
            self.fail(0, "no column of this table is an arm: name arms in its head");
        }
    }
    /// Returns the row with the values of the documents.
    fn row(
        &mut self,
        marks: &[Mark],
        head: &[String],
        row: &str,
        at: usize,
    ) -> Result<String, String> {
        let mut cells = cells(row);
        let first = cells.first().map_or("", String::as_str);
        let names: Vec<&str> = first.split('`').skip(1).step_by(2).collect();
        let [values @ .., name] = &names[..] else {
            return Err("no metric in back quotes: name one, or remove the mark".into());
        };
        let name = (*name).to_owned();
        let (mark, document) = source(self.documents, marks, values, &name)?;
        let mut changed = false;
        for (arm, cell) in head.iter().zip(&mut cells).skip(1) {
            let arm = mark.arm(arm);
            let Some(figure) = figure(document, &name, arm, cell) else { continue };
            self.seen.figures += 1;
            if *cell != figure {
                if self.mode == Mode::Check {
                    let why = format!(
                        "`{name}`, {arm}: `{cell}` in the page, `{figure}` in the document"
                    );
                    self.fail(at, &why);
                }
                (*cell, changed) = (figure, true);
            }
        }
        Ok(if changed { line_of(&cells) } else { row.to_owned() })
    }
}

/// Returns the document that a row shows: that of the first mark whose document has the metric.
fn source<'a>(
    documents: &'a Documents,
    marks: &'a [Mark],
    values: &[&str],
    metric: &str,
) -> Result<(&'a Mark, &'a Document), String> {
    let mut why = String::new();
    for mark in marks {
        match documents.find(mark, values) {
            Ok(found) if found.arms.iter().any(|arm| arm.metrics.contains_key(metric)) => {
                return Ok((mark, found));
            }
            Ok(found) => why = format!("`{}` has no metric `{metric}`", found.study),
            Err(other) if why.is_empty() => why = other,
            Err(_) => {}
        }
    }
    Err(why)
}

/// Returns the value for a cell; `None` if the cell is empty or its column is not an arm.
fn figure(document: &Document, name: &str, arm: &str, cell: &str) -> Option<String> {
    let kind = Kind::of(cell)?;
    let arm = document.arms.iter().find(|record| record.arm == arm)?;
    let changes = mmscale_report::changes(document.arms.first()?, arm);
    Some(kind.show(arm.metrics.get(name), changes.get(name)))
}

/// Returns the cells of a line.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let inside = line.strip_prefix('|').unwrap_or(line);
    let inside = inside.strip_suffix('|').unwrap_or(inside);
    inside.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Joins cells into a line.
fn line_of(cells: &[String]) -> String {
    let padded = cells.iter().map(|cell| match cell.as_str() {
        "" => "| ".to_owned(),
        cell => format!("| {cell} "),
    });
    padded.collect::<String>() + "|"
}
