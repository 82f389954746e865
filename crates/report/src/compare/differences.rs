//! Differences between two runs, other than their results.

use std::collections::BTreeSet;

use mmscale_document::{ArmRecord, Document, Topology};

use crate::number::scaled;
use crate::text::listed;

/// The name of a fact, and its value in a document.
type Fact = (&'static str, fn(&Document) -> String);

/// Returns what differs, with both values. Names of files and the fingerprint are not included.
pub(super) fn of(before: &Document, after: &Document) -> Vec<(String, String, String)> {
    let facts: [Fact; 14] = [
        ("mmscale", |d| d.build.to_string()),
        ("program", |d| d.program.as_ref().map_or(absent(), |p| format!("{} {p}", p.name))),
        ("command", |d| d.command.join(" ")),
        ("study.toml or script", |d| d.study_file_hash.clone().unwrap_or_else(absent)),
        ("profile", profile),
        ("linux", |d| d.linux.as_ref().map_or(absent(), |linux| linux.version.clone())),
        ("cpus", |d| d.cpus.to_string()),
        ("hz", |d| d.hz.to_string()),
        ("topology", |d| d.topology.as_ref().map_or(absent(), topology)),
        ("window", |d| d.window_ns.map_or(absent(), |ns| scaled(ns as f64, "ns"))),
        ("seeds", seeds),
        ("failed runs", |d| d.failures.len().to_string()),
        ("host kernel", |d| d.host.kernel.clone()),
        ("host processor", |d| d.host.cpu.clone()),
    ];
    let facts = facts.iter().map(|(what, of)| ((*what).to_owned(), of(before), of(after)));
    let all = facts.chain(params(before, after)).chain(policies(before, after));
    all.filter(|(_, before, after)| before != after).collect()
}

fn absent() -> String {
    "none".to_owned()
}

fn profile(document: &Document) -> String {
    match &document.profile_hash {
        Some(hash) => format!("{} ({hash})", document.profile),
        None => document.profile.clone(),
    }
}

fn topology(of: &Topology) -> String {
    format!(
        "{} of {} CPUs, caches of {}, {} a core (--shape {})",
        of.nodes, of.node_cpus, of.cache_cpus, of.core_threads, of.shape
    )
}

/// Returns the seeds of any arm.
pub(super) fn seeds(document: &Document) -> String {
    let all: BTreeSet<u64> = document.arms.iter().flat_map(|arm| &arm.seeds).copied().collect();
    listed(&all.into_iter().collect::<Vec<_>>())
}

fn params(before: &Document, after: &Document) -> Vec<(String, String, String)> {
    let names: BTreeSet<&String> = before.params.keys().chain(after.params.keys()).collect();
    let value = |document: &Document, name: &String| {
        document.params.get(name).map_or(absent(), ToString::to_string)
    };
    let one = |name: &String| (name.clone(), value(before, name), value(after, name));
    names.into_iter().map(one).collect()
}

/// Returns, for each arm of both runs, its policies of the mechanisms in which they differ.
fn policies(before: &Document, after: &Document) -> Vec<(String, String, String)> {
    let one = |arm: &ArmRecord| {
        let other = after.arms.iter().find(|other| other.arm == arm.arm)?;
        let keys: BTreeSet<&String> = arm.policies.keys().chain(other.policies.keys()).collect();
        let differing = |key: &&String| arm.policies.get(*key) != other.policies.get(*key);
        let of = |arm: &ArmRecord| {
            let pair = |key: &String| match arm.policies.get(key) {
                Some(policy) => format!("{key}={policy}"),
                None => format!("no {key}"),
            };
            let pairs = keys.iter().copied().filter(differing).map(pair);
            pairs.collect::<Vec<_>>().join(", ")
        };
        Some((format!("policies of {}", arm.arm), of(arm), of(other)))
    };
    before.arms.iter().filter_map(one).collect()
}
