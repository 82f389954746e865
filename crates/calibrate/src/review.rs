//! Review of a profile: counts of own and inherited numbers by kind of source, and the numbers to
//! check first.

use mmscale_sim::profile::{self, Basis, Merged, Number, ProfileError};
use serde_json::{Value, json};

/// The numbers with the largest influence on simulations: lock handoffs, cache-line transfers,
/// shared atomics, instructions under a lock, interrupts to other CPUs, clocks, caches.
const FIRST: [(&str, &str); 17] = [
    ("costs", "handoff_fixed_ns"),
    ("costs", "handoff_lines"),
    ("costs", "line_own_ns"),
    ("costs", "line_smt_ns"),
    ("costs", "line_cluster_ns"),
    ("costs", "line_node_ns"),
    ("costs", "line_remote_ns"),
    ("costs", "line_memory_ns"),
    ("costs", "atomic_ns"),
    ("costs", "hold_instruction_ns"),
    ("costs", "ipi_send_ns"),
    ("costs", "ipi_delivery_ns"),
    ("clock", "reference_mhz"),
    ("clock", "one_core_mhz"),
    ("clock", "all_cores_mhz"),
    ("clock", "smt_work_percent"),
    ("memory", "cluster_cache_kib"),
];

/// A number of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The section and key.
    pub key: String,
    /// The value of the number.
    pub value: f64,
    /// The range of the number.
    pub range: [f64; 2],
    /// The base from which the number is inherited.
    pub base: Option<String>,
    /// The kind of the source; `None` if it has no valid kind, which is also listed in
    /// [`Review::wrong`].
    pub basis: Option<Basis>,
}

/// The contents of a profile.
#[derive(Clone, Debug)]
pub struct Review {
    /// The name of the profile.
    pub name: String,
    /// A description of the machine.
    pub description: String,
    /// The bases, the nearest first, and the kernel.
    pub bases: Vec<String>,
    /// All numbers.
    pub numbers: Vec<Entry>,
    /// Inherited numbers to check first: those with the largest influence that apply to this
    /// machine.
    pub first: Vec<Entry>,
    /// Problems of the profile, one message each; empty if it can be used.
    pub wrong: Vec<String>,
}

impl Review {
    /// Returns the number of own (`false`) or inherited (`true`) numbers whose source is of this
    /// kind.
    pub fn count(&self, basis: Basis, inherited: bool) -> usize {
        let of = |entry: &&Entry| entry.basis == Some(basis) && entry.base.is_some() == inherited;
        self.numbers.iter().filter(of).count()
    }

    /// Returns the number of own numbers.
    pub fn own(&self) -> usize {
        self.numbers.iter().filter(|entry| entry.base.is_none()).count()
    }

    /// Returns the number of numbers inherited from `base`.
    pub fn from(&self, base: &str) -> usize {
        self.numbers.iter().filter(|entry| entry.base.as_deref() == Some(base)).count()
    }

    /// Returns the numbers at an end of their range, if the range is not a single value.
    pub fn at_end(&self) -> impl Iterator<Item = &Entry> {
        self.numbers.iter().filter(|entry| {
            let [low, high] = entry.range;
            low < high && [low, high].contains(&entry.value)
        })
    }
}

/// Reviews a profile. Problems are part of the result.
pub fn review(merged: &Merged) -> Review {
    let numbers: Vec<Entry> = merged
        .file
        .sections()
        .flat_map(|(section, numbers)| {
            numbers.iter().map(move |(key, number)| (section, key, number))
        })
        .map(|(section, key, number)| entry(merged, section, key, number))
        .collect();
    let used = |key: &str| match key {
        "line_smt_ns" => count(merged, "smt") > 1.0,
        "line_remote_ns" => count(merged, "nodes") > 1.0,
        "smt_work_percent" => count(merged, "smt") > 1.0,
        _ => true,
    };
    let first = FIRST.iter().filter(|(_, key)| used(key)).filter_map(|(section, key)| {
        let name = format!("{section}.{key}");
        numbers.iter().find(|entry| entry.key == name && entry.base.is_some()).cloned()
    });
    Review {
        name: merged.title(),
        description: merged.file.description.clone(),
        bases: merged.bases.iter().chain([&merged.kernel]).cloned().collect(),
        first: first.collect(),
        wrong: wrong(merged),
        numbers,
    }
}

fn entry(merged: &Merged, section: &str, key: &str, number: &Number) -> Entry {
    Entry {
        key: format!("{section}.{key}"),
        value: number.value,
        range: number.range,
        base: merged.inherited_from(section, key).map(str::to_owned),
        basis: Basis::of(&number.source).ok(),
    }
}

fn count(merged: &Merged, key: &str) -> f64 {
    merged.file.topology.get(key).map_or(1.0, |number| number.value)
}

/// Returns all problems of single numbers, and then the first problem of the whole profile.
fn wrong(merged: &Merged) -> Vec<String> {
    let mut wrong = Vec::new();
    // Invalid numbers are replaced in a copy, to find further problems.
    let mut copy = merged.clone();
    for (section, numbers) in copy.file.sections_mut() {
        for (key, number) in numbers {
            let Some(reason) = number.problem() else { continue };
            let file = merged.file_of(section, key).to_owned();
            let key = format!("{section}.{key}");
            wrong.push(ProfileError::Number { file, key, reason }.to_string());
            *number = Number {
                value: number.value,
                range: [number.value; 2],
                source: "assumption: replaced".to_owned(),
            };
        }
    }
    wrong.extend(copy.resolve().err().map(|why| why.to_string()));
    wrong
}

/// Returns the profile as a file that needs no base, with comments on the origin of each number.
pub fn whole(merged: &Merged) -> Result<String, ProfileError> {
    let hash = merged.resolve()?.hash;
    let name = merged.title();
    let bases = if merged.bases.is_empty() {
        String::new()
    } else {
        format!("; bases: {}", merged.bases.join(", "))
    };
    let numbers = profile::write_with(&merged.file, |section, key| {
        merged.inherited_from(section, key).map(|base| format!("from {base}"))
    });
    Ok(format!("# {name}, hash {hash:016x}{bases}\n{numbers}"))
}

/// Returns [`whole`] as JSON.
pub fn whole_json(merged: &Merged) -> Result<Value, ProfileError> {
    let hash = merged.resolve()?.hash;
    let number = |section: &str, key: &str, number: &Number| {
        json!({
            "value": number.value,
            "range": number.range,
            "source": number.source,
            "kind": Basis::of(&number.source).ok().map(Basis::name),
            "from": merged.inherited_from(section, key),
        })
    };
    let sections = merged.file.sections().map(|(section, numbers)| {
        let of = |(key, of): (&String, &Number)| (key.clone(), number(section, key, of));
        (section.to_owned(), Value::Object(numbers.iter().map(of).collect()))
    });
    Ok(json!({
        "schema": "mmscale/profile/1",
        "name": merged.title(),
        "description": merged.file.description,
        "bases": merged.bases,
        "hash": format!("{hash:016x}"),
        "numbers": sections.collect::<serde_json::Map<_, _>>(),
    }))
}
