//! A file with everything that was found in it.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_document::{is_acquiring, is_locking};

use crate::contention::Contention;
use crate::fault::ReadError;
use crate::frame::is_fast_spin;
use crate::lockdep::{self, Order};
use crate::prose::{Prose, without_patches};
use crate::robot::Robot;
use crate::size::{Sizes, sizes};
use crate::stacks::{Stack, Unit};
use crate::table::Table;
use crate::text::{Line, lines};
use crate::{
    bytes, chain, frame, kernel_log, klockstat, live, lock_stat, mail, perf, perf_csv, robot,
    stacks, summary, tree,
};

/// The contents of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The tables, in their order. A table that is quoted again is there once.
    pub tables: Vec<Table>,
    /// The call paths outside of tables.
    pub stacks: Vec<Stack>,
    /// The facts of all other lines.
    pub prose: Prose,
    /// The sender, the subject and the date of a mail.
    pub source: Option<String>,
    /// Remarks on the encoding and the form of the file.
    pub notes: Vec<String>,
    /// Number of lines.
    pub lines: usize,
    /// The number of CPUs.
    pub sizes: Sizes,
    /// The report of a robot, before and after a commit.
    pub robot: Option<Robot>,
    /// Figures of a trace of contended locks beyond its table.
    pub contention: Option<Contention>,
    /// Functions of a profile without callers, with the share of the samples in them.
    pub flat: Vec<(String, f64)>,
    /// Holders that a kernel's log names: the lock, which may be empty, and the task.
    pub holders: Vec<(String, String)>,
    /// Warnings of lockdep on the order of locks.
    pub orders: Vec<Order>,
    /// Number of lines of a kernel's log.
    pub log_lines: usize,
    /// Call paths of further profiles, with the lines at which these begin.
    pub profiles: Vec<(usize, Vec<Stack>)>,
    /// Reports of other commands, which have less than is needed, with advice.
    pub others: Vec<String>,
}

/// Samples of a profile without callers that are at locks for which CPUs spin.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Spinning {
    /// The part of all samples in functions that wait.
    pub waits: f64,
    /// The part in functions that take a lock, and wait only where the kernel has no function of
    /// its own for that.
    pub takes: f64,
    /// The functions, the first ones of the profile first: those that wait, if there are any.
    pub functions: Vec<String>,
}

impl Report {
    /// Returns the samples at locks of a profile without callers. `None` without one, and if none
    /// of its functions is of such a lock.
    pub fn spinning(&self) -> Option<Spinning> {
        let is_of_lock =
            |name: &str| is_acquiring(name) && (name.contains("spin") || name.contains("osq"));
        let own = || self.flat.iter().filter(|(name, _)| is_of_lock(name));
        let (takes, waits): (Vec<_>, Vec<_>) = own().partition(|(name, _)| is_fast_spin(name));
        let sum = |rows: &[&(String, f64)]| rows.iter().map(|(_, share)| share).sum::<f64>();
        let rows = if waits.is_empty() { &takes } else { &waits };
        let functions: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
        let found = Spinning { waits: sum(&waits), takes: sum(&takes), functions };
        (!found.functions.is_empty()).then_some(found)
    }
    /// Adds what a trace in the file shows. Its stacks are in its table.
    pub fn add(&mut self, seen: Option<Contention>) {
        let Some(mut seen) = seen else { return };
        seen.table = seen.table.checked();
        let is_of_trace = |unit: &Unit| match unit {
            Unit::Event(name) => name.contains("contention_") || name.contains("contended_"),
            _ => false,
        };
        self.stacks.retain(|stack| !is_of_trace(&stack.unit));
        self.lines = self.lines.max(seen.table.lines.1);
        self.tables.push(seen.table.clone());
        self.contention = Some(seen);
    }
}

/// Reads a file: a report, or a mail with reports in it.
///
/// # Errors
/// The file is not text, or it is a document of this project of another kind. Errors within a table
/// are in [`Table::fault`].
pub fn read(bytes: &[u8]) -> Result<Report, ReadError> {
    read_lines(bytes).map(|(report, _)| report)
}

/// Reads a file, and returns its lines too.
pub(crate) fn read_lines(bytes: &[u8]) -> Result<(Report, Vec<Line>), ReadError> {
    let (text, note) = bytes::decode(bytes)?;
    let mut report = Report { notes: note.into_iter().collect(), ..Report::default() };
    if let Some(document) = live::parse(&text) {
        report.tables.push(document?.checked());
        report.lines = text.lines().count();
        return Ok((report, vec![]));
    }
    report.source = mail::source(&text);
    let (text, note) = mail::body(&text);
    report.notes.extend(note.map(str::to_owned));
    let lines = lines(&text);
    report.lines = lines.last().map_or(0, |line| line.number);
    report.log_lines = log_lines(&lines);
    scan(&lines, &mut report);
    Ok((report, lines))
}

