//! klockstat of bcc: mutexes and reader-writer semaphores by the function that takes them. The
//! first table has waits, the second how long they were held. The Python program prints times in
//! ns, the one with libbpf prints units. Counts are of all acquisitions, not of waits only.

use std::collections::BTreeMap;

use mmscale_document::{LockKind, MeasuredWait, is_locking, plain_function};

use crate::fault::Fault;
use crate::number::{read_count, read_time, real, time_word, to_ns, unit_ns};
use crate::table::{Table, by_caller, by_task, enter_path};
use crate::text::{Cursor, Line};

/// The kind of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Waits,
    Holds,
}

/// The headings of a table.
#[derive(Clone, Copy)]
struct Heading {
    part: Part,
    /// Whether rows are of tasks.
    tasks: bool,
    /// Whether it is the Python program's.
    python: bool,
}

/// Reads the tables that begin at a line. `None` if none begins there.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<Table> {
    let mut heading = heading(&lines[from])?;
    let tool = if heading.python { "klockstat (Python)" } else { "klockstat (libbpf)" };
    let mut table = Table {
        tool: tool.to_owned(),
        lines: (lines[from].number, lines[from].number),
        ..Table::default()
    };
    table.notes.push("klockstat counts acquisitions, not waits".to_owned());
    let mut cursor = Cursor::new(lines, from + 1);
    let mut end = from + 1;
    let mut places = Places::new();
    while let Some(line) = cursor.line() {
        if let Some(next) = self::heading(line) {
            // A table of waits after one of holds is of the next interval.
            if heading.part == Part::Holds && next.part == Part::Waits {
                break;
            }
            heading = next;
            cursor.next_line();
        } else if line.is_blank() || is_detail(line) {
            cursor.next_line();
            continue;
        } else if is_row(line) {
            let mut wait = match row(&mut cursor, heading) {
                Ok(wait) => wait,
                Err(fault) => {
                    table.fault = Some(fault);
                    end = cursor.at() + 1;
                    break;
                }
            };
            cursor.next_line();
            // The stack: each line has the caller of the function before.
            while let Some(line) = cursor.line().filter(|line| line.words().len() == 1) {
                wait.path.insert(0, plain_function(line.text.trim()).to_owned());
                cursor.next_line();
            }
            let python = heading.python;
            add(&mut table.waits, &mut places, by_stack(wait, python), heading.part);
        } else {
            break;
        }
        end = cursor.at();
    }
    table.end = end.clamp(from + 1, lines.len());
    table.lines.1 = lines[table.end - 1].number;
    Some(table)
}

fn heading(line: &Line) -> Option<Heading> {
    // The first versions of the tool, `lockstat`, write the word out.
    let short = |text| if text == "Average" { "Avg" } else { text };
    let words: Vec<&str> = line.words().iter().map(|word| short(word.text)).collect();
    let (tasks, rest) = match words.as_slice() {
        ["Caller", rest @ ..] => (false, rest),
        ["Tid", "Comm", rest @ ..] => (true, rest),
        _ => return None,
    };
    let (part, python) = match rest {
        ["Avg", "Spin", "Count", "Max", "spin", "Total", "spin"] => (Part::Waits, true),
        ["Avg", "Hold", "Count", "Max", "hold", "Total", "hold"] => (Part::Holds, true),
        ["Avg", "Wait", "Count", "Max", "Wait", "Total", "Wait"] => (Part::Waits, false),
        ["Avg", "Hold", "Count", "Max", "Hold", "Total", "Hold"] => (Part::Holds, false),
        _ => return None,
    };
    Some(Heading { part, tasks, python })
}

/// Returns whether a line names the task with the longest wait.
fn is_detail(line: &Line) -> bool {
    line.text.trim_start().starts_with("Max PID ")
}

/// Returns whether a second word is a figure, as in every row.
fn is_row(line: &Line) -> bool {
    let words = line.words();
    words
        .iter()
        .skip(1)
        .take(2)
        .any(|word| real(word.text).is_some() || time_word(word.text).is_some())
}

/// Reads a time, which has a unit in one version only.
fn time(cursor: &mut Cursor<'_>, what: &str, python: bool) -> Result<u64, Fault> {
    if !python {
        // The version with libbpf leaves the unit out of 0.
        if let Some(word) = cursor.peek()
            && word.text == "0"
            && cursor.peek_second().is_none_or(|unit| unit_ns(unit.text).is_none())
        {
            cursor.skip();
            return Ok(0);
        }
        return read_time(cursor, what);
    }
    let word = cursor.next_wrapped().ok_or_else(|| {
        cursor.end_fault(format!("the row ends before {what}: the table is cut; give all of it"))
    })?;
    let ns = real(word.text).ok_or_else(|| {
        word.fault(format!("expected {what}, a time in ns; found `{}`", word.text))
    })?;
    Ok(to_ns(ns, 1.0))
}

/// Returns a row with the class of its lock. A stack begins with the function of the lock, which
/// names the kind.
fn by_stack(mut wait: MeasuredWait, python: bool) -> MeasuredWait {
    let mut kind = if python { LockKind::Mutex } else { LockKind::Other };
    while wait.path.len() > 1
        && let Some(name) = wait.path.pop_if(|name| is_locking(name))
    {
        kind = match () {
            () if name.contains("mutex") => LockKind::Mutex,
            () if name.contains("percpu") => LockKind::PercpuRwsem,
            () if name.contains("down_") || name.contains("rwsem") => LockKind::Rwsem,
            () => kind,
        };
    }
    if !wait.path.is_empty() {
        let path = std::mem::take(&mut wait.path);
        enter_path(&mut wait, path, kind);
    }
    wait
}

fn row(cursor: &mut Cursor<'_>, heading: Heading) -> Result<MeasuredWait, Fault> {
    let first = cursor.next_wrapped();
    let name = first.map_or("", |word| word.text);
    let mut wait = if heading.tasks {
        let comm = cursor.next_wrapped().map_or("unknown", |word| word.text);
        by_task(comm)
    } else {
        let kind = if heading.python { LockKind::Mutex } else { LockKind::Other };
        let word = if heading.python { "mutex" } else { "mutex or rwsem" };
        by_caller(name, kind, word)
    };
    time(cursor, "the mean time", heading.python)?;
    let count = read_count(cursor, "the number of acquisitions")?;
    let max_ns = time(cursor, "the longest time", heading.python)?;
    let total_ns = time(cursor, "the total time", heading.python)?;
    wait.acquisitions = Some(count);
    match heading.part {
        Part::Waits => {
            wait.wait_max_ns = Some(max_ns);
            wait.wait_total_ns = Some(total_ns);
        }
        Part::Holds => wait.hold_total_ns = Some(total_ns),
    }
    Ok(wait)
}

/// Rows by function and task.
type Places = BTreeMap<(Option<String>, Option<String>), usize>;

/// Adds a row; the hold time of a function is entered into its row of waits.
fn add(waits: &mut Vec<MeasuredWait>, places: &mut Places, wait: MeasuredWait, part: Part) {
    let key = (wait.path.last().cloned(), wait.task.clone());
    match (part, places.get(&key)) {
        (Part::Holds, Some(&at)) if waits[at].hold_total_ns.is_none() => {
            waits[at].hold_total_ns = wait.hold_total_ns;
        }
        (part, _) => {
            if part == Part::Waits {
                places.entry(key).or_insert(waits.len());
            }
            waits.push(wait);
        }
    }
}
