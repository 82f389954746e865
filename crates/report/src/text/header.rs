//! The header: what was run, where and how.

use std::collections::BTreeMap;

use mmscale_document::{
    ArmRecord, Document, FailureRecord, Groups, Looks, ParamValue, Target, Topology, Unsettled,
};

use super::{Extent, Notes, WIDTH, cut, wrap};
use crate::changes::{MetricChange, changes};
use crate::figure;
use crate::number::scaled;

/// Returns the study and its question.
pub(super) fn title(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    wrap(&format!("{}: {}", document.study, notes.summary), "", "  ")
}

/// Returns the header, which ends with an empty line. A brief one has what was asked for, and what
/// a reader must know: a machine that differs from its profile, and runs that failed.
pub(super) fn lines(document: &Document, notes: &Notes<'_>, extent: Extent) -> Vec<String> {
    let whole = extent == Extent::Whole;
    let mut lines = vec![];
    let mut entry = |key: &str, text: String| {
        if !text.is_empty() {
            lines.extend(wrap(&text, &format!("{key:<9} "), "          "));
        }
    };
    entry("machine", format!("{}: {} CPUs, HZ={}", machine(document), document.cpus, document.hz));
    if let Some(topology) = &document.topology {
        if whole || topology.profile.is_some() {
            entry("topology", groups(document.cpus, topology));
        }
        if let Some(profile) = &topology.profile {
            entry("", of_profile(&document.profile, profile, topology));
        }
    }
    if let Some(linux) = &document.linux {
        let (version, since) = (&linux.version, &linux.unchanged_since);
        entry("linux", format!("mechanisms of {version}, with all known changes up to {since}"));
    }
    if let Some(ns) = document.window_ns {
        entry("window", format!("{} of each run", scaled(ns as f64, "ns")));
    }
    let policies = policies(&document.arms);
    if !policies.is_empty() {
        entry("policies", policies);
    }
    if whole {
        entry("host", format!("{}, {}", document.host.kernel, document.host.cpu));
    }
    entry("seeds", seeds(document));
    entry("chosen", chosen(document));
    if !document.failures.is_empty() {
        entry("failed", failed(document));
    }
    let (set, rest): (Vec<_>, Vec<_>) = document
        .params
        .iter()
        .partition(|(name, value)| notes.defaults.get(*name).is_none_or(|d| d != *value));
    let with_default = |(name, value): (&String, &ParamValue)| match notes.defaults.get(name) {
        Some(default) => format!("{name}={value} (default {default})"),
        None => format!("{name}={value}"),
    };
    if !set.is_empty() {
        entry("set", set.into_iter().map(with_default).collect::<Vec<_>>().join(", "));
    }
    if whole && !rest.is_empty() {
        let pair = |(name, value): (&String, &ParamValue)| format!("{name}={value}");
        entry("defaults", rest.into_iter().map(pair).collect::<Vec<_>>().join(", "));
    }
    for (needs, metrics) in left_out(document).into_iter().filter(|_| whole) {
        entry("left out", format!("{}: needs {needs}", metrics.join(", ")));
    }
    for (key, text) in made(document) {
        entry(key, text);
    }
    lines.push(String::new());
    lines
}

/// Names the machine.
fn machine(document: &Document) -> String {
    match document.on {
        Target::Sim => match &document.profile_hash {
            // Enough digits to distinguish two profiles; the JSON form has all digits.
            Some(hash) => format!(
                "simulated, profile {} ({}{})",
                document.machine(),
                hash.get(..8).unwrap_or(hash),
                document.profile_bases.first().map_or("".into(), |base| format!(", from {base}"))
            ),
            None => format!("simulated, profile {}", document.machine()),
        },
        Target::Threads => "threads of this computer".to_owned(),
        Target::Live => "live kernel".to_owned(),
    }
}

