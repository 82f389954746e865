//! `perf lock contention` as a table, with and without stacks (`-v`), by caller, task (`-t`), lock
//! (`-l`) or cgroup.
//!
//! A row has the columns that `-F` chose, each a count or a number with its unit, then the kind of
//! the lock and the function that waited. With `-v` the frames of the stack follow, one a line.

use mmscale_document::{LockKind, MeasuredWait, path_of};

use crate::fault::Fault;
use crate::number::{read_count, read_time, real};
use crate::table::{Table, by_caller, by_name, by_task, enter_path};
use crate::text::{Cursor, Line};

/// A column with a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    /// Number of waits.
    Contended,
    /// Total wait.
    Total,
    /// The longest wait.
    Max,
    /// The shortest wait, or the mean: both are read and not kept.
    Ignored,
}

/// The figures' columns, by the words of their headings.
pub(crate) const COLUMNS: [(&str, Column); 5] = [
    ("contended", Column::Contended),
    ("total wait", Column::Total),
    ("max wait", Column::Max),
    ("min wait", Column::Ignored),
    ("avg wait", Column::Ignored),
];

/// The subject of a row, which its last columns name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// The kind of the lock and the function that waited.
    Caller,
    /// A task.
    Task,
    /// The address, the name and the kind of a lock.
    Lock,
    /// A cgroup.
    Cgroup,
}

/// The last columns, by the words of their headings.
pub(crate) const SUBJECTS: [(&str, Subject); 5] = [
    ("type caller", Subject::Caller),
    ("pid comm", Subject::Task),
    ("pid owner", Subject::Task),
    ("address symbol", Subject::Lock),
    ("cgroup", Subject::Cgroup),
];

/// Kinds of locks, as perf prints them.
const KINDS: [(&str, LockKind); 19] = [
    ("spinlock", LockKind::Spin),
    ("rwlock:R", LockKind::Rwlock),
    ("rwlock:W", LockKind::Rwlock),
    ("rwlock", LockKind::Rwlock),
    ("rwsem:R", LockKind::Rwsem),
    ("rwsem:W", LockKind::Rwsem),
    ("rwsem", LockKind::Rwsem),
    ("mutex", LockKind::Mutex),
    ("mutex-spin", LockKind::Mutex),
    ("rtmutex", LockKind::Mutex),
    ("rt-mutex", LockKind::Mutex),
    ("rt=mutex", LockKind::Mutex),
    ("rwlock-rt:R", LockKind::Rwlock),
    ("rwlock-rt:W", LockKind::Rwlock),
    ("pcpu-sem:R", LockKind::PercpuRwsem),
    ("pcpu-sem:W", LockKind::PercpuRwsem),
    ("percpu-rwsem", LockKind::PercpuRwsem),
    ("semaphore", LockKind::Other),
    ("unknown", LockKind::Other),
];

/// Returns the kind of a lock by perf's word for it.
pub(crate) fn kind(word: &str) -> Option<LockKind> {
    KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
}

/// Returns advice if lines are rows of a table whose headings are missing or in another language.
pub(crate) fn without_headings(lines: &[&Line]) -> Option<String> {
    let is_row = |line: &&&Line| {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let names = words.windows(2).any(|pair| kind(pair[0]).is_some() && pair[1].contains("+0x"));
        names && words[0].bytes().all(|byte| byte.is_ascii_digit())
    };
    let first = lines.iter().find(is_row)?;
    Some(format!(
        "line {}: rows of `perf lock contention` without its headings; put the line `contended  \
         total wait  max wait  avg wait  type  caller` before them, with those columns that they \
         have",
        first.number
    ))
}

/// Returns the error of a word that is no kind of lock.
pub(crate) fn no_kind(word: &str) -> String {
    format!("`{word}` is no kind of lock; perf prints spinlock, rwlock:R, rwsem:W, mutex, ..")
}

