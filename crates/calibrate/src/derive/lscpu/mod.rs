//! The CPU topology of a machine, from the output of `lscpu` or `numactl -H`.
//!
//! A row for each CPU has its node, core and caches. Fields have only counts, from which the sizes
//! of groups follow, but not their members. `numactl` has no cores and caches.

mod form;
mod kinds;
mod of_fields;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{DeriveError, Groups, Text};
use form::{Form, Row};
pub(super) use kinds::Kind;

/// The CPUs of a machine.
#[derive(Debug, Default)]
pub(super) struct Lscpu {
    pub(super) groups: Groups,
    /// The processor's name, if present.
    pub(super) model: Option<String>,
    /// The size of one last-level cache, if present.
    pub(super) cache_kib: Option<u64>,
    /// Memory of a node with CPUs, in MiB, if present.
    pub(super) node_mib: Option<u64>,
    /// The number in a profile of each online CPU, in the order of Linux's numbers. `None` if the
    /// output has only counts.
    pub(super) places: Option<Vec<usize>>,
    /// Kinds of cores, the slowest first; none if all are alike.
    pub(super) kinds: Vec<Kind>,
    pub(super) notes: Vec<String>,
}

/// Facts that the caller knows beyond the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given<'a> {
    /// The size of last-level caches.
    pub(super) cluster: Option<usize>,
    /// Hardware threads of a core.
    pub(super) smt: Option<usize>,
    /// The capacity of CPUs, by number.
    pub(super) capacities: Option<&'a BTreeMap<u64, f64>>,
}

/// An online CPU, with the identifiers of its groups. The order is that of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cpu {
    kind: usize,
    node: u64,
    cache: Option<u64>,
    core: (u64, u64),
    number: u64,
}

impl Lscpu {
    /// Parses any form.
    pub(super) fn read(file: &Text, given: Given<'_>) -> Result<Self, DeriveError> {
        let wrong = |why: String| DeriveError::Lscpu { file: file.name.clone(), why };
        let read = || {
            let form = Form::read(&file.text)?;
            let mut read = match form.rows.is_empty() {
                false => of_rows(&form.rows, given),
                true => of_fields::counts(&form, given),
            }?;
            of_fields::more(&form, &mut read);
            Ok(read)
        };
        read().map_err(wrong)
    }
}

