//! The files of the gallery: published measurements, scripts, machines.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use mmscale_harness::{Profiles, Registry};
use serde::Deserialize;
use thiserror::Error;

/// Names of the files with items, and their texts.
const FILES: [(&str, &str); 2] = [
    ("gallery/published.toml", include_str!("../../gallery/published.toml")),
    ("gallery/blind.toml", include_str!("../../gallery/blind.toml")),
];

macro_rules! machine {
    ($name:literal) => {
        ($name, include_str!(concat!("../../gallery/machines/", $name, ".toml")))
    };
}
macro_rules! script {
    ($name:literal) => {
        (concat!($name, ".mms"), include_str!(concat!("../../gallery/", $name, ".mms")))
    };
}

const MACHINES: [(&str, &str); 21] = [
    machine!("broadwell-2s-48"),
    machine!("broadwell-4s-192"),
    machine!("cascadelake-2s-80"),
    machine!("cascadelake-2s-96"),
    machine!("cascadelake-4n-192"),
    machine!("cooperlake-4s-144"),
    machine!("epyc-12n-384"),
    machine!("epyc-2s-256"),
    machine!("i7-12700"),
    machine!("icelake-24"),
    machine!("icelake-2s-96"),
    machine!("icelake-2s-128"),
    machine!("milan-72"),
    machine!("rpi-4b"),
    machine!("skylake-2s-104"),
    machine!("skylake-2s-112"),
    machine!("skylake-4s-192"),
    machine!("turin-316"),
    machine!("xeon-2s-32"),
    machine!("xeon-2s-40"),
    machine!("zen1-8n-128"),
];
const SCRIPTS: [(&str, &str); 16] = [
    script!("doexec"),
    script!("dontneed"),
    script!("execl"),
    script!("exits"),
    script!("malloc1"),
    script!("mmap1"),
    script!("mprotect"),
    script!("page_fault1"),
    script!("page_fault2"),
    script!("page_fault3"),
    script!("pft"),
    script!("populate"),
    script!("small_allocs"),
    script!("tlb_flush1"),
    script!("tlb_flush2"),
    script!("zsmalloc"),
];

/// Returns the machine profiles of the gallery, in addition to those of `machines/`.
pub fn profiles() -> Profiles {
    profiles_with(&[])
}

/// Returns the same profiles, with others that win where names are equal.
pub fn profiles_with(others: &[(&'static str, &'static str)]) -> Profiles {
    let all: Vec<_> = others.iter().chain(&MACHINES).copied().collect();
    Profiles::with(&all)
}

/// Returns the scripts of the gallery.
pub fn scripts() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
        SCRIPTS
            .iter()
            .fold(Registry::default(), |all, (file, text)| all.with_script(file, text))
            .with_profiles(profiles())
    });
    &REGISTRY
}

/// Why the items cannot be used.
#[derive(Debug, Error)]
pub enum DataError {
    /// A file is not as described at its head.
    #[error("{file}: {why}")]
    File {
        /// The path of the file.
        file: String,
        /// The error of the parser, with the line.
        why: Box<toml::de::Error>,
    },
    /// An item contradicts itself.
    #[error("item `{item}` of the gallery: {why}")]
    Item {
        /// The item.
        item: String,
        /// The mistake and its correction.
        why: String,
    },
    /// An item has fields that are not filled yet.
    #[error("{file}: item `{item}` is not complete: {}", .open.join("; "))]
    Open {
        /// The path of the file.
        file: String,
        /// The item.
        item: String,
        /// The fields, each with what it takes.
        open: Vec<String>,
    },
}

/// The value of a field that has to be filled, and the key of one in `set`.
pub const OPEN: &str = "?";

/// Whether the published result was known when the item was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Knowledge {
    /// It was.
    Open,
    /// It was not: the item has no published figures.
    Blind,
    /// It was not when it was first predicted (`gallery/predictions.txt`), and is now.
    Predicted,
}

/// A kind of comparison that an item asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// Each arm with the first one.
    Effect,
    /// The points of each arm with its first one.
    Curve,
    /// The values themselves.
    Level,
    /// Shares of the CPU time that is not idle, and the lock that is waited for most.
    Shares,
    /// The lock that is waited for most.
    Limiter,
}