/// Enters a figure into a row.
pub(crate) fn enter(wait: &mut MeasuredWait, column: Column, value: u64) {
    match column {
        Column::Contended => wait.contentions = Some(value),
        Column::Total => wait.wait_total_ns = Some(value),
        Column::Max => wait.wait_max_ns = Some(value),
        Column::Ignored => {}
    }
}

/// Number of lines after a table in which perf reports lost events.
const FOOTER: usize = 8;

/// Reads the table that begins at a line. `None` if none begins there.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<Table> {
    let mut cursor = Cursor::new(lines, from);
    let (columns, subject) = header(&mut cursor)?;
    let form = match subject {
        Subject::Caller => "callers",
        Subject::Task => "tasks",
        Subject::Lock => "locks",
        Subject::Cgroup => "cgroups",
    };
    let mut table = Table {
        tool: format!("perf lock contention, {form}"),
        lines: (lines[from].number, lines[from].number),
        ..Table::default()
    };
    cursor.next_line();
    let (mut stacks, mut end) = (false, cursor.at());
    while next_row(&mut cursor, &mut table) {
        match row(&mut cursor, &columns, subject) {
            Ok((wait, has_stack)) => {
                stacks |= has_stack;
                table.waits.push(wait);
                end = cursor.at();
            }
            Err(fault) => {
                table.fault = Some(fault);
                end = cursor.at() + 1;
                break;
            }
        }
    }
    if stacks {
        table.tool.push_str(" with stacks");
    }
    table.end = end.clamp(from + 1, lines.len());
    table.lines.1 = lines[table.end - 1].number;
    table.notes.extend(lost(lines, table.end));
    Some(table)
}

/// Reads the headings.
fn header(cursor: &mut Cursor<'_>) -> Option<(Vec<Column>, Subject)> {
    let mut columns = Vec::new();
    while columns.len() <= COLUMNS.len() {
        let first = cursor.next_wrapped()?.text;
        if let Some((_, column)) = COLUMNS.iter().find(|(name, _)| *name == first) {
            columns.push(*column);
            continue;
        }
        if first == "cgroup" && !columns.is_empty() {
            return Some((columns, Subject::Cgroup));
        }
        let second = cursor.next_wrapped()?.text;
        let both = format!("{first} {second}");
        if let Some((_, column)) = COLUMNS.iter().find(|(name, _)| *name == both) {
            columns.push(*column);
            continue;
        }
        let (_, subject) = SUBJECTS.iter().find(|(name, _)| *name == both)?;
        return (!columns.is_empty()).then_some((columns, *subject));
    }
    None
}

/// Moves to the next row. Returns `false` at the end of the table.
fn next_row(cursor: &mut Cursor<'_>, table: &mut Table) -> bool {
    let mut blank = false;
    loop {
        let Some(line) = cursor.line() else { return false };
        if line.is_blank() {
            // One blank line follows the headings.
            if blank {
                return false;
            }
            blank = true;
        } else if line.is_elision() {
            let what = format!("rows are left out at line {}: sums are too low", line.number);
            table.notes.push(what);
        } else {
            return looks_like_row(cursor, blank && !table.waits.is_empty());
        }
        cursor.next_line();
    }
}

/// Returns whether the line begins with a figure. After a blank line, a sentence may begin with
/// one, so that a second figure or a unit must follow.
fn looks_like_row(cursor: &Cursor<'_>, strictly: bool) -> bool {
    let number = |word: Option<crate::text::Word<'_>>| word.is_some_and(|w| real(w.text).is_some());
    let unit = |word: Option<crate::text::Word<'_>>| {
        word.is_some_and(|w| crate::number::unit_ns(w.text).is_some())
    };
    let second = cursor.peek_second();
    number(cursor.peek()) && (!strictly || number(second) || unit(second))
}

