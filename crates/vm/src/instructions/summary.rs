//! Medians over rounds, of an operation each.

use super::counts::{Calls, Held, Round, Site};
use crate::symbols::Table;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How a number is spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The smallest value.
    pub min: f64,
    /// The value in the middle.
    pub median: f64,
    /// The largest value.
    pub max: f64,
}

/// A function of the kernel. Calls in which the CPU went to another task are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its address in the image, in hexadecimal digits, as `objdump` and `addr2line` take it.
    #[serde(default)]
    pub address: String,
    /// Calls an operation.
    pub calls: f64,
    /// Instructions an operation, with those of the functions that it calls.
    pub instructions: f64,
    /// Its own instructions an operation.
    pub own: f64,
    /// Locked instructions an operation, as `instructions`.
    pub locked: f64,
    /// Instructions a call, as `instructions`, over all calls.
    pub call: Spread,
}

/// Holds of a lock, by the place that acquires it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// The function that acquires, such as `_raw_spin_lock`.
    pub acquire: String,
    /// The function that calls it.
    pub caller: String,
    /// The function that calls that one.
    pub outer: String,
    /// Holds an operation.
    pub holds: f64,
    /// Instructions with the lock held, an operation.
    pub instructions: f64,
    /// Locked instructions with the lock held, an operation.
    pub locked: f64,
    /// Instructions a hold, over all holds.
    pub hold: Spread,
    /// The number of locks: different addresses in all rounds.
    pub locks: usize,
    /// The names of those that have one: variables of the kernel.
    pub names: Vec<String>,
}

/// The cost of an operation for the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of rounds.
    pub rounds: usize,
    /// Operations of a round.
    pub ops: Spread,
    /// Instructions an operation in the kernel, without interrupts.
    pub instructions: Spread,
    /// Locked instructions an operation.
    pub locked: Spread,
    /// The functions, those with most instructions first.
    pub functions: Vec<Function>,
    /// The holds, those with most instructions first.
    pub holds: Vec<Hold>,
}

/// Sums up rounds; `ops` are the operations of each. A round without operations counts as one.
pub(super) fn summary(table: &Table, rounds: &[Round], ops: &[u64]) -> Summary {
    let ops: Vec<f64> = ops.iter().map(|ops| (*ops).max(1) as f64).collect();
    let per_op = |of: &dyn Fn(&Round) -> u64| {
        let values = rounds.iter().zip(&ops).map(|(round, ops)| of(round) as f64 / ops);
        Spread::of(values.map(|value| (value, 1)).collect())
    };
    let shared = shared_names(table);
    let name = |row: &i32| match shared.contains(table.name(*row)) {
        true => table.full_name(*row).to_owned(),
        false => table.name(*row).to_owned(),
    };
    let mut summary = Summary {
        rounds: rounds.len(),
        ops: Spread::of(ops.iter().map(|ops| (*ops, 1)).collect()),
        instructions: per_op(&|round| round.instructions),
        locked: per_op(&|round| round.locked),
        functions: Vec::new(),
        holds: Vec::new(),
    };
    for (name, rows) in grouped(rounds.iter().flat_map(|round| round.functions.keys()), &name) {
        let sum = |of: fn(&Calls) -> u64| {
            per_op(&|round| rows.iter().filter_map(|row| round.functions.get(row)).map(of).sum())
        };
        let lengths = rounds.iter().flat_map(|round| &round.functions);
        let lengths = lengths.filter(|(row, _)| rows.contains(row)).flat_map(|(_, c)| &c.lengths);
        let first = rows.first().copied().unwrap_or(-1);
        summary.functions.push(Function {
            name,
            address: format!("{:x}", table.address(first)),
            calls: sum(|calls| calls.calls).median,
            instructions: sum(|calls| calls.inclusive).median,
            own: sum(|calls| calls.own).median,
            locked: sum(|calls| calls.locked).median,
            call: Spread::of_lengths(lengths),
        });
    }
    let site =
        |site: &Site| [site.acquire, site.caller, site.outer].map(|row| table.name(row).to_owned());
    for (at, sites) in grouped(rounds.iter().flat_map(|round| round.holds.keys()), &site) {
        let sum = |of: fn(&Held) -> u64| {
            per_op(&|round| sites.iter().filter_map(|site| round.holds.get(site)).map(of).sum())
        };
        let held: Vec<&Held> = rounds
            .iter()
            .flat_map(|round| &round.holds)
            .filter(|(site, _)| sites.contains(site))
            .map(|(_, held)| held)
            .collect();
        let addresses: BTreeSet<u64> =
            held.iter().flat_map(|held| &held.addresses).map(|(address, _)| *address).collect();
        let names = addresses.iter().filter_map(|address| table.variable(*address));
        let names: BTreeSet<&str> = names.collect();
        let [acquire, caller, outer] = at;
        summary.holds.push(Hold {
            acquire,
            caller,
            outer,
            holds: sum(|held| held.holds).median,
            instructions: sum(|held| held.instructions).median,
            locked: sum(|held| held.locked).median,
            hold: Spread::of_lengths(held.iter().flat_map(|held| &held.lengths)),
            locks: addresses.len(),
            names: names.into_iter().map(str::to_owned).collect(),
        });
    }
    // Those of a single round say nothing of an operation.
    summary.functions.retain(|function| function.calls > 0.0);
    summary.holds.retain(|hold| hold.holds > 0.0);
    summary.functions.sort_by(|a, b| b.instructions.total_cmp(&a.instructions));
    summary.holds.sort_by(|a, b| b.instructions.total_cmp(&a.instructions));
    summary
}

