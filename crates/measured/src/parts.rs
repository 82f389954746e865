//! Files that are larger than a part: samples of `perf script`, folded stacks, maps, logs.
//!
//! A part ends between two records. Each is read as a file is, and only sums stay: weights of equal
//! paths, and the first lines at which names are. So memory does not depend on the size of the
//! file.

use std::collections::BTreeMap;
use std::io::Read;

use thiserror::Error;

use crate::fault::ReadError;
use crate::mail::quote;
use crate::prefix::message;
use crate::report::{Report, log_lines, scan};
use crate::stacks::{Stack, Unit};
use crate::text::lines;
use crate::{bytes, kernel_log};

/// Bytes of a part.
const PART: usize = 8 << 20;
/// Bytes at the end of a part in which its end is looked for.
const TAIL: usize = 1 << 20;
/// The most bytes of a file.
const MOST: u64 = 64 << 30;
/// Innermost functions of a wait, and of another sample, that are kept.
const OF_WAIT: usize = 32;
const OF_OTHER: usize = 4;
/// The most paths; of further ones fewer functions are kept.
const PATHS: usize = 100_000;
const OF_MANY: usize = 6;
/// The most names, tables, tasks and holders that are kept.
const NAMES: usize = 50_000;
const TABLES: usize = 1000;
const TASKS: usize = 10_000;

/// Why a file cannot be read in parts.
#[derive(Debug, Error)]
pub enum PartsError {
    /// The operating system returned an error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The contents cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Reads a file of any size. One of at most `whole` bytes, such as [`crate::MAX_BYTES`], is read as
/// a whole.
///
/// # Errors
/// Reading failed, the file is not text, or it is a large file in UTF-16.
pub fn read_parts(mut source: impl Read, whole: usize) -> Result<Report, PartsError> {
    let mut rest = Vec::new();
    source.by_ref().take(whole as u64 + 1).read_to_end(&mut rest)?;
    if rest.len() <= whole {
        return Ok(crate::report::read(&rest)?);
    }
    bytes::check_large(&rest)?;
    let mut sums = Sums::default();
    let mut all = rest.len() as u64;
    let mut is_end = false;
    while !rest.is_empty() {
        while rest.len() < PART && !is_end {
            let n = source.by_ref().take((PART - rest.len()) as u64).read_to_end(&mut rest)?;
            is_end = n == 0;
            all += n as u64;
        }
        if all > MOST {
            let (mib, max_mib) = ((all >> 20) as usize, (MOST >> 20) as usize);
            return Err(ReadError::Large { mib, max_mib }.into());
        }
        let end = if rest.len() <= PART && is_end { rest.len() } else { end_of_part(&rest) };
        let text = bytes::decode_part(&rest[..end])?;
        sums.add(&text);
        rest.drain(..end);
    }
    Ok(sums.report())
}

/// Returns the place of the end of a part: behind a blank line, before the head of a report of a
/// kernel's log or an entry of a map, or before a line that is not indented.
fn end_of_part(bytes: &[u8]) -> usize {
    let most = bytes.len().min(PART);
    let from = most.saturating_sub(TAIL);
    let tail = &bytes[from..most];
    // Starts of lines, the last one first; the rest of the last line is in the next part.
    let mut starts: Vec<usize> = (1..tail.len()).rev().filter(|at| tail[at - 1] == b'\n').collect();
    if starts.len() > 1 {
        starts.remove(0);
    }
    let line = |at: usize| {
        let end = tail[at..].iter().position(|byte| *byte == b'\n').map_or(tail.len(), |n| at + n);
        let line = String::from_utf8_lossy(&tail[at..end]).into_owned();
        line[quote(&line).1..].to_owned()
    };
    let blank = |at: usize| line(at).trim().is_empty();
    let head = |at: usize| {
        let line = line(at);
        let text = message(&line).map_or(&line[..], |from| &line[from..]);
        kernel_log::is_head(text.trim()) || line.starts_with('@') && line.contains('[')
    };
    let flush = |at: usize| {
        let line = line(at);
        !line.starts_with([' ', '\t', ']', '-', '}']) && !line.trim().is_empty()
    };
    let find = |is: &dyn Fn(usize) -> bool| starts.iter().copied().find(|at| is(*at));
    let at = find(&blank).or_else(|| find(&head)).or_else(|| find(&flush));
    from + at.or(starts.first().copied()).unwrap_or(tail.len())
}

/// Sums over the parts that were read.
#[derive(Default)]
struct Sums {
    report: Report,
    weighed: BTreeMap<(Vec<String>, Unit), Stack>,
    others: Vec<Stack>,
    left_out: usize,
}

impl Sums {
    fn add(&mut self, text: &str) {
        let mut lines = lines(text);
        let before = self.report.lines;
        lines.iter_mut().for_each(|line| line.number += before);
        let mut part = Report { lines: before + text.lines().count(), ..Report::default() };
        scan(&lines, &mut part);
        let report = &mut self.report;
        report.lines = part.lines;
        report.log_lines += log_lines(&lines);
        for stack in part.stacks {
            if stack.weight.is_some() && stack.who.is_none() {
                weigh(&mut self.weighed, stack);
            } else if self.others.len() < TASKS {
                let is_known = self.others.iter().any(|known| {
                    known.path == stack.path && known.who == stack.who && known.unit == stack.unit
                });
                if !is_known {
                    self.others.push(stack);
                }
            } else {
                self.left_out += 1;
            }
        }
        for table in part.tables {
            let known = report.tables.iter().any(|one| one.contents() == table.contents());
            match known {
                false if report.tables.len() < TABLES => report.tables.push(table),
                false => self.left_out += 1,
                true => {}
            }
        }
        for (name, line) in part.prose.names {
            if report.prose.names.len() < NAMES {
                report.prose.names.entry(name).or_insert(line);
            }
        }
        for (class, words) in part.prose.classes {
            report.prose.classes.entry(class).or_default().extend(words);
        }
        report.prose.kasan |= part.prose.kasan;
        report.prose.window_ns = report.prose.window_ns.or(part.prose.window_ns);
        report.prose.stress_ng = report.prose.stress_ng.take().or(part.prose.stress_ng);
        report.sizes.add(part.sizes);
        report.robot = report.robot.take().or(part.robot);
        report.flat.extend(part.flat);
        let room = TASKS.saturating_sub(report.orders.len());
        report.orders.extend(part.orders.into_iter().take(room));
        for holder in part.holders {
            if report.holders.len() < TASKS && !report.holders.contains(&holder) {
                report.holders.push(holder);
            }
        }
        for (all, new) in [(&mut report.notes, part.notes), (&mut report.others, part.others)] {
            for note in new {
                if all.len() < TABLES && !all.contains(&note) {
                    all.push(note);
                }
            }
        }
    }

