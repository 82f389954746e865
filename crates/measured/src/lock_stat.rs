//! `/proc/lock_stat`: a row for each class of lockdep, with times in us, and below it the functions
//! that waited and those that held the lock then, with counts.
//!
//! The first group of points has the functions that waited, the second those that held the lock.
//! Rows are longer than a line of a mail, so that a row may be broken anywhere.

use mmscale_document::{MeasuredWait, OTHER_CLASS, Site, plain_function};

use crate::fault::Fault;
use crate::number::{read_count, read_fixed, real, to_ns};
use crate::table::{Table, by_name};
use crate::text::{Cursor, Line};

/// A column with a figure.
#[derive(Clone, Copy)]
enum Column {
    Contentions,
    WaitMax,
    WaitTotal,
    Acquisitions,
    HoldTotal,
    /// A count that is not kept.
    Count,
    /// A time that is not kept.
    Time,
}

/// The words of a column's heading, and the column.
type Heading = (&'static str, Column);

/// The headings after `class name`.
const COLUMNS: [Heading; 12] = [
    ("con-bounces", Column::Count),
    ("contentions", Column::Contentions),
    ("waittime-min", Column::Time),
    ("waittime-max", Column::WaitMax),
    ("waittime-total", Column::WaitTotal),
    ("waittime-avg", Column::Time),
    ("acq-bounces", Column::Count),
    ("acquisitions", Column::Acquisitions),
    ("holdtime-min", Column::Time),
    ("holdtime-max", Column::Time),
    ("holdtime-total", Column::HoldTotal),
    ("holdtime-avg", Column::Time),
];

/// Words of a name before its colon; lockdep's names are C expressions with a few blanks.
const NAME_WORDS: usize = 6;

/// The name of the form.
pub(crate) const TOOL: &str = "/proc/lock_stat";

const US: f64 = 1e3;

/// Reads the table that begins at a line. `None` if none begins there.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<Table> {
    let mut cursor = Cursor::new(lines, from);
    let Some(columns) = header(&mut cursor) else { return turned(lines, from) };
    cursor.next_line();
    Some(rows(lines, from, cursor, &columns))
}

/// The fewest rows of a turned table.
const TURNED: usize = 3;

/// Reads a table whose rows are the figures, and whose columns are locks, or one lock in several
/// kernels: authors write such tables by hand. `None` if none begins at a line.
///
/// ```text
///                    Before          After
/// class name         &counter->lock: &counter->lock:
/// contentions        1575341         976349
/// waittime-total     675713.23       465926.04
/// ```
fn turned(lines: &[Line], from: usize) -> Option<Table> {
    let values = |at: usize| -> Option<(Column, Vec<f64>)> {
        let mut words = lines.get(at)?.text.split_whitespace();
        let label = words.next()?.trim_end_matches(':');
        let (_, column) = COLUMNS.iter().find(|(name, _)| *name == label)?;
        let values: Option<Vec<f64>> = words.map(real).collect();
        Some((*column, values.filter(|values| !values.is_empty())?))
    };
    let names: Vec<&str> = match lines[from].text.trim().strip_prefix("class name") {
        Some(names) => names.split_whitespace().collect(),
        // The lock may be in the text above.
        None => vec![],
    };
    let first = from + usize::from(lines[from].text.trim().starts_with("class name"));
    let sides = values(first)?.1.len();
    let labels = label(lines, from, sides);
    let fits = names.len() == sides;
    if !fits && labels.is_none() || sides > MOST_TURNED {
        return None;
    }
    let wait = |side: usize| {
        let name = names.get(side).filter(|_| fits).map(|name| name.trim_end_matches(':'));
        let mut wait = name.map_or_else(MeasuredWait::default, |name| by_name(name, None));
        if name.is_none() {
            OTHER_CLASS.clone_into(&mut wait.class);
        }
        wait.task = labels.as_ref().map(|labels| labels[side].clone());
        wait
    };
    let mut waits: Vec<MeasuredWait> = (0..sides).map(wait).collect();
    let mut end = first;
    while let Some((column, values)) = values(end).filter(|(_, values)| values.len() == sides) {
        for (wait, value) in waits.iter_mut().zip(values) {
            match column {
                Column::Contentions => wait.contentions = Some(value as u64),
                Column::Acquisitions => wait.acquisitions = Some(value as u64),
                Column::WaitMax => wait.wait_max_ns = Some(to_ns(value, US)),
                Column::WaitTotal => wait.wait_total_ns = Some(to_ns(value, US)),
                Column::HoldTotal => wait.hold_total_ns = Some(to_ns(value, US)),
                Column::Count | Column::Time => {}
            }
        }
        end += 1;
    }
    let has_waits = waits.iter().all(|wait| wait.wait_total_ns.is_some());
    (has_waits && end - first >= TURNED).then(|| Table {
        // With labels the columns are kernels, and each has a figure of its own.
        tool: if labels.is_some() { "summary" } else { TOOL }.to_owned(),
        caption: if labels.is_some() { TOOL } else { "" }.to_owned(),
        lines: (lines[from].number, lines[end - 1].number),
        waits,
        end,
        ..Table::default()
    })
}