/// Returns the entries that are needed to reproduce the results.
fn made(document: &Document) -> Vec<(&'static str, String)> {
    let mut entries = Vec::new();
    if !document.command.is_empty() {
        let words = document.command.iter().map(|word| quoted(word));
        entries.push(("command", words.collect::<Vec<_>>().join(" ")));
    }
    if let Some(hash) = &document.study_file_hash {
        let what = match document.script {
            Some(_) => "script",
            None if document.is_recording() => "recording",
            None => "study.toml",
        };
        entries.push(("study", format!("{what} {hash}, read when the run began")));
    }
    if let Some(program) = &document.program {
        entries.push(("program", format!("{} {program}", program.name)));
    }
    entries.push(("mmscale", document.build.to_string()));
    entries.push(("results", format!("fingerprint {}", document.fingerprint)));
    entries
}

/// Returns the metrics that no arm has, grouped by what they need.
fn left_out(document: &Document) -> BTreeMap<&str, Vec<&str>> {
    let mut by_need = BTreeMap::<&str, Vec<&str>>::new();
    for (metric, needs) in &document.left_out {
        by_need.entry(needs).or_default().push(metric);
    }
    by_need
}

/// Formats the CPU topology of a machine.
fn groups(cpus: u32, of: &Topology) -> String {
    let nodes = match (of.nodes, cpus % of.node_cpus) {
        (1, 0) => "1 node".to_owned(),
        (1, some) => format!("{some} of the {} CPUs of 1 node", of.node_cpus),
        (nodes, 0) => format!("{nodes} nodes of {} CPUs", of.node_cpus),
        (nodes, some) => {
            format!("{nodes} nodes of {} CPUs, {some} of them in the last", of.node_cpus)
        }
    };
    let caches = match of.cache_cpus {
        all if all == of.node_cpus => "one last-level cache a node".to_owned(),
        some => format!("last-level caches of {some} CPUs"),
    };
    format!("{nodes}, {} a core, {caches}", count(of.core_threads, "thread"))
}

/// Formats what the profile has and the machine has not.
fn of_profile(name: &str, own: &Groups, made: &Topology) -> String {
    let own_node_cpus = own.cpus / own.nodes.max(1);
    let whole = (own.cache_cpus, made.cache_cpus) == (own_node_cpus, made.node_cpus);
    let same_caches = own.cache_cpus == made.cache_cpus || whole;
    let differ = [
        (own.nodes != made.nodes).then(|| count(own.nodes, "node")),
        (own.core_threads != made.core_threads)
            .then(|| format!("{} a core", count(own.core_threads, "thread"))),
        (!same_caches).then(|| format!("last-level caches of {} CPUs", own.cache_cpus)),
    ];
    let differ: Vec<String> = differ.into_iter().flatten().collect();
    let listed = match differ.as_slice() {
        [some @ .., last] if !some.is_empty() => format!("{} and {last}", some.join(", ")),
        all => all.join(""),
    };
    format!("not as {name} itself, which has {listed} (--shape {})", made.shape)
}

