//! The block for a cover letter: what reviewers ask of a change, in the order in which it is read.
//!
//! Each section is there in every letter. If its data are missing, it has the call that produces
//! them.

mod elsewhere;
mod trust;

use std::collections::{BTreeMap, BTreeSet};

use mmscale_document::{ArmRecord, Document, LockRecord, Metric, Robustness, Target};

use super::answer::{limited, nothing_worse};
use super::{Extent, Notes, WIDTH, columns, cut, header, joined, table, wrap};
use crate::changes::{MetricChange, Verdict, changes};
use crate::figure;
use crate::limits::{Limit, limits};
use crate::number::scaled;
use crate::words;

/// Number of changes for the worse to show.
const WORSE: usize = 3;
/// Number of lock classes whose waits are shown by function.
const CLASSES: usize = 2;
/// Columns of an arm's waits.
const WAIT: usize = 12;
/// Number of arms whose waits are shown side by side.
const ARMS: usize = 3;
/// Units of memory.
const MEMORY: [&str; 3] = ["pages", "folios", "bytes"];

/// A run, and what a letter about it says in addition.
#[derive(Clone, Debug)]
pub struct Letter<'a> {
    /// The run that the letter is about. Its other arms are compared with the first.
    pub document: &'a Document,
    /// Runs on other machines, and of other workloads, each with the additions of its study.
    pub others: Vec<(&'a Document, Notes<'a>)>,
    /// Robustness analyses of the study.
    pub analyses: Vec<&'a Robustness>,
    /// Facts that the document does not have.
    pub about: About<'a>,
}

/// Facts that are not in documents.
#[derive(Clone, Debug, Default)]
pub struct About<'a> {
    /// Additions of the study.
    pub notes: Notes<'a>,
    /// The address of the report that the study is about.
    pub link: Option<&'a str>,
    /// Descriptions of arms.
    pub arms: BTreeMap<&'a str, &'a str>,
    /// The sources of the profile's numbers.
    pub sources: Option<String>,
    /// Calls for what the given documents lack.
    pub calls: Calls,
}

/// Calls for what the given documents lack; `None` if the document's own call is not known.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Runs the study on smaller machines.
    pub smaller: Option<String>,
    /// Runs the study on a machine with another profile.
    pub profile: Option<String>,
    /// Runs other workloads.
    pub workloads: Option<String>,
    /// Analyses what the conclusions depend on.
    pub robust: Option<String>,
    /// Runs the study with checkers.
    pub check: Option<String>,
}

/// Formats a letter, with lines of at most [`WIDTH`] columns, except for the address of a report.
pub fn letter_text(letter: &Letter<'_>) -> String {
    let document = letter.document;
    let mut lines = problem(letter);
    lines.push(String::new());
    lines.extend(header::lines(document, &letter.about.notes, Extent::Brief));
    lines.pop();
    lines.extend(origin(letter));
    let mut section = |title: &str, body: Vec<String>| {
        lines.push(String::new());
        lines.push(title.to_owned());
        lines.extend(body);
    };
    section("Result", result(document, &letter.about.notes));
    section("Worst cases of each run, and percentiles", tails(document, &letter.about.notes));
    section("Waits: the sides of each lock, and their sum", sides(document));
    section("Memory", memory(document, &letter.about.notes));
    section("What got worse: over all metrics of all runs given here", worse(letter));
    section("Smaller and other machines, other workloads", elsewhere::lines(letter));
    section("Whether it survives other costs", trust::robustness(letter));
    section("Checked", trust::checked(letter));
    section("Not covered", trust::not_covered(document));
    section("Tool", trust::tool(document));
    joined(lines)
}

fn problem(letter: &Letter<'_>) -> Vec<String> {
    let document = letter.document;
    let mut text = format!("{}: {}", document.study, letter.about.notes.summary);
    if let Some(limited) = document.arms.first().and_then(limited) {
        // A script's summary may be no sentence.
        if !text.ends_with(['.', '?', '!']) {
            text.push('.');
        }
        text.push_str(&format!(" With {} CPUs, {limited}.", document.cpus));
    }
    let mut lines = wrap(&text, "Problem: ", "  ");
    match letter.about.link {
        Some(link) => lines.push(format!("Link: {link}")),
        None => lines.extend(wrap("none; add the report of the problem", "Link: ", "  ")),
    }
    lines
}

