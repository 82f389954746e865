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
    let marks: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].starts_with(MARK)).collect();
    for at in marks {
        let behind = lines[at][MARK.len()..].trim().strip_suffix("-->");
        let mark = behind.ok_or_else(|| "a mark ends with `-->`".to_owned()).and_then(Mark::parse);
        let end = (at + 1..lines.len()).find(|&at| !lines[at].starts_with('|'));
        let rows = at + 1..end.unwrap_or(lines.len());
        let mut table = Table { path, first: rows.start + 1, documents, mode, seen: &mut seen };
        match mark {
            Ok(mark) => table.look(&mark, &mut lines[rows]),
            Err(why) => table.fail(0, &why),
        }
    }
    (lines.join("\n"), seen)
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
    fn look(&mut self, mark: &Mark, rows: &mut [String]) {
        self.seen.tables += 1;
        let [head, _, rows @ ..] = rows else {
            return self.fail(0, "a mark stands on the line before a table's head");
        };
        if let Err(why) = self.documents.has(mark) {
            return self.fail(0, &why);
        }
        let head = cells(head);
        let before = (self.seen.figures, self.seen.errors.len());
        for (at, row) in rows.iter_mut().enumerate() {
            match self.row(mark, &head, row, at + 2) {
                Ok(new) => *row = new,
                Err(why) => self.fail(at + 2, &why),
            }
        }
        if before == (self.seen.figures, self.seen.errors.len()) {
            self.fail(0, "no figure of this table is an arm's: name arms in its head");
        }
    }
    /// Returns the row with the values of the documents.
    fn row(
        &mut self,
        mark: &Mark,
        head: &[String],
        row: &str,
        at: usize,
    ) -> Result<String, String> {
        let mut cells = cells(row);
        let first = cells.first().map_or("", String::as_str);
        let names: Vec<&str> = first.split('`').skip(1).step_by(2).collect();
        let [values @ .., name] = &names[..] else {
            return Err("no metric in back quotes: name one, or take the mark away".into());
        };
        let name = (*name).to_owned();
        let document = self.documents.find(mark, values)?;
        if !document.arms.iter().any(|arm| arm.metrics.contains_key(&name)) {
            return Err(format!("`{}` has no metric `{name}`", document.study));
        }
        let mut changed = false;
        for (arm, cell) in head.iter().zip(&mut cells).skip(1) {
            let Some(figure) = figure(document, &name, arm, cell) else { continue };
            self.seen.figures += 1;
            if *cell != figure {
                if self.mode == Mode::Check {
                    let why = format!("`{name}`, {arm}: `{cell}` here, `{figure}` in the document");
                    self.fail(at, &why);
                }
                (*cell, changed) = (figure, true);
            }
        }
        Ok(if changed { line_of(&cells) } else { row.to_owned() })
    }
}

/// Returns the value for a cell; `None` if the cell is empty or its column is not an arm.
fn figure(document: &Document, name: &str, arm: &str, cell: &str) -> Option<String> {
    let kind = Kind::of(cell)?;
    let of = |arm: &mmscale_document::ArmRecord| arm.metrics.get(name).cloned();
    let metric = document.arms.iter().find(|record| record.arm == arm).map(of)?;
    let base = document.arms.first().and_then(of);
    Some(kind.show(base.as_ref(), metric.as_ref()))
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
