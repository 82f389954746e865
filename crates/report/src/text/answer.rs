//! The answer: a few lines at the beginning of a result. They name the lock that limits it and the
//! functions that hold that lock, the changes of each arm, the changes for the worse, and the locks
//! of Linux that are not simulated.

use std::collections::BTreeMap;

use mmscale_document::{
    ArmRecord, Document, ENOUGH_ROUNDS, GapRecord, HALVES_METRIC, ROUNDS_METRIC,
};
use mmscale_stats::pairs_needed;

use super::{Notes, wrap};
use crate::changes::{MetricChange, Verdict, changes};
use crate::figure;
use crate::limits::{Limit, Lines, idle_share, limits, line_waits, mostly_idle, stranded};
use crate::number::percent;
use crate::words;

/// Number of changes for the worse to show.
const WORSE: usize = 3;
/// Number of lock classes, and of functions, to name.
const NAMED: usize = 2;
/// Number of arms to answer for; the table has all.
const ARMS: usize = 3;
/// Minimum share of a class's hold time for which a function is named.
const HOLDER: f64 = 0.1;

/// Returns the lines of the answer; none without arms.
pub(super) fn lines(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    if document.arms.is_empty() {
        return vec![];
    }
    let mut lines = vec![];
    for (key, text) in answer(document, notes) {
        lines.extend(wrap(&text, &format!("{key:<9} "), "          "));
    }
    lines.push(String::new());
    lines
}

/// Returns the entries of the answer, each with its name; none without arms.
pub(crate) fn answer(document: &Document, notes: &Notes<'_>) -> Vec<(String, String)> {
    let Some((base, others)) = document.arms.split_first() else { return vec![] };
    let mut entries = vec![];
    let mut entry = |key: &str, text: Option<String>| {
        entries.extend(text.map(|text| (key.to_owned(), text)));
    };
    entry("limit", limited(base));
    entry("idle", stranded_tasks(base));
    for arm in others.iter().take(ARMS) {
        entry(&arm.arm, Some(of_arm(base, arm, notes)));
    }
    entry("worse", worse(base, others));
    entry("window", short_window(document));
    entry("error", halves_differ(base).map(|halves| words::halves(&halves)));
    entry("robust", notes.robust.clone());
    entry("missing", not_simulated(&document.not_simulated));
    entries
}

/// Returns by how much replays of the halves of an arm's recording differ, in percent. `None` if
/// the arm is no recording, or its halves were not replayed.
pub(super) fn halves_differ(arm: &ArmRecord) -> Option<String> {
    Some(percent(100.0 * arm.metrics.get(HALVES_METRIC)?.mean))
}

/// Formats what limits an arm: a lock, or cache lines if these cost more, and that CPUs are idle if
/// most are. `None` if no CPU time is known to compare waits with.
pub(super) fn limited(arm: &ArmRecord) -> Option<String> {
    let limits = limits(arm)?;
    let time = arm.cpu_time?;
    let limiting: Vec<&Limit<'_>> = limits.iter().filter(|limit| limit.is_limiting()).collect();
    let idle = mostly_idle(time);
    let what = match (limiting.first(), line_waits(arm)) {
        (first, Some(lines)) if first.is_none_or(|lock| lock.wait_share < lines.wait_share) => {
            by_lines(&lines)
        }
        (Some(first), _) => by_locks(first, &limiting),
        (None, _) if idle.is_some() => "no lock and no cache line".to_owned(),
        (None, _) => by_nothing(&limits, 1.0 - idle_share(time)),
    };
    let idle =
        idle.map(|share| format!("; CPUs are idle for {} of the time", percent(100.0 * share)));
    Some(format!("{}: {what}{}", arm.arm, idle.unwrap_or_default()))
}

/// Formats that tasks waited for busy CPUs next to idle ones. `None` if few did.
fn stranded_tasks(base: &ArmRecord) -> Option<String> {
    let share = percent(100.0 * stranded(base)?);
    let idle = percent(100.0 * idle_share(base.cpu_time?));
    Some(format!(
        "{}: tasks share CPUs while others are idle: CPUs are idle for {idle} of the time, and \
         {share} of all CPU time is idle time in which a task waited for another CPU. Each task \
         stays on the CPU that it starts on: place tasks with `on`, or start as many as there are \
         CPUs",
        base.arm
    ))
}

