//! A table that was found in a text.

use mmscale_document::{
    LockKind, MeasuredWait, OTHER_CLASS, class_of, class_of_name, plain_function,
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

impl Table {
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

/// Creates a row by the function that waited.
pub(crate) fn by_caller(caller: &str, kind: LockKind, word: &str) -> MeasuredWait {
    let function = plain_function(caller);
    let named = !function.is_empty() && !function.starts_with(['0', '[']);
    let path: Vec<String> = named.then(|| function.to_owned()).into_iter().collect();
    MeasuredWait {
        class: class_of(&path, kind).to_owned(),
        path,
        kind: Some(word.to_owned()),
        ..MeasuredWait::default()
    }
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
