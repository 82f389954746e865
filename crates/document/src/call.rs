//! CPU time by call path: as machines collect it, and as records show it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The time that all CPUs spent on one call path, spinning included and sleeping not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRow {
    /// Functions from the root of the call path to the one that the time was spent in.
    pub path: Vec<String>,
    /// How often that function was entered on this path.
    pub entered: u64,
    /// Time spent in it and in nothing that it called, in ns.
    pub self_ns: u64,
}

impl CallRow {
    /// The path from a function on, by its kernel name, if it is on it: what that function called.
    pub fn below<'a>(&'a self, function: &str) -> Option<&'a [String]> {
        let at = self.path.iter().position(|step| step == function)?;
        Some(&self.path[at..])
    }
}

/// A function on a call path: what it took, summed over the seeds of an arm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRecord {
    /// Functions from the root of the tree to this one.
    pub path: Vec<String>,
    /// How often it was entered, summed over seeds.
    pub entered: u64,
    /// CPU time in it and in all that it called, in ns, summed over seeds.
    pub total_ns: u64,
    /// CPU time in it alone, in ns, summed over seeds.
    pub self_ns: u64,
}

impl CallRecord {
    /// Adds rows up by path, and the times of callees to their callers; sorted by path. Callers in
    /// which no time was spent are there too.
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
