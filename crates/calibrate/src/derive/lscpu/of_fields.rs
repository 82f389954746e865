//! Groups of CPUs from counts: the fields of `lscpu`, and the nodes of `numactl`.

use std::collections::BTreeMap;

use super::form::{Form, cpu_list, is_missing};
use super::kinds::{self, Kind};
use super::{Given, Groups, Lscpu, even};

/// Returns the groups according to the counts of a file without rows.
pub(super) fn counts(form: &Form, given: Given<'_>) -> Result<Lscpu, String> {
    let Some(all) = count(form, "CPU(s)") else { return of_nodes(form, given) };
    let online = form.field("On-line CPU(s) list").and_then(cpu_list);
    let cpus = online.as_ref().map_or(all, Vec::len);
    let mut notes = Vec::new();
    if cpus == 0 {
        return Err("it has no online CPU".to_owned());
    }
    if cpus != all {
        notes.push(format!("{cpus} of {all} CPUs are online: the profile has these"));
    }
    let nodes = nodes(form)?;
    let kinds = kinds_of(form, cpus)?;
    let smt = match given.smt.or_else(|| count(form, "Thread(s) per core")) {
        Some(smt) => smt,
        None => {
            notes.push("lscpu has no threads of a core: one is assumed".to_owned());
            1
        }
    };
    let cluster = match given.cluster {
        Some(cluster) => cluster,
        None => cluster(form, all, cpus, nodes, &mut notes)?,
    };
    let groups =
        Groups { cpus: Some(cpus), nodes: Some(nodes), cluster: Some(cluster), smt: Some(smt) };
    Ok(Lscpu { groups, kinds, notes, ..Lscpu::default() })
}

/// Adds the properties that do not depend on the form.
pub(super) fn more(form: &Form, read: &mut Lscpu) {
    read.model = form.field("Model name").map(str::to_owned);
    let cache = form.field("L3 cache").or_else(|| form.field("L3"));
    let Groups { cpus, cluster, .. } = read.groups;
    let assumed = || cpus.zip(cluster).map(|(cpus, cluster)| cpus / cluster.max(1));
    read.cache_kib = cache.and_then(|text| {
        let kib = kib(text)?;
        // Versions before 2.34 print the size of one, later ones that of all.
        let of_all = text.contains("iB").then(|| instances(text).or_else(assumed));
        Some(of_all.flatten().map_or(kib, |caches| kib / caches.max(1) as u64))
    });
    let sizes = form.nodes.values().filter(|(cpus, _)| !cpus.is_empty());
    let sizes: Option<Vec<u64>> = sizes.map(|(_, mib)| *mib).collect();
    read.node_mib = sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| {
        let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
        if sizes.iter().any(|mib| mib.abs_diff(mean) > mean / 20) {
            read.notes.push(format!(
                "the nodes have {} MiB of memory; the profile's have {mean} each",
                sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
            ));
        }
        mean
    });
}

fn count(form: &Form, name: &str) -> Option<usize> {
    form.field(name)?.parse().ok().filter(|count| (1..=1 << 16).contains(count))
}

/// Returns the number of nodes with CPUs.
fn nodes(form: &Form) -> Result<usize, String> {
    let lists = form.fields.iter().filter_map(|(name, value)| {
        let number = name.strip_prefix("NUMA node")?.strip_suffix(" CPU(s)")?;
        let number: u64 = number.parse().ok()?;
        // A node without CPUs has none or `-`.
        let list = if value.trim() == "-" { Some(vec![]) } else { cpu_list(value) };
        let wrong = || format!("`{name}`: `{value}` is no list of CPUs such as 0-15,32");
        Some(list.ok_or_else(wrong).map(|cpus| (number, cpus)))
    });
    let mut lists: BTreeMap<u64, Vec<u64>> = lists.collect::<Result<_, String>>()?;
    let others: BTreeMap<u64, Vec<u64>> =
        form.nodes.iter().map(|(node, (cpus, _))| (*node, cpus.clone())).collect();
    let number = |of: &BTreeMap<u64, Vec<u64>>| of.values().map(Vec::len).sum::<usize>();
    match [number(&lists), number(&others)] {
        [0, _] => lists = others,
        [fields, tables] if tables > 0 && fields != tables => {
            return Err(format!(
                "the nodes of lscpu have {fields} CPUs, and those of numactl {tables}: these are \
                 of two machines; give the files of one"
            ));
        }
        _ => {}
    }
    // Memory alone is a node of its own.
    lists.retain(|_, cpus| !cpus.is_empty());
    even("nodes", "CPUs", lists.iter().flat_map(|(node, cpus)| cpus.iter().map(move |_| node)))?;
    Ok(match lists.len() {
        0 => count(form, "NUMA node(s)").unwrap_or(1),
        nodes => nodes,
    })
}

