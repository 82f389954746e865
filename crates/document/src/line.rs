//! Transfers of cache lines between CPUs, by what the lines hold.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The transfers of the lines that hold the same kind of data. Waits for locks, which hand their
/// line over, are not included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LineRecord {
    /// The content of the lines: data by its name in Linux, or the word of a lock by the lock's
    /// class.
    pub line: String,
    /// Times that a CPU got such a line from another CPU.
    pub moves: u64,
    /// Time that CPUs waited for it, in ns.
    pub wait_ns: u64,
}

impl LineRecord {
    /// Sums rows by what the lines hold. The result is in descending order of time.
    pub fn aggregate<'a>(rows: impl IntoIterator<Item = &'a Self>) -> Vec<Self> {
        let mut sums = BTreeMap::<&str, Self>::new();
        for row in rows {
            let sum = sums.entry(&row.line).or_default();
            sum.moves += row.moves;
            sum.wait_ns += row.wait_ns;
        }
        let named = |(line, sum): (&str, Self)| Self { line: line.to_owned(), ..sum };
        let mut all: Vec<Self> = sums.into_iter().map(named).collect();
        all.sort_by(|a, b| b.wait_ns.cmp(&a.wait_ns).then_with(|| a.line.cmp(&b.line)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_summed_by_line_and_the_longest_wait_is_first() {
        let row = |line: &str, moves, wait_ns| LineRecord { line: line.to_owned(), moves, wait_ns };
        let rows = [row("vm_lock", 1, 10), row("tlb_gen", 2, 25), row("vm_lock", 3, 20)];
        let sums = [row("vm_lock", 4, 30), row("tlb_gen", 2, 25)];
        assert_eq!(LineRecord::aggregate(&rows), sums);
    }
}
