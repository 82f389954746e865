//! `perf lock contention -x SEPARATOR`: a heading after `# output:`, then a row a line. Times are
//! in ns. With `-v` the last field has the frames of the stack.

use mmscale_document::{MeasuredWait, path_of};

use crate::fault::Fault;
use crate::number::count;
use crate::perf::{COLUMNS, Column, SUBJECTS, Subject, enter, kind, no_kind};
use crate::table::{Table, by_caller, by_name, by_task, enter_path};
use crate::text::{Line, Word};

/// The contents of the heading.
struct Heading {
    separator: char,
    columns: Vec<Column>,
    subject: Subject,
}

/// Reads the table that begins at a line. `None` if none begins there.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<Table> {
    let heading = heading(&lines[from].text)?;
    let mut table = Table {
        tool: "perf lock contention -x".to_owned(),
        lines: (lines[from].number, lines[from].number),
        end: from + 1,
        ..Table::default()
    };
    for (at, line) in lines.iter().enumerate().skip(from + 1) {
        if line.is_blank() {
            break;
        }
        if line.is_elision() {
            let what = format!("rows are left out at line {}: sums are too low", line.number);
            table.notes.push(what);
        } else if let Some(rest) = line.text.trim().strip_prefix('#') {
            if heading_words(rest) {
                break;
            }
            table.notes.extend(lost(rest));
        } else {
            match row(line, &heading) {
                Ok(wait) => table.waits.push(wait),
                // A line of a mail after the table.
                Err(_) if !line.text.contains(heading.separator) => break,
                Err(fault) => {
                    table.fault = Some(fault);
                    table.end = at + 1;
                    break;
                }
            }
        }
        table.end = at + 1;
        table.lines.1 = line.number;
    }
    Some(table)
}

fn heading_words(rest: &str) -> bool {
    rest.trim_start().starts_with("output:")
}

fn heading(line: &str) -> Option<Heading> {
    let rest = line.trim().strip_prefix('#')?.trim_start().strip_prefix("output:")?.trim();
    let first = COLUMNS.iter().find(|(name, _)| rest.starts_with(name))?;
    let separator = rest[first.0.len()..].chars().next().filter(|c| !c.is_alphanumeric())?;
    let names: Vec<&str> = rest.split(separator).map(str::trim).collect();
    let mut columns = Vec::new();
    let mut left = names.as_slice();
    while let [name, more @ ..] = left
        && let Some((_, column)) = COLUMNS.iter().find(|(known, _)| known == name)
    {
        columns.push(*column);
        left = more;
    }
    let subject = SUBJECTS.iter().find(|(words, _)| {
        let words: Vec<&str> = words.split(' ').collect();
        left.starts_with(&words)
    })?;
    Some(Heading { separator, columns, subject: subject.1 })
}

/// Returns the fields of a line with their places.
fn fields(line: &Line, separator: char) -> Vec<Word<'_>> {
    let (mut at, mut column) = (0, line.column);
    let field = |text: &'_ str| -> (usize, usize) {
        let blank = text.chars().take_while(|c| c.is_whitespace());
        (blank.clone().map(char::len_utf8).sum(), blank.count())
    };
    let mut words = Vec::new();
    for text in line.text.split(separator) {
        let (bytes, letters) = field(text);
        words.push(Word {
            text: text.trim(),
            line: line.number,
            column: column + letters,
            start: at + bytes,
        });
        at += text.len() + separator.len_utf8();
        column += text.chars().count() + 1;
    }
    words
}

fn row(line: &Line, heading: &Heading) -> Result<MeasuredWait, Fault> {
    let fields = fields(line, heading.separator);
    let needed = heading.columns.len()
        + match heading.subject {
            Subject::Caller | Subject::Task => 2,
            Subject::Lock => 3,
            Subject::Cgroup => 1,
        };
    if fields.len() < needed {
        let found = fields.len();
        return Err(line.end_fault(format!(
            "the row has {found} of {needed} fields: the table is cut; give all of it"
        )));
    }
    let (figures, rest) = fields.split_at(heading.columns.len());
    let mut wait = subject(rest, heading.subject)?;
    for (field, column) in figures.iter().zip(&heading.columns) {
        let value = count(field.text).ok_or_else(|| {
            field.fault(format!("expected a whole number; found `{}`", field.text))
        })?;
        enter(&mut wait, *column, value);
    }
    Ok(wait)
}

fn subject(rest: &[Word<'_>], subject: Subject) -> Result<MeasuredWait, Fault> {
    Ok(match (subject, rest) {
        (Subject::Caller, [word, caller, stack @ ..]) => {
            let kind = kind(word.text).ok_or_else(|| word.fault(no_kind(word.text)))?;
            let mut wait = by_caller(caller.text, kind, word.text);
            if let Some(stack) = stack.first() {
                let frames = stack.text.split(':').filter_map(|frame| {
                    let (_, name) = frame.trim().split_once(' ')?;
                    (!name.starts_with(['0', '['])).then_some(name)
                });
                let path = path_of(frames);
                if !path.is_empty() {
                    enter_path(&mut wait, path, kind);
                }
            }
            wait
        }
        (Subject::Task, [_, task, ..]) => by_task(task.text),
        (Subject::Lock, [address, name, kind, ..]) => {
            let name = if name.text.is_empty() { address.text } else { name.text };
            by_name(name, Some(kind.text))
        }
        (_, [cgroup, ..]) => by_task(cgroup.text),
        (_, []) => by_task("unknown"),
    })
}

fn lost(rest: &str) -> Option<String> {
    let value = |key: &str| -> Option<u64> {
        let at = rest.find(key)? + key.len();
        let digits: String = rest[at..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let (total, bad) = (value("total=")?, value(" bad=")?);
    (bad > 0).then(|| format!("perf lost {bad} of {total} records"))
}
