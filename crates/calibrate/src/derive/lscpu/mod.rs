//! The CPU topology of a machine, from the output of `lscpu`.
//!
//! `lscpu -J -e` has a row per CPU, with its node, core and caches. `lscpu -J` has only counts,
//! from which the sizes of groups follow, but not their members.

use super::{DeriveError, Groups, Text};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The CPUs of a machine.
#[derive(Debug)]
pub(super) struct Lscpu {
    pub(super) groups: Groups,
    /// The processor's name, if present.
    pub(super) model: Option<String>,
    /// The size of one last-level cache, if present.
    pub(super) cache_kib: Option<u64>,
    /// The number in a profile of each online CPU, in the order of Linux's numbers. `None` if the
    /// output has only counts.
    pub(super) places: Option<Vec<usize>>,
    pub(super) notes: Vec<String>,
}

/// An online CPU, with the identifiers of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cpu {
    node: u64,
    cache: Option<u64>,
    core: (u64, u64),
    number: u64,
}

impl Lscpu {
    /// Parses either form. `cluster` is the size of last-level caches as given by the caller.
    pub(super) fn read(file: &Text, cluster: Option<usize>) -> Result<Self, DeriveError> {
        let wrong = |why: String| DeriveError::Lscpu { file: file.name.clone(), why };
        let whole: Value = serde_json::from_str(&file.text).map_err(|why| {
            wrong(format!("it is not JSON ({why}); create it with `lscpu -J -e`"))
        })?;
        match (&whole["cpus"], &whole["lscpu"]) {
            (Value::Array(rows), _) => of_rows(rows, cluster),
            (_, Value::Array(fields)) => of_fields(fields, cluster),
            _ => Err("it has neither `cpus` nor `lscpu`; create it with `lscpu -J -e`".to_owned()),
        }
        .map_err(wrong)
    }
}

/// Parses the output of `lscpu -J -e`.
fn of_rows(rows: &[Value], cluster: Option<usize>) -> Result<Lscpu, String> {
    let rows = rows.iter().filter_map(Value::as_object).filter(|row| online(row));
    let mut cpus = rows.map(cpu).collect::<Result<Vec<Cpu>, String>>()?;
    if cpus.is_empty() {
        return Err("it has no online CPU".to_owned());
    }
    let mut notes = Vec::new();
    if cpus.iter().any(|cpu| cpu.cache.is_none()) {
        cpus.iter_mut().for_each(|cpu| cpu.cache = None);
        if cluster.is_none() {
            notes.push(
                "lscpu lists no L3: each node is assumed to have one last-level cache".to_owned(),
            );
        }
    }
    cpus.sort_unstable_by_key(|cpu| cpu.number);
    let numbers: BTreeSet<u64> = cpus.iter().map(|cpu| cpu.number).collect();
    if numbers.len() < cpus.len() {
        return Err("two rows have the same CPU number".to_owned());
    }
    let smt = even("cores", "CPUs", cpus.iter().map(|cpu| cpu.core))?;
    let node = even("nodes", "CPUs", cpus.iter().map(|cpu| cpu.node))?;
    let cache = even("last-level caches", "CPUs", cpus.iter().map(|cpu| (cpu.node, cpu.cache)))?;
    let named = cpus[0].cache.is_some();
    let cluster = match cluster {
        Some(given) if named && given != cache => {
            return Err(format!(
                "it has last-level caches of {cache} CPUs, but --cluster is {given}; leave \
                 --cluster out"
            ));
        }
        Some(given) => given,
        None => cache,
    };
    let mut sorted = cpus.clone();
    sorted.sort_unstable();
    let place: BTreeMap<u64, usize> =
        sorted.iter().enumerate().map(|(place, cpu)| (cpu.number, place)).collect();
    Ok(Lscpu {
        groups: Groups {
            cpus: Some(cpus.len()),
            nodes: Some(cpus.len() / node),
            cluster: Some(cluster),
            smt: Some(smt),
        },
        model: None,
        cache_kib: None,
        places: Some(cpus.iter().map(|cpu| place[&cpu.number]).collect()),
        notes,
    })
}

/// Returns the number of members per group. In a profile, all groups have the same size.
fn even<T: Ord>(groups: &str, members: &str, of: impl Iterator<Item = T>) -> Result<usize, String> {
    let mut sizes: BTreeMap<T, usize> = BTreeMap::new();
    of.for_each(|group| *sizes.entry(group).or_default() += 1);
    let sizes: BTreeSet<usize> = sizes.into_values().collect();
    match (sizes.first(), sizes.last()) {
        (Some(least), Some(most)) if least != most => Err(format!(
            "its {groups} have {least} to {most} {members}, but in a profile all must have the \
             same number; give --cpus, --nodes, --cluster and --smt of a similar machine"
        )),
        (size, _) => Ok(size.copied().unwrap_or(1)),
    }
}