/// Formats that no lock and no line limits an arm.
fn by_nothing(limits: &[Limit<'_>], busy: f64) -> String {
    let spun = limits.iter().filter(|limit| !limit.sleeps);
    // A sum of nothing would be -0.
    let waits = spun.fold(0.0, |sum, limit| sum + limit.wait_share);
    let (busy, waits) = (percent(100.0 * busy), percent(100.0 * waits));
    format!("no lock; CPUs are busy for {busy} of the time, and spin for locks for {waits} of that")
}

/// Formats waits for cache lines.
fn by_lines(lines: &Lines<'_>) -> String {
    let share = percent(100.0 * lines.wait_share);
    let of = |before: &str, named: String| {
        if named.is_empty() { named } else { format!("{before}{named}") }
    };
    let (data, functions) = (of(": ", named(&lines.data)), of(", in ", named(&lines.functions)));
    format!("CPU time goes into waiting for cache lines from other CPUs ({share}){data}{functions}")
}

/// Formats the first functions with their shares.
fn named(functions: &[(&str, f64)]) -> String {
    let long = functions.iter().filter(|(_, share)| *share >= HOLDER).take(NAMED);
    let texts: Vec<String> =
        long.map(|(site, share)| format!("{site} {}", percent(100.0 * share))).collect();
    texts.join(", ")
}

/// Formats waits for locks; `first` is the longest of them.
fn by_locks(first: &Limit<'_>, limiting: &[&Limit<'_>]) -> String {
    let classes = |sleeps: bool| -> Vec<String> {
        let named = limiting.iter().take(NAMED).filter(|limit| limit.sleeps == sleeps);
        named
            .map(|limit| format!("{} ({})", limit.class, percent(100.0 * limit.wait_share)))
            .collect()
    };
    let mut waits =
        vec![(first.sleeps, classes(first.sleeps)), (!first.sleeps, classes(!first.sleeps))];
    waits.retain(|(_, classes)| !classes.is_empty());
    let waits: Vec<String> = waits
        .into_iter()
        .map(|(sleeps, classes)| format!("{} {}", waiting(sleeps), classes.join(" and ")))
        .collect();
    let (waits, holders) = (waits.join(", and "), named(&first.holders));
    format!("{waits}; {} is held in {holders}", first.class)
}

/// Says what a wait for a lock costs: CPU time, or the time of a task that sleeps.
const fn waiting(sleeps: bool) -> &'static str {
    if sleeps { "tasks wait, mostly asleep, for" } else { "CPU time goes into waiting for" }
}

/// Warns of a window that covers only parts of the rounds of the programs' loops, and says how long
/// it must be.
pub(crate) fn short_window(document: &Document) -> Option<String> {
    let rounds =
        document.arms.iter().filter_map(|arm| Some((arm, arm.metrics.get(ROUNDS_METRIC)?)));
    let (arm, rounds) = rounds
        .map(|(arm, metric)| (arm, metric.mean))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, rounds)| *rounds < ENOUGH_ROUNDS)?;
    let remedy = document.window_ns.map_or_else(
        || "make it longer".to_owned(),
        |window_ns| {
            let ms = window_ns as f64 / 1e6 * ENOUGH_ROUNDS / rounds.max(0.5);
            format!("give it --set duration_ms={:.0} or more", ms.ceil())
        },
    );
    Some(format!(
        "{}: the slowest program begins {rounds:.1} rounds of its loop in the window, so the \
         figures depend on the part of a round that it covers: {remedy}, or make rounds shorter",
        arm.arm
    ))
}