/// The most columns of a turned table.
const MOST_TURNED: usize = 16;

/// Returns the labels of the columns on the line above.
fn label(lines: &[Line], from: usize, sides: usize) -> Option<Vec<String>> {
    let above = lines[..from].iter().rev().find(|line| !is_rule(line))?;
    let words: Vec<String> = above.text.split_whitespace().map(str::to_owned).collect();
    let named = words.iter().all(|word| real(word).is_none() && !word.ends_with(['.', ':']));
    (words.len() == sides && sides > 1 && named).then_some(words)
}

/// Reads a table that follows another one below the same headings, which are at a line, after a
/// label such as `AFTER`. `None` if none begins there.
pub(crate) fn more(lines: &[Line], headings: usize, from: usize) -> Option<Table> {
    let columns = header(&mut Cursor::new(lines, headings))?;
    let at = (from..lines.len()).find(|at| !lines[*at].is_blank())?;
    is_label(lines, at).then(|| rows(lines, at, Cursor::new(lines, at), &columns))
}

/// Number of lines after a label in which a row begins.
const NEAR: usize = 4;

/// Returns whether a line is a label, after which rows follow.
fn is_label(lines: &[Line], at: usize) -> bool {
    let short = (1..=6).contains(&lines[at].words().len());
    let mut next = (at + 1..lines.len()).take(NEAR).map(|next| Cursor::new(lines, next));
    short && !lines[at].text.contains("con-bounces") && next.any(|cursor| name(&cursor).is_some())
}

/// Reads the rows of a table.
fn rows(lines: &[Line], from: usize, mut cursor: Cursor<'_>, columns: &[Heading]) -> Table {
    let mut table = Table {
        tool: TOOL.to_owned(),
        lines: (lines[from].number, lines[from].number),
        ..Table::default()
    };
    let mut group = 0;
    let mut last = cursor.at();
    while let Some(line) = cursor.line() {
        if line.is_blank() || is_rule(line) {
            if is_rule(line) {
                group += 1;
            }
            cursor.next_line();
            continue;
        }
        if line.is_elision() {
            let what = format!("rows are left out at line {}: sums are too low", line.number);
            table.notes.push(what);
            cursor.next_line();
            continue;
        }
        if let Some((site, next)) = point(&cursor) {
            if let Some(wait) = table.waits.last_mut() {
                let sites = if group <= 1 { &mut wait.waiters } else { &mut wait.holders };
                sites.push(site);
            }
            cursor = next;
        } else if let Some((name, next)) = name(&cursor) {
            cursor = next;
            group = 0;
            // A diff of two files: the first of them counts.
            let added = name.strip_prefix("+ ");
            let plain = added.or_else(|| name.strip_prefix("- ")).unwrap_or(&name);
            match row(&mut cursor, plain, columns) {
                Ok(_) if added.is_some() && !table.waits.is_empty() => {
                    if table.notes.is_empty() {
                        table.notes.push(format!(
                            "line {}: rows with `+` are of another file: not counted",
                            line.number
                        ));
                    }
                }
                Ok(wait) => table.waits.push(wait),
                Err(fault) => {
                    table.fault = Some(fault);
                    last = cursor.at() + 1;
                    break;
                }
            }
            cursor.next_line();
        } else if table.waits.is_empty() && is_label(lines, cursor.at()) {
            table.caption = line.text.trim().trim_end_matches(':').to_owned();
            cursor.next_line();
        } else {
            break;
        }
        last = cursor.at();
    }
    table.end = last.clamp(from + 1, lines.len());
    table.lines.1 = lines[table.end - 1].number;
    table
}

