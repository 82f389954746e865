//! The text of an explanation.

use std::collections::BTreeMap;

use mmscale_document::{Counterpart, LOCK_CLASSES, counterpart};
use mmscale_harness::{Defaults, Registry, Shape, coverage};
use mmscale_measured::{Basis, CALLS, Item, Likeness, Other, Resemblance, Table};
use mmscale_report::wrap;

use super::figure::{percent, time};
use super::{Case, Recipe, contention, logs, robot, start};

/// Number of paths, gaps and other locks to name.
const NAMED: usize = 3;
/// Minimum share of a lock without a study that is named.
const FELT: f64 = 0.05;
/// Minimum share of a lock of a table that is not counted.
const LEAST: f64 = 0.005;
/// Number of functions of a path to show, innermost first.
const STEPS: usize = 4;

/// Returns the lines of an explanation.
pub(super) fn lines(
    registry: &Registry,
    case: &Case<'_>,
    found: &Resemblance,
    recipe: Option<&Recipe>,
) -> Vec<String> {
    let mut lines = vec![];
    let mut entry = |key: &str, text: String| {
        lines.extend(wrap(&text, &format!("{key:<9} "), "          "));
    };
    if traced(case) {
        let what = "the callers are functions of the tracepoint, as perf before 6.9 and kernels \
                    built with LTO have them: record with --stack-skip 5, or with a newer perf";
        entry("note", what.to_owned());
    }
    match &case.report.robot {
        Some(robot) => robot::lines(robot).into_iter().for_each(|(key, text)| entry(key, text)),
        None => read(case, found).into_iter().for_each(|text| entry("report", text)),
    }
    if let Some(seen) = &case.report.contention {
        contention::lines(seen).into_iter().for_each(|(key, text)| entry(key, text));
    }
    if let Some(text) = flat(case) {
        entry("profile", text);
    }
    for text in logs::orders(case.report) {
        entry("order", text);
    }
    for text in damage(case) {
        entry("damaged", text);
    }
    for note in &case.report.notes {
        entry("note", note.clone());
    }
    for note in case.tables.iter().flat_map(|table| &table.notes) {
        entry("note", note.clone());
    }
    if case.tables.is_empty() {
        case.report.others.iter().for_each(|other| entry("note", other.clone()));
    }
    for other in &found.others {
        entry("another", another(case, other));
    }
    match found.best() {
        Some(best) => {
            let study = registry.find(best.problem.study()).ok();
            let unknown = "a study that this program does not have";
            let summary = study.as_ref().map_or(unknown, |study| study.summary());
            entry("resembles", format!("{}: {summary}", best.problem.study()));
            because(best, found).into_iter().for_each(|text| entry("because", text));
        }
        None => entry("resembles", nothing(found)),
    }
    for other in found.likeness.iter().filter(|other| found.best() != Some(*other)) {
        if other.share >= 0.01 && found.basis != Basis::Names {
            let (study, share) = (other.problem.study(), percent(other.share));
            entry("also", format!("{share} belong to {study}"));
        }
    }
    without_study(found).into_iter().for_each(|text| entry("also", text));
    logs::lines(found).into_iter().for_each(|(key, text)| entry(key, text));
    for (key, text) in covered(case, found) {
        entry(key, text);
    }
    if let Some(recipe) = recipe {
        entry("repeat", command(case, recipe));
        sizes(case, registry, recipe).into_iter().for_each(|text| entry("size", text));
    } else if let Some(text) = start::script(case, found, registry) {
        entry("next", text);
    }
    lines
}

/// Returns whether rows name the tracepoint in place of the function that takes the lock.
fn traced(case: &Case<'_>) -> bool {
    let mut waits = case.tables.iter().flat_map(|table| &table.waits);
    waits.any(|wait| {
        let inner = wait.path.last().map_or("", String::as_str);
        inner.contains("trace_contention_begin") || inner.starts_with("__traceiter_")
    })
}