/// Returns what the numbers rest on: the sources of the profile's numbers, and each arm in words.
fn origin(letter: &Letter<'_>) -> Vec<String> {
    let mut lines = vec![];
    let mut entry = |key: &str, text: &str| {
        lines.extend(wrap(text, &format!("{key:<9} "), "          "));
    };
    if let Some(sources) = &letter.about.sources {
        entry("sources", sources);
    }
    if letter.document.on == Target::Live {
        entry("kernel", &letter.document.host.kernel);
    }
    for arm in &letter.document.arms {
        if let Some(help) = letter.about.arms.get(arm.arm.as_str()) {
            entry(&cut(&arm.arm, 9), help);
        }
    }
    lines
}

/// Returns the names of the metrics of a kind that some run has, and those among them that are 0 in
/// every run.
fn named<'a>(
    document: &'a Document,
    notes: &Notes<'a>,
    kind: impl Fn(&str, &Metric) -> bool,
) -> [Vec<&'a str>; 2] {
    let any = |name: &str, of: &dyn Fn(&Metric) -> bool| {
        document.arms.iter().filter_map(|arm| arm.metrics.get(name)).any(of)
    };
    let all = table::ordered(document, &notes.order).into_iter();
    let all = all.filter(|name| any(name, &|metric| kind(name, metric)));
    let (shown, zero) = all.partition(|name| {
        any(name, &|metric| metric.values.iter().flatten().any(|value| !value.is_zero()))
    });
    [shown, zero]
}

/// Returns the table of the metrics of a kind, and the names of those that are 0 in every run.
fn table_of(
    document: &Document,
    notes: &Notes<'_>,
    kind: impl Fn(&str, &Metric) -> bool,
) -> Vec<String> {
    let [shown, zero] = named(document, notes, kind);
    let mut lines = if shown.is_empty() { vec![] } else { table::of_metrics(document, &shown) };
    if !zero.is_empty() {
        lines.extend(wrap(&zero.join(", "), "0 in every run of every arm: ", "  "));
    }
    lines
}

fn result(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    let mut lines = table_of(document, notes, |_, metric| metric.headline);
    lines.extend(table::explanation(document));
    lines
}

/// Returns whether a name is that of a percentile, as in `wait_p99_ns`.
fn is_percentile(name: &str) -> bool {
    let number = |at: usize| name[at + 2..].starts_with(|c: char| c.is_ascii_digit());
    name.match_indices("_p").any(|(at, _)| number(at))
}

/// Returns whether a metric is the largest time of a run, or a percentile of times.
fn is_tail(name: &str, unit: &str) -> bool {
    unit == "ns" && (name.contains("_max_") || name.ends_with("_max") || is_percentile(name))
}

fn tails(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    let tail = |name: &str, metric: &Metric| is_tail(name, &metric.unit);
    let mut lines = table_of(document, notes, tail);
    if !named(document, notes, tail).concat().into_iter().any(is_percentile) {
        lines.push("no metric of this run is a percentile.".to_owned());
    }
    let wait = |arm: &ArmRecord| {
        let lock = arm.locks.iter().max_by_key(|lock| lock.wait_max_ns)?;
        let place = match lock.wait_max_ns {
            0 => "none".to_owned(),
            ns => format!("{} ({} in {})", scaled(ns as f64, "ns"), lock.class, lock.site),
        };
        Some(format!("{} {place}", arm.arm))
    };
    let waits: Vec<String> = document.arms.iter().filter_map(wait).collect();
    if !waits.is_empty() {
        lines.extend(wrap(&waits.join(", "), "longest wait for any lock in any run: ", "  "));
    }
    lines
}

/// Returns the waits for the locks that limit some arm, by the function that waits, with their sum;
/// for the lock with the longest waits of the first arm that waits, if none limits.
fn sides(document: &Document) -> Vec<String> {
    let mut classes: Vec<&str> = vec![];
    let all: Vec<Limit<'_>> = document.arms.iter().filter_map(limits).flatten().collect();
    let limiting = all.iter().filter(|limit| limit.is_limiting()).map(|limit| limit.class);
    for class in limiting.chain(document.arms.iter().find_map(longest)) {
        if !classes.contains(&class) && classes.len() < CLASSES {
            classes.push(class);
        }
    }
    if classes.is_empty() {
        return wrap("no CPU waited for a lock that is counted.", "", "");
    }
    let mut lines = wrap("total wait of a run, mean over seeds", "", "  ");
    for arms in document.arms.chunks(ARMS) {
        let head: String =
            arms.iter().map(|arm| format!("{:>WAIT$}", cut(&arm.arm, WAIT - 1))).collect();
        lines.extend(table::beside("", &head));
        for class in &classes {
            lines.extend(waits(class, arms));
        }
    }
    lines
}