/// Reads a row with its stack. Returns whether it has one.
fn row(
    cursor: &mut Cursor<'_>,
    columns: &[Column],
    subject: Subject,
) -> Result<(MeasuredWait, bool), Fault> {
    let mut figures = Vec::new();
    for column in columns {
        figures.push(match column {
            Column::Contended => read_count(cursor, "the number of waits")?,
            Column::Total => read_time(cursor, "the total wait")?,
            Column::Max => read_time(cursor, "the longest wait")?,
            Column::Ignored => read_time(cursor, "a mean wait")?,
        });
    }
    let end = |cursor: &Cursor<'_>, what: &str| {
        cursor.end_fault(format!("the row ends before {what}: the table is cut; give all of it"))
    };
    let mut wait = match subject {
        Subject::Caller => {
            let word = cursor.next_wrapped().ok_or_else(|| end(cursor, "the kind of lock"))?;
            let kind = kind(word.text).ok_or_else(|| word.fault(no_kind(word.text)))?;
            let caller = cursor.next_wrapped().ok_or_else(|| end(cursor, "the function"))?;
            let mut wait = by_caller(caller.text, kind, word.text);
            cursor.next_line();
            if let Some(path) = stack(cursor) {
                // A stack may be cut behind the functions of the lock.
                if !path.is_empty() {
                    enter_path(&mut wait, path, kind);
                }
                figures.iter().zip(columns).for_each(|(n, column)| enter(&mut wait, *column, *n));
                return Ok((wait, true));
            }
            wait
        }
        Subject::Task => {
            cursor.next_wrapped().ok_or_else(|| end(cursor, "the task"))?;
            let task = cursor.rest().unwrap_or("unknown").to_owned();
            cursor.next_line();
            by_task(&task)
        }
        Subject::Cgroup => {
            let cgroup = cursor.rest().ok_or_else(|| end(cursor, "the cgroup"))?;
            let wait = by_task(cgroup);
            cursor.next_line();
            wait
        }
        Subject::Lock => lock(cursor)?,
    };
    figures.iter().zip(columns).for_each(|(n, column)| enter(&mut wait, *column, *n));
    Ok((wait, false))
}

/// Reads the address, the name and the kind of a lock. Most locks have no name.
fn lock(cursor: &mut Cursor<'_>) -> Result<MeasuredWait, Fault> {
    let Some(address) = cursor.next_wrapped() else {
        return Err(cursor.end_fault("the row ends before the address: the table is cut"));
    };
    if u64::from_str_radix(address.text.trim_start_matches("0x"), 16).is_err() {
        return Err(address.fault(format!("`{}` is no address of a lock", address.text)));
    }
    let rest = cursor.rest().unwrap_or("");
    let (name, kind) = match rest.rsplit_once('(') {
        Some((name, kind)) => (name.trim(), Some(kind.trim_end_matches(')'))),
        None => (rest, None),
    };
    let name = if name.is_empty() { address.text } else { name };
    let wait = by_name(name, kind);
    cursor.next_line();
    Ok(wait)
}

/// Reads the frames of a stack, an address and a function a line. `None` if there are none.
fn stack(cursor: &mut Cursor<'_>) -> Option<Vec<String>> {
    let mut frames = Vec::new();
    while let Some(word) = cursor.peek() {
        let hex = word.text.strip_prefix("0x").filter(|hex| u64::from_str_radix(hex, 16).is_ok());
        if hex.is_none() {
            break;
        }
        frames.push(cursor.peek_second().map_or("", |word| word.text));
        cursor.next_line();
    }
    let named = |frame: &&str| !frame.is_empty() && !frame.starts_with(['0', '[']);
    (!frames.is_empty()).then(|| path_of(frames.into_iter().filter(named)))
}

/// Returns a note if perf reports lost events after the table.
fn lost(lines: &[Line], from: usize) -> Option<String> {
    lines.iter().skip(from).take(FOOTER).find_map(|line| {
        let rest = line.text.trim().strip_prefix("bad: ")?;
        let (bad, total) = rest.split_once(", total: ")?;
        let (bad, total): (u64, u64) = (bad.parse().ok()?, total.parse().ok()?);
        (bad > 0).then(|| format!("perf lost {bad} of {total} records"))
    })
}