/// Says which part of the samples waits. `fast` is the part of those at locks that shows no wait.
fn at_locks(all: f64, fast: f64) -> String {
    if fast < LEAST {
        return format!(", {} of the samples wait", percent(all));
    }
    format!(
        ", {} of the samples at locks: {} in functions that take one, without a slow path below, \
         so that they may not wait",
        percent(all),
        percent(all * fast)
    )
}

/// Says what a table or a profile shows that is not counted.
fn another(case: &Case<'_>, other: &Other) -> String {
    let lock = |(lock, share): &(String, f64)| format!("{lock} {}", percent(*share));
    let felt = other.locks.iter().filter(|(_, share)| *share >= LEAST);
    let locks: Vec<String> = felt.take(NAMED).map(lock).collect();
    let what = if case.tables.is_empty() {
        format!("profile, from line {}: {} of the samples wait", other.line, percent(other.of_all))
    } else {
        format!("table, from line {}", other.line)
    };
    let of_locks = if locks.is_empty() { "" } else { ": " };
    format!("{what}{of_locks}{}; it is not counted below", locks.join(", "))
}

/// Where functions that take spin locks wait.
const OLDER: &str = "which wait only in kernels without a slow path of spin locks, as before 4.2";

/// Says what a profile without callers shows.
fn flat(case: &Case<'_>) -> Option<String> {
    let found = case.report.spinning()?;
    let names = found.functions.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(", ");
    if case.report.stacks.iter().any(|stack| stack.weight.is_some()) {
        let waits = Some(found.waits).filter(|waits| *waits >= LEAST)?;
        return Some(format!(
            "rows without callers have {} of the samples in waits for locks ({names}), of which \
             the call paths may show a part",
            percent(waits)
        ));
    }
    let what = match (found.waits, found.takes) {
        (waits, 0.0) => format!("{} of the samples wait for locks ({names})", percent(waits)),
        (0.0, takes) => format!(
            "{} of the samples are in functions that take locks ({names}), {OLDER}",
            percent(takes)
        ),
        (waits, takes) => format!(
            "{} of the samples wait for locks ({names}), and {} are in functions that take one, \
             {OLDER}",
            percent(waits),
            percent(takes)
        ),
    };
    Some(format!(
        "{what}; a profile without callers does not say for which: perf record -g, then perf \
         report --no-children -g caller --stdio"
    ))
}

/// Names locks that are simulated, have a large share, and are in the question of no study.
fn without_study(found: &Resemblance) -> Option<String> {
    if found.best().is_none() || matches!(found.basis, Basis::Paths | Basis::Tasks) {
        return None;
    }
    let mut shares = BTreeMap::<&str, f64>::new();
    for item in found.items.iter().filter(|item| item.problem.is_none()) {
        if matches!(counterpart(&item.class), Counterpart::Class(_)) {
            *shares.entry(&item.class).or_default() += item.weight / found.weight();
        }
    }
    let mut named: Vec<(&str, f64)> =
        shares.into_iter().filter(|(_, share)| *share >= FELT).collect();
    named.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named: Vec<String> =
        named.iter().map(|(class, share)| format!("{} for {class}", percent(*share))).collect();
    (!named.is_empty()).then(|| {
        format!(
            "{}, which no study asks about: write the workload as a script \
             (docs/your-workload.md)",
            named.join(", ")
        )
    })
}