fn count(n: u32, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// Formats the policies in force: first those in which arms differ, by arm, then those that all
/// arms share and that are not Linux's own.
fn policies(arms: &[ArmRecord]) -> String {
    let Some(first) = arms.first() else { return String::new() };
    let same =
        |key: &String| arms.iter().all(|arm| arm.policies.get(key) == first.policies.get(key));
    let pairs = |arm: &ArmRecord, wanted: &dyn Fn(&String, &String) -> bool| {
        let all = arm.policies.iter().filter(|(key, value)| wanted(key, value));
        all.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    let mut parts = Vec::new();
    for arm in arms {
        let own = pairs(arm, &|key, _| !same(key));
        if !own.is_empty() {
            parts.push(format!("{}: {own}", arm.arm));
        }
    }
    let all = pairs(first, &|key, value| same(key) && (value != "stock" || arms.len() == 1));
    if !all.is_empty() {
        parts.push(if arms.len() == 1 { all } else { format!("all arms: {all}") });
    }
    if arms.len() > 1 && first.policies.iter().any(|(key, value)| same(key) && value == "stock") {
        parts.push("the rest stock".to_owned());
    }
    parts.join("; ")
}

/// Quotes a word for a shell, cut with a visible mark if it is too wide.
fn quoted(word: &str) -> String {
    let word = &*cut(word, WIDTH - 14);
    let plain = |c: char| c.is_alphanumeric() || "-_.,=/:+@%…".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Formats the seeds: of all arms together, or of each arm if runs failed.
fn seeds(document: &Document) -> String {
    let first: &[u64] = document.arms.first().map_or(&[], |arm| &arm.seeds);
    if document.arms.iter().all(|arm| arm.seeds == first) {
        return match first {
            [] => "none".to_owned(),
            [one] => format!("{one}, one run of each arm: no figure has a spread"),
            some => format!("{}, {} runs of each arm", listed(some), some.len()),
        };
    }
    let of_arm = |arm: &ArmRecord| match arm.seeds.as_slice() {
        [] => format!("{}: none", arm.arm),
        [one] => format!("{}: {one} (1 run)", arm.arm),
        some => format!("{}: {} ({} runs)", arm.arm, listed(some), some.len()),
    };
    document.arms.iter().map(of_arm).collect::<Vec<_>>().join("; ")
}

/// Formats how the number of seeds was chosen, and which changes are known less well than was aimed
/// at; empty if the call stated the number.
fn chosen(document: &Document) -> String {
    let Some(Looks { first, second, margin_percent, unsettled }) = &document.looks else {
        return String::new();
    };
    let Some(Unsettled { arm, metric }) = unsettled.first() else {
        return format!(
            "a first look after {first} seeds settled every headline: changed, or known to \
             \u{b1}{margin_percent} % (--seeds {second} runs all)"
        );
    };
    let more = match unsettled.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let mut text =
        format!("{second} after a first look at {first}, which left {arm}: {metric}{more} open");
    let Some((base, others)) = document.arms.split_first() else { return text };
    let wide = others.iter().flat_map(|arm| {
        let open = |(name, found): (&str, MetricChange)| {
            let pairs = found.change.pairs_for_margin().filter(|_| found.holds == Some(false))?;
            Some((pairs, format!("{}: {name} [{}]", arm.arm, figure::interval(&found))))
        };
        changes(base, arm).into_iter().filter_map(open).collect::<Vec<_>>()
    });
    if let Some((pairs, widest)) = wide.max() {
        text.push_str(&format!(
            "; the interval of {widest} is wider than \u{b1}{margin_percent} %, for which some \
             --seeds {pairs} are needed"
        ));
    }
    text
}

/// Formats consecutive seeds as a range, others as a list.
pub(crate) fn listed(seeds: &[u64]) -> String {
    match seeds {
        [first, .., last] if last.checked_sub(*first) == Some(seeds.len() as u64 - 1) => {
            format!("{first} to {last}")
        }
        _ => seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
#[test]
fn seeds_are_a_range_only_in_order() {
    assert_eq!(listed(&[3, 4, 5]), "3 to 5");
    assert_eq!(listed(&[5, 4, 3]), "5 4 3");
    assert_eq!(listed(&[u64::MAX, 0]), "18446744073709551615 0");
}

/// Number of failure reasons to show; the JSON form has all.
const REASONS: usize = 3;

/// Formats the runs without a result, with the reasons.
fn failed(document: &Document) -> String {
    let failures = &document.failures;
    let done: usize = document.arms.iter().map(|arm| arm.seeds.len()).sum();
    let shown = |failure: &FailureRecord| {
        let FailureRecord { arm, seed, why } = failure;
        format!("{arm}, seed {seed}: {why}")
    };
    let mut parts: Vec<String> = failures.iter().take(REASONS).map(shown).collect();
    if failures.len() > REASONS {
        parts.push(format!("{} more", failures.len() - REASONS));
    }
    let (some, all) = (failures.len(), failures.len() + done);
    format!("{some} of {all} runs, which no figure includes. {}", parts.join("; "))
}