/// Returns whether a CPU is online. A row without the column comes from a machine with all CPUs
/// online.
fn online(row: &Map<String, Value>) -> bool {
    match row.get("online") {
        Some(Value::Bool(online)) => *online,
        Some(Value::String(word)) => word == "yes",
        _ => true,
    }
}

fn cpu(row: &Map<String, Value>) -> Result<Cpu, String> {
    let column = |name: &str| {
        let found = row.get(name).and_then(id);
        found.ok_or_else(|| format!("a CPU has no `{name}`; create the file with `lscpu -J -e`"))
    };
    // A machine without NUMA has no column, or a dash.
    let node = row.get("node").and_then(id).unwrap_or(0);
    let socket = row.get("socket").and_then(id).unwrap_or(0);
    let core = (socket, column("core")?);
    Ok(Cpu { node, cache: last_level(row), core, number: column("cpu")? })
}

/// Returns the identifier of the L3 in a column such as `l1d:l1i:l2:l3`.
fn last_level(row: &Map<String, Value>) -> Option<u64> {
    let (levels, ids) = row.iter().find(|(name, _)| name.split(':').any(|level| level == "l3"))?;
    let at = levels.split(':').position(|level| level == "l3")?;
    match ids {
        Value::String(ids) => ids.split(':').nth(at)?.parse().ok(),
        ids => id(ids),
    }
}

/// Parses a number, which older versions write as a string.
fn id(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    }
}

/// Parses the output of `lscpu -J`.
fn of_fields(fields: &[Value], cluster: Option<usize>) -> Result<Lscpu, String> {
    let mut all = BTreeMap::new();
    collect(fields, &mut all);
    let text = |name: &str| all.get(name).copied();
    let count = |name: &str| text(name).and_then(|text| text.trim().parse::<usize>().ok());
    let needed = |name: &str| {
        count(name)
            .ok_or_else(|| format!("it has no number `{name}`; create it with `lscpu -J -e`"))
    };
    let cpus = needed("CPU(s)")?;
    let all_caches = text("L3 cache");
    let caches = all_caches.and_then(instances).filter(|&caches| caches > 0);
    let of_cache = caches.filter(|&caches| cpus.is_multiple_of(caches));
    let cluster = cluster.or(of_cache.map(|caches| cpus / caches)).ok_or_else(|| {
        "it does not list the CPUs of a last-level cache; create it with `lscpu -J -e`, or also \
         give --cluster"
            .to_owned()
    })?;
    Ok(Lscpu {
        groups: Groups {
            cpus: Some(cpus),
            nodes: Some(count("NUMA node(s)").unwrap_or(1)),
            cluster: Some(cluster),
            smt: Some(needed("Thread(s) per core")?),
        },
        model: text("Model name").map(str::to_owned),
        cache_kib: all_caches.and_then(kib).zip(caches).map(|(all, caches)| all / caches as u64),
        places: None,
        notes: Vec::new(),
    })
}

/// Collects fields by name, without the colon; newer versions nest them.
fn collect<'a>(fields: &'a [Value], all: &mut BTreeMap<&'a str, &'a str>) {
    for field in fields {
        if let (Some(name), Some(data)) = (field["field"].as_str(), field["data"].as_str()) {
            all.entry(name.trim_end_matches(':')).or_insert(data);
        }
        if let Some(children) = field["children"].as_array() {
            collect(children, all);
        }
    }
}

/// Returns the number of caches in `384 MiB (12 instances)`.
fn instances(text: &str) -> Option<usize> {
    text.split_once('(')?.1.split_whitespace().next()?.parse().ok()
}