/// Says what was read.
fn read(case: &Case<'_>, found: &Resemblance) -> Vec<String> {
    let mut parts = Vec::new();
    for table in &case.tables {
        let Table { tool, lines: (from, to), caption, waits, .. } = table;
        let caption = if caption.is_empty() { String::new() } else { format!(" ({caption})") };
        let (rows, plural) = (waits.len(), if waits.len() == 1 { "" } else { "s" });
        let sum = match table.wait_total_ns() {
            0 => String::new(),
            ns => format!(", {} of waits", time(ns as f64)),
        };
        let place =
            if from == to { format!("line {from}") } else { format!("lines {from} to {to}") };
        let what = if tool == "summary" {
            let kernels = waits.iter().filter_map(|wait| wait.task.as_deref());
            format!("for {}", kernels.collect::<Vec<_>>().join(", "))
        } else {
            format!("{rows} row{plural}{sum}")
        };
        parts.push(format!("{tool}{caption}, {place}: {what}"));
    }
    let stacks = case.report.stacks.len();
    if stacks > 0 && case.tables.is_empty() {
        let plural = if stacks == 1 { "" } else { "s" };
        let weights = match (found.basis, found.of_all) {
            (Basis::Samples, Some(all)) => {
                let rest = case.report.spinning().filter(|rows| rows.waits >= LEAST);
                let which = if rest.is_some() { " on these paths" } else { "" };
                at_locks(all, found.fast()) + which
            }
            (Basis::Samples, None) => {
                ", with shares of a caller that the text does not have".to_owned()
            }
            (Basis::Counts, Some(all)) => {
                format!(", {} of the counts or times are of waits", percent(all))
            }
            (Basis::Counts, None) => ", with counts or times".to_owned(),
            (Basis::Tasks, _) => match found.items.len() {
                1 => " of a kernel's log, one task waits".to_owned(),
                n => format!(" of a kernel's log, {n} tasks wait"),
            },
            (Basis::Paths, _) => ", without weights".to_owned(),
            _ => String::new(),
        };
        parts.push(format!("{stacks} call path{plural}{weights}, no table of waits"));
        if found.left_out > 0 {
            let n = found.left_out;
            parts.push(format!("{n} call paths to waits have no or other weights: not counted"));
        }
    }
    if parts.is_empty() {
        parts.push(match found.basis {
            _ if !case.report.flat.is_empty() => {
                let n = case.report.flat.len();
                let s = if n == 1 { "" } else { "s" };
                format!("a profile of {n} function{s} without callers, no table of waits")
            }
            _ if !case.report.orders.is_empty() => {
                "warnings of lockdep on the order of locks, no waits".to_owned()
            }
            Basis::Names => "no table and no call path: only what its sentences name".to_owned(),
            _ => "no table, no call path, and no known lock or function".to_owned(),
        });
    }
    parts
}

/// Says where tables end early.
fn damage(case: &Case<'_>) -> Vec<String> {
    let faults = case.tables.iter().filter_map(|table| table.fault.as_ref());
    faults.map(|fault| format!("{fault}; the rows before it are used")).collect()
}

/// Says why the report resembles a problem.
fn because(best: &Likeness, found: &Resemblance) -> Vec<String> {
    let mut reasons = Vec::new();
    let what = weights(found.basis);
    if best.share > 0.0 {
        let own = || found.items.iter().filter(|item| item.problem == Some(best.problem));
        // The sum is over all items, so it is computed once.
        let (all, mut paths) = (found.weight(), BTreeMap::<String, f64>::new());
        for item in own() {
            *paths.entry(shown(item)).or_default() += item.weight / all;
        }
        let mut paths: Vec<(String, f64)> = paths.into_iter().collect();
        paths.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let paths = paths.iter().take(NAMED);
        let paths: Vec<String> = paths
            .map(|(path, share)| match found.basis {
                Basis::Paths | Basis::Tasks => path.clone(),
                _ => format!("{} {path}", percent(*share)),
            })
            .collect();
        let amount = match found.basis {
            Basis::Paths | Basis::Tasks => {
                format!("{} of {}", own().count(), found.items.len())
            }
            _ => format!("{} of the", percent(best.share)),
        };
        reasons.push(format!("{amount} {what} belong to it: {}", paths.join("; ")));
        if own().any(|item| item.by_names) {
            reasons.push(format!(
                "these paths are too short to decide; the text names {}",
                best.names.join(", ")
            ));
        } else if own().all(|item| item.path.len() <= 1) && best.problem.study() == "pcp" {
            reasons.push(
                "these paths are too short to distinguish pcp from vmstat: record stacks (perf \
                 lock contention -v)"
                    .to_owned(),
            );
        }
    } else {
        reasons.push(format!(
            "its sentences name {}; without a table or a call path this is a guess",
            best.names.join(", ")
        ));
    }
    reasons
}

