//! `perf report -g flat` and `-g folded`: each call chain of an entry with its share.
//!
//! ```text
//!     43.10%  usemem   [kernel.kallsyms]  [k] native_queued_spin_lock_slowpath
//! 30.10% native_queued_spin_lock_slowpath;_raw_spin_lock_irqsave;release_pages
//! ```
//!
//! With `-g flat` the functions are below the share, one a line.

use mmscale_document::{is_acquiring, plain_function};

use crate::frame::frame;
use crate::stacks::{Stack, Unit};
use crate::text::Line;

/// The most lines of an entry with its chains.
const LINES: usize = 2000;

/// Reads the chain that begins at a line. Returns it, and the index of the line after it.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<(Stack, usize)> {
    let (percent, rest) = share(&lines[from])?;
    let (mut path, end) = functions(lines, from, rest)?;
    let entry = (from.saturating_sub(LINES)..from).rev().find_map(|at| entry(&lines[at], at))?;
    // Shares are of the entry if they have more than the entry has of all samples.
    let chains = lines[entry.1 + 1..].iter().take(LINES);
    let chains = chains.take_while(|line| self::entry(line, 0).is_none()).filter_map(share);
    let sum: f64 = chains.map(|(percent, _)| percent).sum();
    let is_relative = sum > entry.0 + 0.5;
    let waits = |name: Option<&String>| name.is_some_and(|name| is_acquiring(name));
    if waits(path.first()) || !waits(path.last()) {
        path.reverse();
    }
    let weight = percent / 100.0 * if is_relative { entry.0 / 100.0 } else { 1.0 };
    let line = lines[from].number;
    Some((Stack { path, weight: Some(weight), unit: Unit::Share, line, who: None }, end))
}

/// Reads a share at the beginning of a line, with what is behind it.
fn share(line: &Line) -> Option<(f64, &str)> {
    let text = line.text.trim();
    let (number, rest) = text.split_once('%')?;
    let percent: f64 = number.parse().ok().filter(|x| (0.0..=100.0).contains(x))?;
    let rest = rest.trim();
    let folded = rest.contains(';') && !rest.contains("; ");
    (number.contains('.') && (rest.is_empty() || folded)).then_some((percent, rest))
}

/// Reads an entry: a row with its share and the mark of a kernel's or a program's function.
fn entry(line: &Line, at: usize) -> Option<(f64, usize)> {
    let marked = line.text.contains("[k] ") || line.text.contains("[.] ");
    let first = line.text.split_whitespace().next().filter(|_| marked)?;
    Some((first.strip_suffix('%')?.parse().ok()?, at))
}

/// Reads the functions of a chain: behind its share, or on the lines below.
fn functions(lines: &[Line], from: usize, rest: &str) -> Option<(Vec<String>, usize)> {
    let (path, end): (Vec<String>, usize) = match rest {
        "" => {
            let below = lines[from + 1..].iter().map_while(frame);
            let names: Vec<Vec<String>> = below.map(|frame| frame.names).collect();
            let count = names.len();
            (names.concat(), from + 1 + count)
        }
        rest => {
            (rest.split(';').map(|name| plain_function(name.trim()).to_owned()).collect(), from + 1)
        }
    };
    (path.len() >= 2).then_some((path, end))
}