/// Returns the number of lines of a kernel's log.
pub(crate) fn log_lines(lines: &[Line]) -> usize {
    lines.iter().filter(|line| line.log).count()
}

/// Finds tables and stacks; everything else is prose. Of several events the first one counts.
pub(crate) fn scan(lines: &[Line], report: &mut Report) {
    match tree::of_leader(lines) {
        Some((lines, note)) => {
            report.notes.push(note);
            scan_one(&lines, report);
        }
        None => scan_one(lines, report),
    }
}

fn scan_one(lines: &[Line], report: &mut Report) {
    let kept = without_patches(lines);
    let is_kept = |line: &Line| kept.binary_search_by_key(&line.number, |line| line.number).is_ok();
    let mut sizable: Vec<&Line> = Vec::new();
    let (mut rest, mut at) = (Vec::new(), 0);
    let (mut seen, mut all, mut trees) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut no_stack_before = 0;
    while at < lines.len() {
        let line = &lines[at];
        if !is_kept(line) || line.is_blank() {
            rest.push(line);
            at += 1;
        } else if let Some(table) = table(lines, at) {
            let (found, end) = with_more(lines, at, table);
            at = end;
            let new = found.into_iter().filter(|table| seen.insert(table.contents()));
            report.tables.extend(new.map(Table::checked));
        } else if let Some((order, end)) = lockdep::parse(lines, at) {
            sizable.extend(&lines[at..end]);
            at = end;
            report.orders.push(order);
        } else if let Some(found) = kernel_log::parse(lines, at).filter(kernel_log::Found::any) {
            sizable.extend(&lines[at..found.end]);
            at = found.end.max(at + 1);
            all.extend(found.stacks);
            report.holders.extend(found.holders);
        } else if let Some((stack, end)) = chain::parse(lines, at) {
            at = end;
            all.push(stack);
        } else if let Some(tree) = tree::parse(lines, at) {
            let start = at;
            at = tree.end.max(at + 1);
            trees.push((start, tree));
        } else {
            if at >= no_stack_before {
                match stacks::parse(lines, at) {
                    Ok((stack, end)) => {
                        let is_other = stack.unit == Unit::None && kernel_log::is_crash(lines, at);
                        at = end.max(at + 1);
                        all.extend((!is_other).then_some(stack));
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
    let profile = tree::chosen(trees, lines);
    report.flat = profile.flat;
    report.profiles = profile.others;
    report.notes.extend(profile.notes);
    let (prose, data): (Vec<&Line>, Vec<&Line>) = rest.iter().partition(|line| !is_data(line));
    sizable.extend(&rest);
    sizable.sort_by_key(|line| line.number);
    sizable.retain(|line| is_kept(line));
    report.sizes = sizes(&sizable);
    for paragraph in prose.split(|line| line.is_blank()) {
        all.extend(stacks::chains(paragraph));
    }
    all.extend(profile.stacks);
    report.stacks = without_cut(once(joined(all, lines), lines));
    report.robot =
        robot::parse(&data.into_iter().chain(prose.iter().copied()).cloned().collect::<Vec<_>>());
    if report.tables.is_empty() {
        report.others.extend(perf::without_headings(&rest));
    }
    let prose: Vec<&Line> = prose.into_iter().filter(|line| is_kept(line)).collect();
    report.prose = Prose::of(&prose);
}

/// Returns a table with those below it that have no headings of their own, and the index of the
/// line after them.
fn with_more(lines: &[Line], from: usize, table: Table) -> (Vec<Table>, usize) {
    let is_lock_stat = table.tool == lock_stat::TOOL;
    let (mut all, mut end) = (vec![], from + 1);
    let mut next = Some(table);
    while let Some(table) = next {
        end = table.end.max(end);
        all.push(table);
        next = is_lock_stat.then(|| lock_stat::more(lines, from, end)).flatten();
    }
    (all, end)
}

/// Joins the parts of a quoted stack into which a reply was written. The first part has only
/// functions of the lock, so that its caller is in the second.
fn joined(mut all: Vec<Stack>, lines: &[Line]) -> Vec<Stack> {
    let at = |stack: &Stack| lines.partition_point(|line| line.number < stack.line);
    all.sort_by_key(|stack| stack.line);
    let mut joined: Vec<Stack> = Vec::with_capacity(all.len());
    for mut stack in all {
        let cut = |first: &&mut Stack| {
            let of_lock = first.is_wait()
                && first.wait_frames() == Some(first.path.len())
                && first.unit == Unit::None
                && stack.unit == Unit::None;
            let (from, to) = (at(first), at(&stack));
            let depth = lines.get(from).map_or(0, |line| line.quote);
            let between = lines.get(from..to).unwrap_or(&[]);
            let same = lines.get(to).is_some_and(|line| line.quote == depth);
            let is_part =
                |line: &Line| line.is_blank() || line.quote < depth || frame::frame(line).is_some();
            of_lock && same && depth > 0 && between.iter().all(is_part)
        };
        match joined.last_mut().filter(cut) {
            Some(first) => {
                stack.path.append(&mut first.path);
                first.path = stack.path;
            }
            None => joined.push(stack),
        }
    }
    joined
}

/// Removes stacks without the caller of a lock, if another stack of the same CPU has it: `crash`
/// prints only the innermost function of what a log has reported.
fn without_cut(mut all: Vec<Stack>) -> Vec<Stack> {
    let cpu = |stack: &Stack| {
        let who = stack.who.as_deref().filter(|_| stack.unit == Unit::Task)?;
        Some(who.split(',').next()?.to_owned()).filter(|who| who.starts_with("CPU "))
    };
    let is_cut = |stack: &Stack| stack.path.iter().all(|name| is_locking(name));
    let whole: BTreeSet<String> =
        all.iter().filter(|stack| stack.is_wait() && !is_cut(stack)).filter_map(cpu).collect();
    all.retain(|stack| !is_cut(stack) || cpu(stack).is_none_or(|cpu| !whole.contains(&cpu)));
    all
}

/// Returns stacks without those that replies quote again, or that a log has twice of one task. A
/// sample counts as often as it is there.
fn once(mut all: Vec<Stack>, lines: &[Line]) -> Vec<Stack> {
    let quote = |stack: &Stack| {
        let at = lines.partition_point(|line| line.number < stack.line);
        lines.get(at).map_or(0, |line| line.quote)
    };
    // A report and the panic after it have the same CPU and task.
    let who = |stack: &Stack| {
        let who = stack.who.clone()?;
        let mut parts = who.split(", ");
        let both = parts.next().filter(|cpu| cpu.starts_with("CPU ")).zip(parts.next());
        let both = both.filter(|(_, task)| task.contains(':'));
        Some(both.map(|(cpu, task)| format!("{cpu}, {task}")).unwrap_or(who))
    };
    let mut seen = BTreeMap::new();
    all.retain(|stack| {
        let key = (stack.path.clone(), stack.weight.map(f64::to_bits), who(stack));
        let depth = quote(stack);
        match seen.get(&key) {
            None => {
                seen.insert(key, depth);
                true
            }
            Some(first) => {
                let is_sample =
                    !matches!(stack.unit, Unit::None | Unit::Task | Unit::Share | Unit::Part);
                is_sample && *first == depth
            }
        }
    });
    all
}

/// Returns whether a line is of a tool or of a log. Names in it are not words of the author.
fn is_data(line: &Line) -> bool {
    let text = line.text.trim();
    let words = || text.split_whitespace();
    let percent = words().any(|word| {
        word.strip_suffix('%').is_some_and(|n| n.parse::<f64>().is_ok()) && word.contains('.')
    });
    let marked = words().any(|word| ["[k]", "[.]"].contains(&word));
    let folded = words().any(|word| word.matches(';').count() >= 2);
    let counted = words().count() <= 3
        && words().next().is_some_and(|word| word.contains('_'))
        && words().next_back().is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit()));
    let offset = words().next().is_some_and(|word| word.contains("+0x"));
    // Columns of figures, then names, as in `7995  8.7435  vmlinux  shrink_page_list`.
    let is_figure = |word: &str| word.parse::<f64>().is_ok();
    let columns = words().count() <= 8 && words().take_while(|word| is_figure(word)).count() >= 2;
    let addresses = words().filter(|word| is_address(word)).count() >= 2;
    line.log
        || text.contains("perf-profile.")
        || percent && (marked || words().count() == 2)
        || is_row(text)
        || folded
        || counted
        || offset
        || columns
        || addresses
        || kernel_log::is_head(text)
}

/// Returns whether a line begins as a row of a profile: a share, and a function. A remark may
/// follow.
fn is_row(text: &str) -> bool {
    let mut words = text.trim_start_matches(['-', '+', '|', ' ']).split_whitespace();
    let share = words.next().and_then(|word| word.strip_suffix('%'));
    let is_share = share.is_some_and(|n| n.contains('.') && n.parse::<f64>().is_ok());
    is_share
        && words.next().is_some_and(|name| {
            name.contains('_')
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.".contains(&b))
        })
}

/// Returns whether a word is an address of a kernel of 64 bits.
fn is_address(word: &str) -> bool {
    let digits = word.trim_matches(['[', ']', '<', '>', '(', ')']).trim_start_matches("0x");
    digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
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