/// Returns the size of all caches in `384 MiB (12 instances)`, in KiB.
fn kib(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let size: f64 = words.next()?.parse().ok()?;
    let unit = match words.next()? {
        "KiB" => 1.0,
        "MiB" => 1024.0,
        "GiB" => 1024.0 * 1024.0,
        _ => return None,
    };
    Some((size * unit) as u64).filter(|kib| *kib > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, cluster: Option<usize>) -> Result<Lscpu, String> {
        let file = Text { name: "x.json".to_owned(), text: text.to_owned() };
        Lscpu::read(&file, cluster).map_err(|why| why.to_string())
    }

    /// Two nodes with two cores each, of two threads, numbered as in Linux: siblings are 4 apart.
    fn rows() -> String {
        let row = |cpu: usize| {
            let core = cpu % 4;
            let node = core / 2;
            format!(
                "{{\"cpu\": {cpu}, \"node\": {node}, \"socket\": {node}, \"core\": {core}, \
                 \"l1d:l1i:l2:l3\": \"{core}:{core}:{core}:{node}\", \"online\": true}}"
            )
        };
        let rows: Vec<String> = (0..8).map(row).collect();
        format!("{{\"cpus\": [{}]}}", rows.join(","))
    }

    fn groups(groups: Groups) -> [Option<usize>; 4] {
        [groups.cpus, groups.nodes, groups.cluster, groups.smt]
    }

    #[test]
    fn rows_give_groups_and_the_place_of_each_cpu() {
        let said = read(&rows(), None).unwrap();
        assert_eq!(groups(said.groups), [Some(8), Some(2), Some(4), Some(2)]);
        assert_eq!(said.places.unwrap(), [0, 2, 4, 6, 1, 3, 5, 7]);
    }

    #[test]
    fn words_of_older_versions_are_read_too() {
        let old = rows().replace("\"online\": true", "\"online\": \"yes\"");
        let old = (0..8).fold(old, |text, n| {
            text.replace(&format!("\"cpu\": {n},"), &format!("\"cpu\": \"{n}\","))
        });
        assert_eq!(read(&old, None).unwrap().places.unwrap(), [0, 2, 4, 6, 1, 3, 5, 7]);
    }

    #[test]
    fn cpus_that_are_offline_do_not_count() {
        // Set the second threads of all cores offline.
        let some = (4..8).fold(rows(), |text, cpu| {
            let at = text.find(&format!("\"cpu\": {cpu},")).unwrap();
            let (before, after) = text.split_at(at);
            format!("{before}{}", after.replacen("true", "false", 1))
        });
        let said = read(&some, None).unwrap();
        assert_eq!(groups(said.groups), [Some(4), Some(2), Some(2), Some(1)]);
        let all = rows().replace("true", "false");
        assert!(read(&all, None).unwrap_err().contains("no online CPU"));
    }

    #[test]
    fn without_an_l3_a_node_is_a_cache_unless_the_caller_says_more() {
        let none = rows().replace(":l3", "").replace(":0\"", "\"").replace(":1\"", "\"");
        let said = read(&none, None).unwrap();
        assert_eq!(groups(said.groups), [Some(8), Some(2), Some(4), Some(2)]);
        assert!(said.notes[0].contains("lists no L3"), "{:?}", said.notes);
        let said = read(&none, Some(2)).unwrap();
        assert_eq!((said.groups.cluster, said.notes.len()), (Some(2), 0));
        let why = read(&rows(), Some(2)).unwrap_err();
        assert!(why.contains("last-level caches of 4 CPUs, but --cluster is 2"), "{why}");
    }

    #[test]
    fn counts_give_groups_and_a_name() {
        let text = r#"{"lscpu": [
            {"field": "CPU(s):", "data": "192", "children": [
                {"field": "On-line CPU(s) list:", "data": "0-191"}]},
            {"field": "Vendor ID:", "data": "AuthenticAMD", "children": [
                {"field": "Model name:", "data": "AMD EPYC 9654", "children": [
                    {"field": "Thread(s) per core:", "data": "2"}]}]},
            {"field": "NUMA node(s):", "data": "2"},
            {"field": "L3 cache:", "data": "384 MiB (12 instances)"}]}"#;
        let said = read(text, None).unwrap();
        assert_eq!(groups(said.groups), [Some(192), Some(2), Some(16), Some(2)]);
        assert_eq!((said.model.as_deref(), said.places), (Some("AMD EPYC 9654"), None));
        assert_eq!(said.cache_kib, Some(32 << 10));
        let old = text.replace(" (12 instances)", "");
        assert!(read(&old, None).unwrap_err().contains("also give --cluster"));
        assert_eq!(read(&old, Some(16)).unwrap().groups.cluster, Some(16));
    }

    #[test]
    fn machines_and_files_that_cannot_be_used_are_refused() {
        let odd = rows().replace("\"core\": 3,", "\"core\": 2,");
        let why = read(&odd, None).unwrap_err();
        assert!(why.contains("its cores have 2 to 4 CPUs"), "{why}");
        let twice = rows().replace("\"cpu\": 5,", "\"cpu\": 4,");
        assert!(read(&twice, None).unwrap_err().contains("the same CPU number"));
        let less = rows().replace("\"core\"", "\"kern\"");
        assert!(read(&less, None).unwrap_err().contains("a CPU has no `core`"));
        assert!(read("CPU NODE", None).unwrap_err().contains("it is not JSON"));
        assert!(read("{}", None).unwrap_err().contains("neither `cpus` nor `lscpu`"));
    }
}