/// The names that several rows have without what a compiler put behind them: a function and a part
/// of it, which it calls.
fn shared_names(table: &Table) -> BTreeSet<&str> {
    let by_name = table.by_name().into_iter();
    by_name.filter(|(_, rows)| rows.len() > 1).map(|(name, _)| name).collect()
}

/// Groups keys by what they are called; in the order of the names.
fn grouped<'a, K: Ord + Copy + 'a, N: Ord>(
    keys: impl Iterator<Item = &'a K>,
    name: &dyn Fn(&K) -> N,
) -> BTreeMap<N, BTreeSet<K>> {
    let mut groups: BTreeMap<N, BTreeSet<K>> = BTreeMap::new();
    for key in keys {
        groups.entry(name(key)).or_default().insert(*key);
    }
    groups
}

impl Spread {
    /// The spread of values, each with how often it occurs.
    fn of(mut values: Vec<(f64, u64)>) -> Self {
        values.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (Some((min, _)), Some((max, _))) = (values.first(), values.last()) else {
            return Self::default();
        };
        let all: u64 = values.iter().map(|(_, count)| count).sum();
        let mut seen = 0;
        let middle = values.iter().find(|(_, count)| {
            seen += count;
            seen * 2 >= all
        });
        Self { min: *min, median: middle.map_or(*max, |(value, _)| *value), max: *max }
    }
    fn of_lengths<'a>(lengths: impl Iterator<Item = &'a (u64, u64)>) -> Self {
        Self::of(lengths.map(|(length, count)| (*length as f64, *count)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts;
    use super::*;

    fn table() -> Table {
        let code = "10 t main\n20 t main.part.0\n30 t helper.isra.0\n40 T _raw_spin_lock\n";
        Table::of(&format!("{code}f0 D a_lock\nff d end\n"))
    }

    #[test]
    fn a_spread_has_its_middle() {
        let spread = Spread::of(vec![(9.0, 1), (1.0, 2), (5.0, 2)]);
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 5.0, 9.0));
        assert_eq!(Spread::of(vec![]), Spread::default());
    }

    #[test]
    fn numbers_are_of_an_operation() {
        let text = "R 100 4\nF 0 2 80 50 4\nf 0 40 2\nF 2 1 9 9 0\nf 2 9 1\nH 0 1 3 2 30 1\n\
                    h 0 1 3 15 2\nA 0 1 3 f4 2\nR 300 12\nF 0 6 240 150 12\nf 0 40 6\n\
                    H 0 1 3 6 90 3\nh 0 1 3 15 6\nA 0 1 3 eee 6\n";
        let found = summary(&table(), &counts::rounds(text).unwrap(), &[2, 6]);
        assert_eq!((found.rounds, found.instructions.median, found.locked.max), (2, 50.0, 2.0));
        let main = &found.functions[0];
        assert_eq!((main.name.as_str(), main.calls, main.instructions), ("main", 1.0, 40.0));
        assert_eq!(main.call, Spread { min: 40.0, median: 40.0, max: 40.0 });
        // In one round of two: the smaller is the middle.
        assert_eq!(found.functions.len(), 1, "{:?}", found.functions);
        let hold = &found.holds[0];
        assert_eq!((hold.holds, hold.instructions, hold.locks), (1.0, 15.0, 2));
        assert_eq!((hold.caller.as_str(), hold.outer.as_str()), ("main", "main"));
        assert_eq!(hold.names, ["a_lock"]);
    }

    #[test]
    fn a_part_of_a_function_keeps_its_whole_name() {
        let text = "R 9 0\nF 0 1 9 5 0\nF 1 1 4 4 0\nF 2 1 2 2 0\n";
        let found = summary(&table(), &counts::rounds(text).unwrap(), &[1]);
        let names: Vec<&str> = found.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["main", "main.part.0", "helper"]);
    }
}