/// Says that the report resembles no known problem.
fn nothing(found: &Resemblance) -> String {
    let what = weights(found.basis);
    let names: usize = found.likeness.iter().map(|likeness| likeness.names.len()).sum();
    match found.basis {
        Basis::Waits | Basis::Samples | Basis::Counts | Basis::Tasks | Basis::Paths => {
            let best = found.likeness.first().map_or(0.0, |likeness| likeness.share);
            if best > 0.0 {
                format!(
                    "none of the five known problems: the nearest has {} of the {what}",
                    percent(best)
                )
            } else {
                format!("none of the five known problems: none of the {what} belong to them")
            }
        }
        Basis::Names if found.is_undecided() => {
            let named = found.likeness.iter().take(2);
            let named: Vec<String> = named
                .map(|one| format!("{} ({})", one.problem.study(), one.names.join(", ")))
                .collect();
            format!(
                "none for certain: its sentences name {}, and without a table or a call path \
                 nothing decides",
                named.join(" and ")
            )
        }
        Basis::Names if names > 0 => {
            "none of the five known problems: a single name in a text is too little".to_owned()
        }
        Basis::Names | Basis::None => "none of the five known problems".to_owned(),
    }
}

const fn weights(basis: Basis) -> &'static str {
    match basis {
        Basis::Waits => "waits",
        Basis::Samples => "samples at locks",
        Basis::Counts => "counted waits",
        Basis::Tasks => "tasks that wait",
        Basis::Paths => "call paths to waits",
        Basis::Names | Basis::None => "names",
    }
}

/// Formats the innermost functions of an item, or the name of its lock.
fn shown(item: &Item) -> String {
    let inner: Vec<&str> = item.path.iter().rev().take(STEPS).map(String::as_str).collect();
    let class = if item.class == CALLS { "wait for other CPUs" } else { &item.class };
    match (&item.lock, inner.is_empty()) {
        (Some(lock), true) => format!("{class} ({lock})"),
        (None, true) => format!("{class}, function unknown"),
        (_, false) => format!("{class} in {}", inner.join(" < ")),
    }
}

/// Says which share of the waits is for locks that are simulated, and names the others.
fn covered(case: &Case<'_>, found: &Resemblance) -> Vec<(&'static str, String)> {
    if found.items.is_empty() {
        return named_only(case, found);
    }
    let all = found.weight();
    let mut simulated = BTreeMap::<&str, f64>::new();
    let mut missing = BTreeMap::<(u8, String), f64>::new();
    for item in &found.items {
        let share = item.weight / all;
        match counterpart(&item.class) {
            Counterpart::Class(_) => *simulated.entry(&item.class).or_default() += share,
            _ if item.class == CALLS => {
                *simulated.entry("waits for other CPUs").or_default() += share;
            }
            Counterpart::Gap(name) => *missing.entry((0, name.to_owned())).or_default() += share,
            Counterpart::Unknown => {
                *missing.entry((1, item.named())).or_default() += share;
            }
        }
    }
    let what = weights(found.basis);
    let sorted = |shares: Vec<(String, f64)>| {
        let mut shares = shares;
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        shares
    };
    let sum: f64 = simulated.values().sum();
    let own =
        sorted(simulated.iter().map(|(class, share)| ((*class).to_owned(), *share)).collect());
    let own: Vec<String> =
        own.iter().take(2 * NAMED).map(|(c, share)| format!("{c} {}", percent(*share))).collect();
    let mut lines = vec![];
    if own.is_empty() {
        lines.push(("covered", format!("none of the {what} are for a lock that is simulated")));
    } else {
        let text = format!("{} of the {what} are simulated: {}", percent(sum), own.join(", "));
        lines.push(("covered", text));
    }
    let missing = sorted(missing.into_iter().map(|((_, name), share)| (name, share)).collect());
    let rest: f64 = missing.iter().skip(2 * NAMED).map(|(_, share)| share).sum();
    for (name, share) in missing.iter().take(2 * NAMED) {
        lines.push(("missing", format!("{} {}", percent(*share), gap(name))));
    }
    if rest > 0.0 {
        let more = missing.len() - 2 * NAMED;
        lines.push(("missing", format!("{} {more} more", percent(rest))));
    }
    lines
}