/// A published measurement.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// A short name that does not change.
    pub id: String,
    /// A description, in one line.
    pub title: String,
    /// Where the figures are published.
    pub source: String,
    /// The machine that was measured, the kernel, and the conditions.
    pub measured_on: String,
    /// Whether the result was known.
    pub seen: Knowledge,
    /// The profile.
    pub machine: String,
    /// The script or study.
    pub script: Option<String>,
    /// The program below `System`, in place of a script.
    pub program: Option<String>,
    /// The version of Linux whose policies the arms have.
    pub linux: Option<String>,
    /// Parameters of the script.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The metric of the script.
    #[serde(default = "ops")]
    pub metric: String,
    /// Published unit by unit of the metric.
    #[serde(default = "one")]
    pub scale: f64,
    /// The published unit.
    pub unit: String,
    /// The parameter along which a curve goes; empty if there is a single point.
    #[serde(default)]
    pub x: String,
    /// Its values.
    #[serde(default)]
    pub at: Vec<u64>,
    /// The value at which arms are compared; the last one if absent.
    pub effect_at: Option<u64>,
    /// The comparisons.
    pub compare: Vec<Compare>,
    /// Machines with drawn costs, for the interval.
    #[serde(default = "two")]
    pub drawn: usize,
    /// Whether the quick form leaves it out.
    #[serde(default)]
    pub slow: bool,
    /// Findings about a miss.
    #[serde(default)]
    pub found: String,
    /// The columns of the published table.
    pub arm: Vec<ArmFigures>,
}

/// A column of a published table.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmFigures {
    /// Its name.
    pub name: String,
    /// Policies, as for `--policy`.
    pub policy: Option<String>,
    /// Parameters in addition to the item's.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// A profile in place of the item's.
    pub machine: Option<String>,
    /// A script in place of the item's.
    pub script: Option<String>,
    /// The published figures, one for each x; empty if the item is blind. An item that compares
    /// effects alone may have them in another unit.
    #[serde(default)]
    pub published: Vec<f64>,
    /// Whether the first level is an input: a cost of the profile is from it.
    #[serde(default)]
    pub level_is_input: bool,
    /// Published shares of CPU time spent waiting for spin locks, by class.
    #[serde(default)]
    pub shares: BTreeMap<String, f64>,
    /// The lock that is waited for most, where the source names it without shares; `none`: no lock.
    pub limiter: Option<String>,
}

impl ArmFigures {
    /// Returns the lock that is waited for most by the source, with its share if that is published.
    pub(super) fn limiter(&self) -> Option<(&str, Option<f64>)> {
        let named = self.limiter.as_deref().map(|class| (class, None));
        let most = self.shares.iter().max_by(|one, other| one.1.total_cmp(other.1));
        named.or_else(|| most.map(|(class, share)| (class.as_str(), Some(*share))))
    }
}

fn ops() -> String {
    "ops_per_s".to_owned()
}
fn one() -> f64 {
    1.0
}
fn two() -> usize {
    2
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    item: Vec<Item>,
}

/// Returns all items, in the order of the files.
pub fn items() -> Result<Vec<Item>, DataError> {
    let mut items: Vec<Item> = Vec::new();
    for (file, text) in FILES {
        let read: File = toml::from_str(text).map_err(|why| file_error(file, why))?;
        checked(read.item, &mut items)?;
    }
    Ok(items)
}

/// Returns the items in the text of a file of the user, all of whose fields are filled.
pub fn items_of(file: &str, text: &str) -> Result<Vec<Item>, DataError> {
    let read: File = toml::from_str(text).map_err(|why| file_error(file, why))?;
    for item in &read.item {
        let open = item.open();
        if !open.is_empty() {
            return Err(DataError::Open { file: file.to_owned(), item: item.id.clone(), open });
        }
    }
    let mut items = vec![];
    checked(read.item, &mut items)?;
    Ok(items)
}

fn file_error(file: &str, why: toml::de::Error) -> DataError {
    DataError::File { file: file.to_owned(), why: Box::new(why) }
}

/// Adds items, each of which must be consistent and have an id of its own.
fn checked(read: Vec<Item>, items: &mut Vec<Item>) -> Result<(), DataError> {
    for item in read {
        let wrong = |why: String| DataError::Item { item: item.id.clone(), why };
        item.check().map_err(wrong)?;
        if items.iter().any(|other| other.id == item.id) {
            return Err(wrong("there is another one with this id; rename one".to_owned()));
        }
        items.push(item);
    }
    Ok(())
}

impl Item {
    /// Returns the points: the values of x, or a single one.
    pub fn points(&self) -> Vec<Option<u64>> {
        if self.at.is_empty() { vec![None] } else { self.at.iter().copied().map(Some).collect() }
    }

    /// Returns the place of the point at which arms are compared.
    pub fn effect_place(&self) -> usize {
        let found = self.effect_at.and_then(|x| self.at.iter().position(|at| *at == x));
        found.unwrap_or(self.points().len() - 1)
    }

