//! CPU time by call path: raw rows as machines collect them ([`CallRow`]), sums as documents show
//! them ([`CallRecord`]).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CPU time of all CPUs on one call path. Includes spinning, excludes sleeping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRow {
    /// Functions from the root of the call path to the function in which the time was spent.
    pub path: Vec<String>,
    /// Times that function was entered on this path.
    pub entered: u64,
    /// Time in the function itself, without its callees, in ns.
    pub self_ns: u64,
    /// The part of `self_ns` in which it waited for cache lines from other CPUs, in ns. Simulated
    /// machines only.
    pub lines_ns: u64,
}

impl CallRow {
    /// Returns the part of the path that begins with `function` (its kernel name). `None`: the
    /// function is not on the path.
    pub fn below<'a>(&'a self, function: &str) -> Option<&'a [String]> {
        let at = self.path.iter().position(|step| step == function)?;
        Some(&self.path[at..])
    }
}

pub(crate) const fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

/// CPU time of one call path, summed over the seeds of an arm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRecord {
    /// Functions from the root of the tree to this one.
    pub path: Vec<String>,
    /// Times the function was entered, summed over seeds.
    pub entered: u64,
    /// CPU time in the function and its callees, in ns, summed over seeds.
    pub total_ns: u64,
    /// CPU time in the function itself, without its callees, in ns, summed over seeds.
    pub self_ns: u64,
    /// The part of `self_ns` in which it waited for cache lines from other CPUs, in ns, summed over
    /// seeds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lines_ns: u64,
}

impl CallRecord {
    /// Sums rows by path and adds the times of callees to their callers. The result is sorted by
    /// path and contains callers that spent no time themselves.
    pub fn aggregate<'a>(rows: impl IntoIterator<Item = &'a CallRow>) -> Vec<Self> {
        let mut sums = BTreeMap::<&[String], Self>::new();
        for row in rows {
            for depth in 1..=row.path.len() {
                let path = &row.path[..depth];
                let new = || Self { path: path.to_vec(), ..Self::default() };
                let sum = sums.entry(path).or_insert_with(new);
                sum.total_ns += row.self_ns;
                if depth == row.path.len() {
                    sum.self_ns += row.self_ns;
                    sum.lines_ns += row.lines_ns;
                    sum.entered += row.entered;
                }
            }
        }
        sums.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callees_count_for_their_callers() {
        let row = |path: &str, entered, self_ns| CallRow {
            path: path.split(' ').map(str::to_owned).collect(),
            entered,
            self_ns,
            lines_ns: self_ns / 2,
        };
        let rows = [row("a", 1, 5), row("a b c", 2, 30), row("a d", 3, 7), row("a", 1, 1)];
        assert_eq!(rows[1].below("b"), Some(&rows[1].path[1..]));
        assert_eq!(rows[1].below("d"), None);
        let sums = CallRecord::aggregate(&rows);
        let flat = |sum: &CallRecord| (sum.path.join(" "), sum.entered, sum.total_ns, sum.self_ns);
        let wanted = [("a", 2, 43, 6), ("a b", 0, 30, 0), ("a b c", 2, 30, 30), ("a d", 3, 7, 7)];
        let wanted = wanted.map(|(path, a, b, c)| (path.to_owned(), a, b, c));
        assert_eq!(sums.iter().map(flat).collect::<Vec<_>>(), wanted);
    }
}
