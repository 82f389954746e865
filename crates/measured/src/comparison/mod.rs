//! Comparisons in texts: tables with figures before and after a change, and lists of changes.
//!
//! ```text
//!                 before     after   change
//! page_fault1    1234567   1345678   +9.0%
//! malloc1: +34.3 %
//! ```
//!
//! Which columns are the sides is decided by their names, or by a change that stands next to them
//! and agrees with the figures. A table in which neither decides is listed as a doubt, and so is a
//! row whose change contradicts its figures: no figure is guessed.

mod captioned;
mod figure;
mod grid;
mod lkp;
mod names;

mod sentence;
mod sides;

use std::collections::BTreeSet;

use crate::fault::{Fault, ReadError};
use crate::prose::without_patches;
use crate::report::Report;
use crate::text::Line;

/// Figures of several sides, for one metric.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Comparison {
    /// The number of the first line.
    pub line: usize,
    /// The line above the table.
    pub caption: String,
    /// The metric or the benchmark: the label of the row.
    pub metric: String,
    /// The unit that is printed, if any.
    pub unit: String,
    /// The sides; the first is the one to compare with.
    pub sides: Vec<String>,
    /// The name of the column of `at`, if it has one.
    pub axis: String,
    /// Numbers of tasks, CPUs, ..; empty if there is one point.
    pub at: Vec<u64>,
    /// The figures of each side, by point.
    pub values: Vec<Vec<f64>>,
    /// Whether only changes are printed: the first side is then 100.
    pub only_changes: bool,
}

/// The comparisons of a text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Comparisons {
    /// Those that are certain, in their order.
    pub found: Vec<Comparison>,
    /// Tables, rows and sentences with figures that are not certain, with the reason.
    pub doubts: Vec<Fault>,
}

/// Which columns are compared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chosen {
    /// Names of columns that are the sides, the first one to compare with; if the names in the text
    /// do not decide.
    pub sides: Vec<String>,
}

/// Reads a file, and finds the comparisons in it.
///
/// # Errors
/// The file is not text.
pub fn comparisons(bytes: &[u8], chosen: &Chosen) -> Result<(Report, Comparisons), ReadError> {
    let (report, lines) = crate::report::read_lines(bytes)?;
    let kept: BTreeSet<usize> = without_patches(&lines).iter().map(|line| line.number).collect();
    let in_table = |line: &Line| {
        let is_lock_table = |(first, last): (usize, usize)| (first..=last).contains(&line.number);
        report.tables.iter().any(|table| is_lock_table(table.lines))
    };
    let is_own = |line: &&Line| kept.contains(&line.number) && !in_table(line) && !line.log;
    let lines: Vec<&Line> = lines.iter().filter(is_own).collect();
    let mut all = Comparisons::default();
    let mut rest: Vec<&Line> = lines.clone();
    let robot = report.robot.is_some();
    lkp::rows(&lines, report.robot.as_ref(), &mut all, &mut rest);
    let lines = rest.clone();
    let mut blocks: Vec<grid::Block> = vec![];
    while let Some(block) = grid::block(&lines, blocks.last().map_or(0, |block| block.end)) {
        blocks.push(block);
    }
    let mut left = blocks.as_slice();
    while let Some(block) = left.first() {
        let together = match chosen.sides.is_empty() {
            true => captioned::blocks(&lines, left, &mut all),
            false => 0,
        };
        let used = together > 0 || sides::block(&lines, block, chosen, &mut all);
        let (own, more) = left.split_at(together.max(1));
        left = more;
        for block in own.iter().filter(|_| used) {
            let first = block.rows[0].line;
            let last = block.rows[block.rows.len() - 1].line;
            rest.retain(|line| !(first..=last).contains(&line.number));
        }
    }
    // The figures of a robot's report are in its tables; its claim repeats one of them.
    if !robot || all.found.is_empty() {
        sentence::changes(&rest, &mut all);
    }
    once(&mut all);
    Ok((report, all))
}

/// Removes comparisons that a reply quotes again.
fn once(all: &mut Comparisons) {
    let mut seen: Vec<Comparison> = vec![];
    all.found.retain(|found| {
        let plain = Comparison { line: 0, caption: String::new(), ..found.clone() };
        let is_new = !seen.contains(&plain);
        if is_new {
            seen.push(plain);
        }
        is_new
    });
    all.found.sort_by_key(|found| found.line);
    all.doubts.sort_by_key(|doubt| doubt.line);
    all.doubts.dedup();
}

fn doubt(line: usize, what: impl Into<String>) -> Fault {
    Fault { line, column: 1, what: what.into() }
}
