//! A table that was found in a text.

use mmscale_document::{
    LockKind, MeasuredWait, OTHER_CLASS, class_of_name, lock_of, plain_function,
};

use crate::fault::Fault;

/// The class of waits for locks that the tool did not report, as in a table by task.
pub const UNKNOWN_CLASS: &str = "unknown";

/// A table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    /// The tool that printed it, and the form.
    pub tool: String,
    /// The numbers of its first and last line.
    pub lines: (usize, usize),
    /// The text above it that describes it: the heading of a summary.
    pub caption: String,
    /// The rows.
    pub waits: Vec<MeasuredWait>,
    /// The number of CPUs, if the tool reports it.
    pub cpus: Option<u32>,
    /// The duration of the measurement, in ns, if the tool reports it.
    pub window_ns: Option<u64>,
    /// Limits of the table: rows that were left out, lost events.
    pub notes: Vec<String>,
    /// The error that ended the table, if there was one. Rows before it are kept.
    pub fault: Option<Fault>,
    /// The index of the line after the table.
    pub(crate) end: usize,
}

/// The longest time of a row, in ns: 292 years. A tool that subtracts a later time from an earlier
/// one prints more, and so does one whose sum is below zero.
pub(crate) const LONGEST_NS: u64 = i64::MAX as u64;

impl Table {
    /// Returns the table without rows whose figures no kernel can measure, with a note of them. The
    /// sum of those that are left is a number of 64 bits.
    pub(crate) fn checked(mut self) -> Self {
        let mut sum: u64 = 0;
        let rows = self.waits.len();
        self.waits.retain(|wait| {
            let figures = [
                wait.wait_total_ns,
                wait.wait_max_ns,
                wait.hold_total_ns,
                wait.contentions,
                wait.acquisitions,
            ];
            let total = wait.wait_total_ns.unwrap_or(0);
            let more = sum.checked_add(total).filter(|sum| *sum <= LONGEST_NS);
            let fits = figures.into_iter().flatten().all(|figure| figure <= LONGEST_NS);
            sum = more.filter(|_| fits).unwrap_or(sum);
            fits && more.is_some()
        });
        let broken = rows - self.waits.len();
        if broken > 0 {
            self.notes.push(format!(
                "{broken} of {rows} rows have figures of 64 bits that passed below zero or beyond \
                 their end, such as a time of more than 292 years: left out"
            ));
        }
        self.window_ns = self.window_ns.filter(|ns| *ns <= LONGEST_NS);
        self
    }
    /// Returns the sum of all waits, in ns.
    pub fn wait_total_ns(&self) -> u64 {
        let totals = self.waits.iter().filter_map(|wait| wait.wait_total_ns);
        totals.fold(0, u64::saturating_add)
    }
    /// Returns the contents without the place: equal for a quote and its original.
    pub(crate) fn contents(&self) -> String {
        format!("{:?}", (&self.tool, &self.caption, &self.waits))
    }
}

/// Enters the path of a row, and with it the lock.
pub(crate) fn enter_path(wait: &mut MeasuredWait, path: Vec<String>, kind: LockKind) {
    let (class, lock) = lock_of(&path, kind, None);
    (wait.class, wait.lock, wait.path) = (class.to_owned(), lock, path);
}

/// Creates a row by the function that waited.
pub(crate) fn by_caller(caller: &str, kind: LockKind, word: &str) -> MeasuredWait {
    let function = plain_function(caller);
    let named = !function.is_empty() && !function.starts_with(['0', '[']);
    let path: Vec<String> = named.then(|| function.to_owned()).into_iter().collect();
    let mut wait = MeasuredWait { kind: Some(word.to_owned()), ..MeasuredWait::default() };
    enter_path(&mut wait, path, kind);
    wait
}

/// Creates a row by the name of the lock.
pub(crate) fn by_name(name: &str, kind: Option<&str>) -> MeasuredWait {
    MeasuredWait {
        class: class_of_name(name).unwrap_or(OTHER_CLASS).to_owned(),
        kind: kind.map(str::to_owned),
        lock: Some(name.to_owned()),
        ..MeasuredWait::default()
    }
}

/// Creates a row by the task or memory group that waited; the tool does not report the lock.
pub(crate) fn by_task(task: &str) -> MeasuredWait {
    MeasuredWait {
        class: UNKNOWN_CLASS.to_owned(),
        task: Some(task.to_owned()),
        ..MeasuredWait::default()
    }
}