/// Returns the number of CPUs behind a last-level cache.
fn cluster(
    form: &Form,
    all: usize,
    cpus: usize,
    nodes: usize,
    notes: &mut Vec<String>,
) -> Result<usize, String> {
    let Some(cache) = form.field("L3 cache").or_else(|| form.field("L3")) else {
        notes.push(
            "lscpu lists no L3: each node is assumed to have one last-level cache".to_owned(),
        );
        return Ok(cpus / nodes);
    };
    let unknown = || {
        "it does not list the CPUs of a last-level cache; create it with `lscpu -J -e`, or also \
         give --cluster"
            .to_owned()
    };
    if let Some(caches) = instances(cache) {
        let of = [cpus, all].into_iter().find(|cpus| caches > 0 && cpus.is_multiple_of(caches));
        return of.map(|cpus| cpus / caches).ok_or_else(unknown);
    }
    let vendor = form.field("Vendor ID").unwrap_or_default();
    // Several caches a socket since Zen.
    if vendor.contains("AMD") || vendor.contains("Hygon") {
        return Err(unknown());
    }
    let sockets = count(form, "Socket(s)").unwrap_or(1);
    notes.push(
        "lscpu does not say how many L3 caches there are: each socket is assumed to have one"
            .to_owned(),
    );
    Ok((cpus / sockets.max(nodes)).max(1))
}

/// Returns the kinds of cores: one for each `Model name`, with its own counts and clock.
fn kinds_of(form: &Form, cpus: usize) -> Result<Vec<Kind>, String> {
    let mut each: Vec<BTreeMap<&str, &str>> = Vec::new();
    for (name, value) in &form.fields {
        if name == "Model name" {
            each.push(BTreeMap::new());
        }
        if let Some(kind) = each.last_mut()
            && !is_missing(value)
        {
            kind.entry(name).or_insert(value);
        }
    }
    if each.len() < 2 {
        return Ok(Vec::new());
    }
    let number = |kind: &BTreeMap<&str, &str>, names: &[&str]| {
        names.iter().find_map(|name| kind.get(name)?.parse::<usize>().ok())
    };
    let mut speeds = BTreeMap::new();
    for kind in &each {
        let cores = number(kind, &["Core(s) per socket", "Core(s) per cluster"]);
        let groups = number(kind, &["Socket(s)", "Cluster(s)"]);
        let mhz = kind.get("CPU max MHz").and_then(|mhz| mhz.replace(',', ".").parse::<f64>().ok());
        let (Some(cores), Some(groups), Some(mhz)) = (cores, groups, mhz) else {
            return Err(super::unclear(&format!("its cores are of {} kinds", each.len())));
        };
        let threads = number(kind, &["Thread(s) per core"]).unwrap_or(1);
        if threads > 1 {
            return Err(format!(
                "its cores are of {} kinds, with several threads; in a profile they have one: \
                 give --cpus, --cluster and --smt of a similar machine",
                each.len()
            ));
        }
        let first = speeds.len() as u64;
        // As many as there are, whatever the counts say.
        let count = (cores.saturating_mul(groups)).min(cpus + 1) as u64;
        speeds.extend((first..first + count).map(|cpu| (cpu, mhz)));
    }
    if speeds.len() != cpus {
        return Err(format!(
            "its kinds of cores have {} CPUs together, and it has {cpus}; create it with `lscpu \
             -J -e`",
            speeds.len()
        ));
    }
    Ok(kinds::kinds(&speeds, false)?.0)
}

/// Returns the groups according to `numactl -H` alone.
fn of_nodes(form: &Form, given: Given<'_>) -> Result<Lscpu, String> {
    let lists: Vec<&Vec<u64>> =
        form.nodes.values().map(|(cpus, _)| cpus).filter(|cpus| !cpus.is_empty()).collect();
    let cpus: usize = lists.iter().map(|cpus| cpus.len()).sum();
    if cpus == 0 {
        return Err("no node has CPUs; give all of `numactl -H`".to_owned());
    }
    let members = lists.iter().enumerate().flat_map(|(node, cpus)| cpus.iter().map(move |_| node));
    even("nodes", "CPUs", members)?;
    let mut notes = Vec::new();
    if given.smt.is_none() || given.cluster.is_none() {
        notes.push(
            "numactl has no cores and caches: those of the base are taken; give --smt and \
             --cluster, or lscpu of the machine"
                .to_owned(),
        );
    }
    let (smt, cluster) = (given.smt, given.cluster);
    let groups = Groups { cpus: Some(cpus), nodes: Some(lists.len()), cluster, smt };
    Ok(Lscpu { groups, notes, ..Lscpu::default() })
}

/// Returns the number of caches in `384 MiB (12 instances)`.
fn instances(text: &str) -> Option<usize> {
    text.split_once('(')?.1.split_whitespace().next()?.parse().ok()
}

/// Returns the size of all caches in `384 MiB (12 instances)`, or of one in `30720K`, in KiB.
fn kib(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let size: f64 = text[..end].parse().ok()?;
    let unit = match text[end..].split_whitespace().next()? {
        "K" | "KiB" => 1.0,
        "M" | "MiB" => 1024.0,
        "G" | "GiB" => 1024.0 * 1024.0,
        _ => return None,
    };
    Some((size * unit) as u64).filter(|kib| *kib > 0)
}