/// Returns the CPUs of rows.
fn of_rows(rows: &[Row], given: Given<'_>) -> Result<Lscpu, String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| online(row)).collect();
    let mut notes = Vec::new();
    let without_core = rows.iter().filter(|row| !row.contains_key("core")).count();
    if !rows.is_empty() && without_core == rows.len() {
        notes.push("lscpu has no cores: each CPU is assumed to be a core of its own".to_owned());
    }
    let is_lacking = without_core < rows.len();
    let mut cpus =
        rows.iter().map(|row| cpu(row, is_lacking)).collect::<Result<Vec<Cpu>, String>>()?;
    if cpus.is_empty() {
        return Err("it has no online CPU".to_owned());
    }
    if cpus.iter().any(|cpu| cpu.cache.is_none()) {
        cpus.iter_mut().for_each(|cpu| cpu.cache = None);
        if given.cluster.is_none() {
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
    let restarted = cores_of_their_own(&rows, &mut cpus);
    let kinds = kinds_of(&rows, &mut cpus, restarted, given)?;
    let threads = |why: String| match kinds.len() {
        0 => why,
        kinds => format!("its cores are of {kinds} kinds; {why}"),
    };
    let smt = even("cores", "CPUs", cpus.iter().map(|cpu| cpu.core)).map_err(threads)?;
    if let Some(other) = given.smt.filter(|given| *given != smt && is_lacking) {
        return Err(format!("its cores have {smt} CPUs, but --smt is {other}; leave --smt out"));
    }
    let node = even("nodes", "CPUs", cpus.iter().map(|cpu| cpu.node))?;
    let cache = even("last-level caches", "CPUs", cpus.iter().map(|cpu| (cpu.node, cpu.cache)))?;
    let named = cpus[0].cache.is_some();
    let cluster = match given.cluster {
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
        places: Some(cpus.iter().map(|cpu| place[&cpu.number]).collect()),
        kinds,
        notes,
        ..Lscpu::default()
    })
}

/// Gives each CPU a core of its own if numbers of cores restart in each cluster, as those of ARM
/// do: CPUs with the same number then have first-level caches of their own. Returns whether.
fn cores_of_their_own(rows: &[&Row], cpus: &mut [Cpu]) -> bool {
    let caches: BTreeSet<&String> = rows.iter().filter_map(|row| row.get("l1d")).collect();
    let cores: BTreeSet<(u64, u64)> = cpus.iter().map(|cpu| cpu.core).collect();
    let restarted = caches.len() == cpus.len() && cores.len() < cpus.len();
    if restarted {
        cpus.iter_mut().for_each(|cpu| cpu.core = (0, cpu.number));
    }
    restarted
}

/// Finds the kinds of cores by the kernel's capacities, or by the largest clock.
fn kinds_of(
    rows: &[&Row],
    cpus: &mut [Cpu],
    restarted: bool,
    given: Given<'_>,
) -> Result<Vec<Kind>, String> {
    let clock = |row: &&Row| {
        let number = row.get("cpu")?.parse().ok()?;
        let mhz: f64 = row.get("maxmhz")?.replace(',', ".").parse().ok()?;
        (mhz > 0.0 && mhz.is_finite()).then_some((number, mhz))
    };
    let clocks: BTreeMap<u64, f64> = rows.iter().filter_map(clock).collect();
    let all = |speeds: &BTreeMap<u64, f64>| cpus.iter().all(|c| speeds.contains_key(&c.number));
    let capacities = given.capacities.filter(|capacities| all(capacities));
    let speeds = match capacities {
        Some(capacities) => {
            let online = |cpu: &u64| cpus.iter().any(|other| other.number == *cpu);
            capacities.iter().filter(|(cpu, _)| online(cpu)).map(|(n, of)| (*n, *of)).collect()
        }
        None if all(&clocks) => clocks,
        None => {
            let by_model: BTreeSet<&String> =
                rows.iter().filter_map(|row| row.get("modelname")).collect();
            if by_model.len() > 1 {
                return Err(unclear(&format!("its cores are of {} kinds", by_model.len())));
            }
            let clusters = clusters(rows);
            if restarted && clusters.iter().collect::<BTreeSet<_>>().len() > 1 {
                let sizes = clusters.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                return Err(unclear(&format!(
                    "its clusters have {sizes} cores, which are of several kinds by all signs"
                )));
            }
            return Ok(Vec::new());
        }
    };
    let (kinds, of) = kinds::kinds(&speeds, capacities.is_some())?;
    cpus.iter_mut().for_each(|cpu| cpu.kind = of.get(&cpu.number).copied().unwrap_or(0));
    Ok(kinds)
}

/// Returns the sizes of clusters in which numbers of cores restart.
fn clusters(rows: &[&Row]) -> Vec<usize> {
    let mut sizes: Vec<usize> = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows {
        if sizes.is_empty() || !seen.insert((row.get("socket"), row.get("core"))) {
            seen = BTreeSet::from([(row.get("socket"), row.get("core"))]);
            sizes.push(0);
        }
        *sizes.last_mut().expect("it is not empty") += 1;
    }
    sizes
}

/// Returns the error about kinds whose speeds are not known.
fn unclear(what: &str) -> String {
    format!(
        "{what}, and their speeds are not in it; create it with `lscpu -J -e` where that has \
         MAXMHZ, or give --cpus and --cluster with `--base phone`, and write `small_cpus` and \
         `middle_cpus` into [clock] of the profile"
    )
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
/// online. In other languages than English the word is another; a CPU that is offline has neither a
/// core nor caches.
fn online(row: &Row) -> bool {
    let has_core = || ["core", "socket", "l1d"].iter().any(|name| row.contains_key(*name));
    row.get("online").is_none_or(|word| match word.to_lowercase().as_str() {
        "yes" | "y" => true,
        "no" | "n" => false,
        _ => has_core(),
    })
}

fn cpu(row: &Row, core_is_needed: bool) -> Result<Cpu, String> {
    let id = |name: &str| row.get(name).and_then(|text| text.trim().parse::<u64>().ok());
    let column = |name: &str| {
        id(name).ok_or_else(|| {
            format!("a CPU has no number `{name}`; create the file with `lscpu -J -e`")
        })
    };
    let number = column("cpu")?;
    let core = if core_is_needed { column("core")? } else { number };
    // A machine without NUMA has no column, or a dash.
    let node = id("node").unwrap_or(0);
    let socket = if core_is_needed { id("socket").unwrap_or(0) } else { 0 };
    Ok(Cpu { kind: 0, node, cache: id("l3"), core: (socket, core), number })
}