/// Returns the lock class that an arm waits for longest.
fn longest(arm: &ArmRecord) -> Option<&str> {
    let mut classes = BTreeMap::<&str, u64>::new();
    for lock in &arm.locks {
        *classes.entry(&lock.class).or_default() += lock.wait_total_ns;
    }
    let longest = classes.into_iter().max_by_key(|(_, wait_ns)| *wait_ns);
    longest.filter(|(_, wait_ns)| *wait_ns > 0).map(|(class, _)| class)
}

fn waits(class: &str, arms: &[ArmRecord]) -> Vec<String> {
    let of = |arm: &ArmRecord, site: Option<&str>| -> String {
        let wanted =
            |lock: &&LockRecord| lock.class == class && site.is_none_or(|site| lock.site == site);
        let ns: u64 = arm.locks.iter().filter(wanted).map(|lock| lock.wait_total_ns).sum();
        scaled(ns as f64 / arm.seeds.len().max(1) as f64, "ns")
    };
    let row = |name: &str, site: Option<&str>| {
        let cells: String = arms.iter().map(|arm| format!("{:>WAIT$}", of(arm, site))).collect();
        table::beside(&cut(name, WIDTH.saturating_sub(columns(&cells))), &cells)
    };
    let locks = arms.iter().flat_map(|arm| &arm.locks);
    let waited = locks.filter(|lock| lock.class == class && lock.wait_total_ns > 0);
    let mut sites: Vec<&str> = waited.map(|lock| lock.site.as_str()).collect();
    sites.sort_unstable();
    sites.dedup();
    let mut lines: Vec<String> =
        sites.iter().flat_map(|site| row(&format!("{class} {site}"), Some(site))).collect();
    lines.extend(row(&format!("{class} (sum)"), None));
    lines
}

fn memory(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    let mut lines = table_of(document, notes, |_, metric| MEMORY.contains(&metric.unit.as_str()));
    if lines.is_empty() {
        lines.push("no metric of this run is an amount of memory.".to_owned());
    }
    let rest = "Tables of the policy itself, in bytes per CPU and zone, are not counted here: they \
                depend on the structures of the kernel's own code.";
    lines.extend(wrap(rest, "", "  "));
    lines
}

/// Returns all runs of a letter.
fn documents<'a>(letter: &'a Letter<'_>) -> impl Iterator<Item = &'a Document> {
    [letter.document].into_iter().chain(letter.others.iter().map(|(other, _)| *other))
}

/// A change for the worse, in any document.
struct Worse<'a> {
    document: &'a Document,
    arm: &'a str,
    metric: &'a str,
    found: MetricChange,
}

fn worse(letter: &Letter<'_>) -> Vec<String> {
    let mut all: Vec<Worse<'_>> = vec![];
    for document in documents(letter) {
        let Some((base, others)) = document.arms.split_first() else { continue };
        for arm in others {
            let found = changes(base, arm).into_iter();
            let found = found.filter(|(_, found)| found.verdict() == Some(Verdict::Worse));
            let arm = arm.arm.as_str();
            all.extend(found.map(|(metric, found)| Worse { document, arm, metric, found }));
        }
    }
    all.sort_by(|a, b| b.found.size().total_cmp(&a.found.size()));
    // Of each metric the largest change; other machines often show it as well.
    let mut seen = BTreeSet::new();
    all.retain(|worse| seen.insert((&worse.document.study, worse.arm, worse.metric)));
    let more = all.len().saturating_sub(WORSE);
    all.truncate(WORSE);
    let mut lines: Vec<String> = vec![];
    for Worse { document, arm, metric, found } in all {
        let place = elsewhere::place(document, letter.document);
        let place = if place.is_empty() { place } else { format!("{place}: ") };
        let held = words::held(found.holds);
        let (change, interval) = (figure::estimate(&found), figure::interval(&found));
        let text = format!("{place}{arm}: {metric} {change} [{interval}]{held}");
        lines.extend(wrap(&text, "", "  "));
    }
    let seeds = |document: &&Document| document.arms.first().map(|arm| arm.seeds.len());
    match (lines.is_empty(), more) {
        (true, _) => {
            let fewest = documents(letter).min_by_key(seeds).and_then(|found| found.arms.first());
            lines.push(fewest.map_or("no metric", nothing_worse).to_owned());
        }
        (false, 0) => {}
        (false, more) => lines.push(format!("and {more} more")),
    }
    lines
}