    fn report(self) -> Report {
        let mut report = self.report;
        report.stacks = self.weighed.into_values().chain(self.others).collect();
        report.stacks.sort_by_key(|stack| stack.line);
        report.notes.push(format!(
            "the file is large: it was read in parts, and of each path the {OF_WAIT} innermost \
             functions count"
        ));
        if self.left_out > 0 {
            report.notes.push(format!("{} tables and tasks are left out", self.left_out));
        }
        report
    }
}

/// Adds the weight of a stack to that of equal ones.
fn weigh(all: &mut BTreeMap<(Vec<String>, Unit), Stack>, mut stack: Stack) {
    let most = match stack.is_wait() {
        true if all.len() < PATHS => OF_WAIT,
        true => OF_MANY.max(OF_OTHER),
        false => OF_OTHER,
    };
    let from = stack.path.len().saturating_sub(most);
    stack.path.drain(..from);
    let key = (stack.path.clone(), stack.unit.clone());
    let weight = stack.weight.unwrap_or(0.0);
    match all.get_mut(&key) {
        Some(known) => known.weight = known.weight.map(|sum| sum + weight),
        None => drop(all.insert(key, stack)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_between_records() {
        let record = "perf 12 [001] 1.5: 1 cycles:\n\t_raw_spin_lock+1\n\tdo_exit+2\n";
        for (text, begin) in [
            (format!("{record}\n").repeat(300_000), "perf 12"),
            (record.repeat(300_000), "perf 12"),
            ("@wait[\n    a_b+1\n    c_d+2\n]: 12\n".repeat(500_000), "@wait"),
            ("a_b;c_d;e_f 12\n".repeat(800_000), "a_b"),
            ("> @wait[\n>     a_b+1\n>     c_d+2\n> ]: 12\n".repeat(500_000), "> @wait"),
            ("> > @wait[\n> >   a_b+1\n> > ]: 12\n> >\n".repeat(500_000), "> >"),
        ] {
            let end = end_of_part(text.as_bytes());
            assert!(end > PART - TAIL && end <= PART, "{end}");
            assert!(text[end..].trim_start().starts_with(begin), "{}", &text[end - 40..end + 40]);
        }
    }

    #[test]
    fn sums_of_parts_are_those_of_the_whole() {
        let mut sums = Sums::default();
        let text = "a_b;free_pcppages_bulk;_raw_spin_lock 12\nc_d;e_f;g_h 5\n";
        (0..3).for_each(|_| sums.add(text));
        let report = sums.report();
        assert_eq!(report.lines, 6);
        let weights: Vec<Option<f64>> = report.stacks.iter().map(|stack| stack.weight).collect();
        assert_eq!(weights, [Some(36.0), Some(15.0)]);
        assert_eq!(report.stacks[1].line, 2);
    }
}
