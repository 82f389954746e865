//! A file with everything that was found in it.

use std::collections::BTreeSet;

use crate::fault::ReadError;
use crate::prose::{Prose, without_patches};
use crate::stacks::Stack;
use crate::table::Table;
use crate::text::{Line, lines};
use crate::{bytes, klockstat, live, lock_stat, mail, perf, perf_csv, stacks, summary, tree};

/// The contents of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The tables, in their order. A table that is quoted again is there once.
    pub tables: Vec<Table>,
    /// The call paths outside of tables.
    pub stacks: Vec<Stack>,
    /// The facts of all other lines.
    pub prose: Prose,
    /// Remarks on the encoding and the form of the file.
    pub notes: Vec<String>,
    /// Number of lines.
    pub lines: usize,
    /// Reports of other commands, which have less than is needed, with advice.
    pub others: Vec<String>,
}

/// Reads a file: a report, or a mail with reports in it.
///
/// # Errors
/// The file is not text, or it is a document of this project of another kind. Errors within a table
/// are in [`Table::fault`].
pub fn read(bytes: &[u8]) -> Result<Report, ReadError> {
    let (text, note) = bytes::decode(bytes)?;
    let mut report = Report { notes: note.into_iter().collect(), ..Report::default() };
    if let Some(document) = live::parse(&text) {
        report.tables.push(document?);
        report.lines = text.lines().count();
        return Ok(report);
    }
    let (text, note) = mail::body(&text);
    report.notes.extend(note.map(str::to_owned));
    let lines = lines(&text);
    report.lines = lines.len();
    scan(&lines, &mut report);
    Ok(report)
}

/// Finds tables and stacks; everything else is prose.
fn scan(lines: &[Line], report: &mut Report) {
    let kept = without_patches(lines);
    let is_kept = |line: &Line| kept.binary_search_by_key(&line.number, |line| line.number).is_ok();
    let (mut rest, mut at) = (Vec::new(), 0);
    let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
    let mut no_stack_before = 0;
    while at < lines.len() {
        let line = &lines[at];
        if !is_kept(line) || line.is_blank() {
            rest.push(line);
            at += 1;
        } else if let Some(table) = table(lines, at) {
            at = table.end.max(at + 1);
            if seen.insert(table.contents()) {
                report.tables.push(table);
            }
        } else if let Some((stacks, end)) = tree::parse(lines, at) {
            at = end.max(at + 1);
            all.extend(stacks);
        } else {
            if at >= no_stack_before {
                match stacks::parse(lines, at) {
                    Ok((stack, end)) => {
                        at = end.max(at + 1);
                        all.push(stack);
                        continue;
                    }
                    Err(end) => no_stack_before = end,
                }
            }
            report.others.extend(other(line));
            rest.push(line);
            at += 1;
        }
    }
    for paragraph in rest.split(|line| line.is_blank()) {
        all.extend(stacks::chains(paragraph));
    }
    // Replies quote stacks again.
    let mut seen = BTreeSet::new();
    all.retain(|stack| seen.insert((stack.path.clone(), stack.share.map(f64::to_bits))));
    if report.tables.is_empty() {
        report.others.extend(perf::without_headings(&rest));
    }
    report.stacks = all;
    rest.retain(|line| is_kept(line));
    report.prose = Prose::of(&rest);
}

fn table(lines: &[Line], at: usize) -> Option<Table> {
    perf::parse(lines, at)
        .or_else(|| perf_csv::parse(lines, at))
        .or_else(|| lock_stat::parse(lines, at))
        .or_else(|| klockstat::parse(lines, at))
        .or_else(|| summary::parse(lines, at))
}

/// Returns advice if a line begins a report of a command whose rows do not name functions.
fn other(line: &Line) -> Option<String> {
    let words: Vec<&str> = line.text.split_whitespace().collect();
    let is_report = words.starts_with(&["Name", "acquired", "contended"]);
    is_report.then(|| {
        format!(
            "line {}: this is a table of `perf lock report`, which shortens the names of \
             functions; print the same recording with `perf lock contention -v -i FILE`",
            line.number
        )
    })
}