/// Describes a lock that is not simulated.
fn gap(name: &str) -> String {
    if name.contains("trace_contention_begin") || name.contains("__traceiter_") {
        return format!("{name}: a function of the tracepoint, so the lock is not known");
    }
    if name.contains(" or ") {
        return format!("{name}: the function takes each of them, so the text does not say which");
    }
    match coverage::GAPS.iter().find(|gap| gap.name == name) {
        Some(gap) => format!("{name}: {} ({})", gap.what, gap.file),
        None => format!("{name}: not simulated"),
    }
}

/// Says which of the named locks are simulated.
fn named_only(case: &Case<'_>, found: &Resemblance) -> Vec<(&'static str, String)> {
    let tasks = case.tables.iter().any(|table| !table.waits.is_empty());
    if tasks && found.items.is_empty() {
        let how = match case.report.contention {
            Some(_) => "record call paths (perf record -g)",
            None => "print it by caller (perf lock contention without -t)",
        };
        let what = "the table names no lock and no function: which locks are simulated cannot be";
        return vec![("covered", format!("{what} said; {how}"))];
    }
    let mut lines = vec![];
    let classes = &case.report.prose.classes;
    let (own, gaps): (Vec<&str>, Vec<&str>) = LOCK_CLASSES
        .iter()
        .map(|row| row.class)
        .filter(|class| classes.contains_key(class))
        .partition(|class| matches!(counterpart(class), Counterpart::Class(_)));
    if !own.is_empty() {
        lines.push((
            "covered",
            format!("of the named locks these are simulated: {}", own.join(", ")),
        ));
    }
    for class in gaps {
        if let Counterpart::Gap(name) = counterpart(class) {
            lines.push(("missing", gap(name)));
        }
    }
    lines
}

/// Returns the command that reproduces the problem.
fn command(case: &Case<'_>, recipe: &Recipe) -> String {
    format!("mmscale run {}", options(case, recipe))
}

/// Returns the study and options of the command.
pub(super) fn options(case: &Case<'_>, recipe: &Recipe) -> String {
    let mut words = vec![recipe.study.clone()];
    words.extend(case.cpus.map(|cpus| format!("--cpus {cpus}")));
    if recipe.shape != Shape::Keep {
        words.push(format!("--shape {}", recipe.shape.name()));
    }
    words.push(format!("--arm {}", recipe.arms.join(",")));
    words.extend(recipe.settings.iter().map(|setting| format!("--set {setting}")));
    words.join(" ")
}

/// Says where the size is from, and what may change it.
fn sizes(case: &Case<'_>, registry: &Registry, recipe: &Recipe) -> Vec<String> {
    let prose = &case.report.prose;
    let known = &case.report.sizes;
    let mut lines = vec![];
    let study = registry.find(&recipe.study).ok();
    if case.cpus.is_none() {
        let own = study.as_ref().map_or(String::new(), |study| {
            let Defaults { cpus, profile, .. } = study.defaults();
            format!(": the study has {cpus} ({profile})")
        });
        let named: Vec<String> =
            known.cpus.iter().map(|(n, line)| format!("{n} (line {line})")).collect();
        let named = match named.as_slice() {
            [] => known
                .at_least
                .map_or(String::new(), |(n, line)| format!("; it has at least {n} (line {line})")),
            named => format!("; the text names {}", named.join(", ")),
        };
        lines.push(format!("the number of CPUs is not known{own}; give --cpus{named}"));
    } else if let Some((cpus, line)) = known.cpus.first_key_value()
        && known.cpus.len() == 1
        && case.cpus == Some(*cpus)
        && case.tables.iter().all(|table| table.cpus.is_none())
    {
        lines.push(format!("{cpus} CPUs, from line {line}"));
    }
    if prose.kasan && recipe.study == "vmstat" {
        lines.push(
            "the text names KASAN, with which locks are held longer: --set hold_scale=6".to_owned(),
        );
    }
    if let Some(command) = &prose.stress_ng
        && ["vmstat", "churn"].contains(&recipe.study.as_str())
    {
        lines.push(format!(
            "the text runs `{command}`; on this computer's kernel: mmscale live stress {}",
            recipe.study
        ));
    }
    lines
}