/// Reads the headings. Versions before 0.4 have no means.
fn header(cursor: &mut Cursor<'_>) -> Option<Vec<Heading>> {
    let [first, second] = [cursor.next_wrapped()?.text, cursor.next_wrapped()?.text];
    if (first, second) != ("class", "name") {
        return None;
    }
    let mut columns = Vec::new();
    let mut rest = COLUMNS.iter();
    loop {
        let mut probe = cursor.clone();
        let Some(word) = probe.next_wrapped() else { break };
        // A column that this version does not have is passed over.
        let Some(heading) = rest.find(|(name, _)| *name == word.text) else { break };
        columns.push(*heading);
        *cursor = probe;
    }
    (columns.len() >= 5).then_some(columns)
}

/// Returns whether a line is a rule of dashes.
fn is_rule(line: &Line) -> bool {
    let text = line.text.trim();
    text.len() >= 3 && text.bytes().all(|byte| byte == b'-' || byte == b'.')
        || text.starts_with("-----")
}

/// Reads a name up to its colon, if the line begins with one and a figure follows.
fn name<'a>(cursor: &Cursor<'a>) -> Option<(String, Cursor<'a>)> {
    let mut next = cursor.clone();
    let mut name = Vec::new();
    for _ in 0..NAME_WORDS {
        let word = next.peek()?;
        next.skip();
        if let Some(last) = word.text.strip_suffix(':') {
            name.push(last);
            // Nothing follows a row that is cut, nor a label such as `Before the patch:`.
            let is_label = name.len() > 1 && name.iter().all(|word| is_plain(word));
            let figure = next.clone().next_wrapped().map_or(!is_label, |word| {
                word.text.bytes().all(|byte| byte.is_ascii_digit() || b".,?".contains(&byte))
            });
            return figure.then(|| (name.join(" "), next));
        }
        name.push(word.text);
    }
    None
}

fn is_plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn row(cursor: &mut Cursor<'_>, name: &str, columns: &[Heading]) -> Result<MeasuredWait, Fault> {
    let kind = if name.ends_with("-R") {
        Some("read")
    } else if name.ends_with("-W") {
        Some("write")
    } else {
        None
    };
    let mut wait = by_name(name, kind);
    for (what, column) in columns {
        match column {
            Column::Count | Column::Contentions | Column::Acquisitions => {
                let n = read_count(cursor, what)?;
                match column {
                    Column::Contentions => wait.contentions = Some(n),
                    Column::Acquisitions => wait.acquisitions = Some(n),
                    _ => {}
                }
            }
            _ => {
                let ns = read_fixed(cursor, what, US)?;
                match column {
                    Column::WaitMax => wait.wait_max_ns = Some(ns),
                    Column::WaitTotal => wait.wait_total_ns = Some(ns),
                    Column::HoldTotal => wait.hold_total_ns = Some(ns),
                    _ => {}
                }
            }
        }
    }
    Ok(wait)
}

/// Reads a point: the lock's name, a count, an address in `[<..>]`, a function.
fn point<'a>(cursor: &Cursor<'a>) -> Option<(Site, Cursor<'a>)> {
    let mut next = cursor.clone();
    let mut count = None;
    for _ in 0..=NAME_WORDS + 1 {
        let word = next.next_wrapped()?;
        if word.text.starts_with("[<") && word.text.ends_with(">]") {
            let contentions = count?;
            let function = plain_function(next.next_wrapped()?.text).to_owned();
            next.next_line();
            return Some((Site { function, contentions }, next));
        }
        if word.text.ends_with(':') {
            return None;
        }
        count = crate::number::count(word.text);
    }
    None
}