/// Formats the changes of the headlines in an arm, and what limits it.
fn of_arm(base: &ArmRecord, arm: &ArmRecord, notes: &Notes<'_>) -> String {
    let found = changes(base, arm);
    let tested: Vec<(&str, &MetricChange)> = in_order(&found, notes)
        .filter(|(_, found)| found.holds.is_some() && !found.change.unchanged)
        .collect();
    let pairs = tested.iter().map(|(_, found)| found.change.pairs).max().unwrap_or(0);
    let looked = tested.iter().any(|(_, found)| found.first_look);
    let enough = looked || pairs >= pairs_needed(tested.len());
    let headline = |(name, found): &(&str, &MetricChange)| {
        let verdict = match found.holds {
            Some(false) if enough => format!(", {}", words::NO_CHANGE_SHOWN),
            holds => words::held(holds),
        };
        let interval = figure::interval(found);
        let interval = if interval.is_empty() { interval } else { format!(" [{interval}]") };
        format!("{name} {}{interval}{verdict}", figure::estimate(found))
    };
    let mut parts: Vec<String> = tested.iter().map(headline).collect();
    if parts.is_empty() {
        parts.push("no headline changes".to_owned());
    } else if !enough {
        parts.push(words::exploratory(pairs));
    }
    let limiting = limits(arm).and_then(|limits| {
        let first = limits.into_iter().next().filter(Limit::is_limiting)?;
        Some(format!("waits then for {} ({})", first.class, percent(100.0 * first.wait_share)))
    });
    parts.extend(limiting);
    parts.join("; ")
}

/// Returns changes in the order in which the study shows metrics.
pub(crate) fn in_order<'a>(
    found: &'a BTreeMap<&'a str, MetricChange>,
    notes: &'a Notes<'_>,
) -> impl Iterator<Item = (&'a str, &'a MetricChange)> {
    let listed = notes.order.iter().filter_map(|name| found.get_key_value(*name));
    let others = found.iter().filter(|(name, _)| !notes.order.contains(*name));
    listed.chain(others).map(|(name, found)| (*name, found))
}

/// Formats the largest changes for the worse in any arm. `None` without other arms.
fn worse(base: &ArmRecord, others: &[ArmRecord]) -> Option<String> {
    if others.is_empty() {
        return None;
    }
    let all = worse_in(base, others);
    let (shown, rest) = all.split_at(WORSE.min(all.len()));
    let mut text = shown.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("; ");
    match (shown.is_empty(), rest.len()) {
        (true, _) => text.push_str(nothing_worse(base)),
        (false, 0) => {}
        (false, more) => text.push_str(&format!("; and {more} more")),
    }
    Some(text)
}

/// Says that no metric is worse, or that there are too few seeds to show that one is.
pub(super) fn nothing_worse(base: &ArmRecord) -> &'static str {
    if base.first_look {
        "no metric, as far as a first look shows (--seeds 7 shows more)"
    } else if base.seeds.len() < pairs_needed(1) {
        "too few seeds to show that a metric is worse"
    } else {
        "no metric, as far as these seeds show"
    }
}

/// Returns the changes for the worse of all arms, each with its size, the largest first.
pub(super) fn worse_in(base: &ArmRecord, others: &[ArmRecord]) -> Vec<(f64, String)> {
    let of_arm = |arm: &ArmRecord| -> Vec<(f64, String)> {
        let found = changes(base, arm);
        let worse = found.iter().filter(|(_, found)| found.verdict() == Some(Verdict::Worse));
        worse
            .map(|(name, found)| {
                (found.size(), format!("{}: {name} {}", arm.arm, figure::estimate(found)))
            })
            .collect()
    };
    let mut all: Vec<(f64, String)> = others.iter().flat_map(of_arm).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    all
}

/// Formats the locks and mechanisms of Linux that are not simulated.
pub(super) fn not_simulated(gaps: &[GapRecord]) -> Option<String> {
    let names = |of: &[&str]| -> Vec<&str> {
        let gaps = gaps.iter().filter(|gap| of.contains(&gap.shared_by.as_str()));
        gaps.map(|gap| gap.name.as_str()).collect()
    };
    let locks = names(&["machine", "users", "process"]);
    let work = names(&["work"]);
    let mut parts = Vec::new();
    if !locks.is_empty() {
        parts.push(format!("Linux also takes {}", locks.join(", ")));
    }
    if !work.is_empty() {
        parts.push(format!("nor are there {}", work.join(", ")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}
