//! What stands behind the numbers of a profile: how many are its own, what their sources are, and
//! which to look at first.

use mmscale_sim::profile::{self, Basis, Merged, Number, ProfileError};
use serde_json::{Value, json};

/// The numbers that matter most to what is simulated: locks handed over, cache lines moved, shared
/// atomics, links of a list under its lock, interrupts to other CPUs.
const FIRST: [(&str, &str); 11] = [
    ("costs", "handoff_ns"),
    ("costs", "line_own_ns"),
    ("costs", "line_smt_ns"),
    ("costs", "line_cluster_ns"),
    ("costs", "line_node_ns"),
    ("costs", "line_remote_ns"),
    ("costs", "line_memory_ns"),
    ("costs", "atomic_ns"),
    ("ops", "lru_link_ns"),
    ("costs", "ipi_send_ns"),
    ("costs", "ipi_delivery_ns"),
];

/// A number of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Section and key.
    pub key: String,
    /// The value.
    pub value: f64,
    /// Its range.
    pub range: [f64; 2],
    /// The base that it is inherited from.
    pub base: Option<String>,
    /// The kind of its source; none if the source is of no kind, which is also in
    /// [`Review::wrong`].
    pub basis: Option<Basis>,
}

/// What a profile consists of.
#[derive(Clone, Debug)]
pub struct Review {
    /// The profile's name.
    pub name: String,
    /// What machine it is, in words.
    pub description: String,
    /// Its bases, the nearest first.
    pub bases: Vec<String>,
    /// Every number.
    pub numbers: Vec<Entry>,
    /// Inherited numbers to check first: those that matter most and are used on this machine.
    pub first: Vec<Entry>,
    /// What is wrong with the profile, a message each; empty if it can be used.
    pub wrong: Vec<String>,
}

impl Review {
    /// The number of own (`false`) or inherited numbers whose source is of this kind.
    pub fn count(&self, basis: Basis, inherited: bool) -> usize {
        let of = |entry: &&Entry| entry.basis == Some(basis) && entry.base.is_some() == inherited;
        self.numbers.iter().filter(of).count()
    }

    /// The number of own numbers.
    pub fn own(&self) -> usize {
        self.numbers.iter().filter(|entry| entry.base.is_none()).count()
    }

    /// The number of numbers that are inherited from `base`.
    pub fn from(&self, base: &str) -> usize {
        self.numbers.iter().filter(|entry| entry.base.as_deref() == Some(base)).count()
    }

    /// The numbers that are at an end of their range, if that is wider than one value.
    pub fn at_end(&self) -> impl Iterator<Item = &Entry> {
        self.numbers.iter().filter(|entry| {
            let [low, high] = entry.range;
            low < high && [low, high].contains(&entry.value)
        })
    }
}

/// Looks at a profile. What is wrong with it is in the result.
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
        _ => true,
    };
    let first = FIRST.iter().filter(|(_, key)| used(key)).filter_map(|(section, key)| {
        let name = format!("{section}.{key}");
        numbers.iter().find(|entry| entry.key == name && entry.base.is_some()).cloned()
    });
    Review {
        name: merged.title(),
        description: merged.file.description.clone(),
        bases: merged.bases.clone(),
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

/// Everything that is wrong with a number by itself, and the first problem of the profile besides.
fn wrong(merged: &Merged) -> Vec<String> {
    let mut wrong = Vec::new();
    // Numbers that are wrong are made sound in a copy, to see what else there is.
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
                source: "assumption: made sound".to_owned(),
            };
        }
    }
    wrong.extend(copy.resolve().err().map(|why| why.to_string()));
    wrong
}

/// The whole profile as a file that needs no base. A comment says where a number is from.
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

/// Returns [`whole`] for programs.
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