    /// Returns whether something is compared.
    pub fn compares(&self, what: Compare) -> bool {
        self.compare.contains(&what)
    }

    /// Returns the fields that have to be filled, each with what it takes.
    pub fn open(&self) -> Vec<String> {
        let of = |text: &str| text == OPEN;
        let option = |text: &Option<String>| text.as_deref().is_some_and(of);
        let script = option(&self.script) || self.arm.iter().any(|arm| option(&arm.script));
        let policies = self.arm.iter().filter(|arm| option(&arm.policy));
        let fields = [
            (of(&self.source), "source: the publisher, the place and the date"),
            (of(&self.measured_on), "measured_on: sockets, CPUs, memory, kernel, conditions"),
            (of(&self.machine), "machine: a profile by name, or its file (mmscale list profiles)"),
            (script, "script: a script or study by name, or a file, that does the same"),
            (option(&self.linux), "linux: the version whose mechanisms the base has, as in 6.12"),
            (of(&self.x), "x: the parameter of the script whose values are `at`"),
            (of(&self.metric), "metric: the metric of the script; ops_per_s is the rate"),
            (
                self.set.contains_key(OPEN) || self.set.values().any(|value| of(value)),
                "set: number of tasks, placement and sizes, as parameters of the script; remove \
                 the field if the defaults fit",
            ),
        ];
        let fields = fields.iter().filter(|(is_open, _)| *is_open);
        fields
            .map(|(_, what)| (*what).to_owned())
            .chain(policies.map(|arm| {
                format!(
                    "arm `{}`: policy: what differs from the first arm, as in lru=lazy",
                    arm.name
                )
            }))
            .collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.script.is_some() == self.program.is_some()
            && self.arm.iter().any(|arm| arm.script.is_none())
        {
            return Err("it needs a script or a program".to_owned());
        }
        if self.x.is_empty() != self.at.is_empty() {
            return Err("`x` names the parameter of the values `at`: give both or none".to_owned());
        }
        if let Some(x) = self.effect_at.filter(|x| !self.at.contains(x)) {
            return Err(format!("effect_at = {x} is not in `at`"));
        }
        let points = self.points().len();
        let blind = self.seen == Knowledge::Blind;
        for arm in &self.arm {
            let count = arm.published.len();
            if count != if blind { 0 } else { points } {
                return Err(format!(
                    "arm `{}` has {count} published figures and the item {points} points; a blind \
                     item has none",
                    arm.name
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_harness::linux_version;

    #[test]
    fn every_item_has_its_script_its_machine_and_its_version() {
        let items = items().unwrap_or_else(|why| panic!("{why}"));
        assert!(items.len() > 20, "{}", items.len());
        for item in &items {
            for arm in &item.arm {
                let machine = arm.machine.as_ref().unwrap_or(&item.machine);
                profiles().load(machine).unwrap_or_else(|why| panic!("{}: {why}", item.id));
            }
            if let Some(linux) = &item.linux {
                linux_version(linux).unwrap_or_else(|why| panic!("{}: {why}", item.id));
            }
        }
    }

    #[test]
    fn an_item_with_open_fields_is_refused() {
        let text = |machine: &str, set: &str| {
            format!(
                "[[item]]\nid = \"a\"\ntitle = \"t\"\nsource = \"s\"\nmeasured_on = \"m\"\n\
                 seen = \"open\"\nmachine = \"{machine}\"\nscript = \"mmap1\"\nunit = \"1\"\n\
                 set = {{ {set} }}\ncompare = [\"effect\"]\n[[item.arm]]\nname = \"before\"\n\
                 published = [1.0]\n"
            )
        };
        assert_eq!(items_of("f", &text("x86-512", "")).map(|items| items.len()).unwrap(), 1);
        for (machine, set, field) in [("?", "", "machine"), ("x86-512", "\"?\" = \"tasks\"", "set")]
        {
            let why = items_of("f", &text(machine, set)).unwrap_err().to_string();
            assert!(why.starts_with(&format!("f: item `a` is not complete: {field}")), "{why}");
        }
        let twice = text("x86-512", "").repeat(2);
        assert!(items_of("f", &twice).unwrap_err().to_string().contains("another one"));
    }

    #[test]
    fn items_that_were_predicted_have_their_predictions_on_record() {
        let predictions = include_str!("../../gallery/predictions.txt");
        let items = items().unwrap_or_else(|why| panic!("{why}"));
        let predicted = items.iter().filter(|item| item.seen == Knowledge::Predicted);
        let mut count = 0;
        for item in predicted {
            assert!(predictions.contains(&format!("| {} |", item.id)), "{}", item.id);
            count += 1;
        }
        assert!(count > 5, "{count}");
    }
}
