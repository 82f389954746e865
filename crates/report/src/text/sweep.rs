//! A sweep: the points of several documents of one study in one table, the lock that limits each,
//! and a plot.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_document::{ArmRecord, Document, ENOUGH_ROUNDS};
use mmscale_stats::FIRST_LOOK;

use super::answer::{halves_differ, short_window};
use super::plot::{Curve, plot};
use super::{WIDTH, columns, cut, joined, wrap};
use crate::changes::{MetricChange, changes};
use crate::figure;
use crate::limits::{Limit, limits};
use crate::number::percent;
use crate::words;

/// Columns of a mean, of a change, and of what limits an arm.
const MEAN: usize = 10;
const CHANGE: usize = 9;
const LIMIT: usize = 17;
/// Maximum columns of the name of a point.
const POINT: usize = 24;
/// The parameter whose sweeps are plotted.
const CPUS: &str = "cpus";
/// The machine, in a sweep over several.
const PROFILE: &str = "profile";

/// A document of a sweep, with its values of the swept parameters.
struct Point<'a> {
    name: String,
    document: &'a Document,
}

/// Formats sweeps, with lines of at most [`WIDTH`] columns: for each study of which there are
/// several documents of one machine, a table of each headline, the lock that limits each point, and
/// a plot against the number of CPUs. Empty if no study has several documents.
pub fn sweep_text(documents: &[Document]) -> String {
    let mut studies = BTreeMap::<(&str, &str), Vec<&Document>>::new();
    for document in documents {
        studies.entry((&document.study, document.on.name())).or_default().push(document);
    }
    let mut lines = vec![];
    for points in studies.into_values().filter(|points| points.len() > 1) {
        lines.extend(of_study(&points));
    }
    joined(lines)
}

fn of_study(documents: &[&Document]) -> Vec<String> {
    let keys = swept(documents);
    let names = keys.join(", ");
    let points: Vec<Point<'_>> =
        documents.iter().map(|document| Point { name: name(document, &keys), document }).collect();
    let width = points.iter().map(|point| columns(&point.name)).chain([columns(&names)]).max();
    let width = width.unwrap_or(0).min(POINT);
    let mut lines = vec![];
    let headlines = headlines(documents);
    for headline in &headlines {
        let what = format!("{}: {headline} by {names}", documents[0].study);
        lines.extend(wrap(&what, "", "  "));
        lines.extend(table(headline, &points, &names, width));
        lines.push(String::new());
    }
    lines.extend(marks(documents));
    let limits = limit_table(&points, &names, width);
    if !limits.is_empty() {
        lines.extend(limits);
        lines.push(String::new());
    }
    lines.extend(short_windows(&points, &names));
    lines.extend(errors(&points, &names));
    if let ([CPUS], Some(headline)) = (&keys[..], headlines.first()) {
        lines.extend(against_cpus(headline, documents));
        lines.push(String::new());
    }
    lines
}

/// Explains the marks of changes, and names the points with too few seeds for any. Empty without
/// changes.
fn marks(documents: &[&Document]) -> Vec<String> {
    let Some(marks) = legend(documents) else { return vec![] };
    let mut lines = wrap(&marks, "", "  ");
    lines.push(String::new());
    lines
}

/// Returns the meaning of the marks in tables of documents, and the points with too few seeds for
/// any conclusion. `None` without changes.
pub(super) fn legend(documents: &[&Document]) -> Option<String> {
    let (mut compared, mut first_look) = (0, false);
    let mut few = vec![];
    for document in documents.iter().filter(|document| document.arms.len() > 1) {
        let all = document.arms[1..].iter().map(|arm| changes(&document.arms[0], arm));
        let tests = |all: &BTreeMap<&str, MetricChange>| {
            all.values().filter(|found| found.holds.is_some()).count()
        };
        let pairs = |all: &BTreeMap<&str, MetricChange>| {
            all.values().map(|found| found.change.pairs).max().unwrap_or(0)
        };
        let all: Vec<_> = all.collect();
        let tests = all.iter().map(tests).max().unwrap_or(0);
        let pairs = all.iter().map(pairs).max().unwrap_or(0);
        compared += 1;
        let looked = all.iter().any(|all| all.values().any(|found| found.first_look));
        let too_few = words::too_few(pairs, tests).filter(|_| !looked);
        first_look |= looked;
        few.extend(too_few.map(|why| (why, point(document, documents))));
    }
    let mut marks = format!(
        "{} (95 % interval over pairs of seeds, headlines of an arm tested together); {}.",
        words::STAR,
        words::TILDE
    );
    if first_look {
        marks.push_str(&format!(" With {FIRST_LOOK} seeds {}.", words::first_look()));
    }
    let why = few.first().map(|(why, _)| why.clone());
    match (compared, few.len(), why) {
        (0, ..) => None,
        (_, _, None) => Some(marks),
        (all, some, Some(why)) if all == some => Some(format!("{why}.")),
        (_, _, Some(why)) => {
            let names: Vec<String> = few.into_iter().map(|(_, name)| name).collect();
            Some(format!("{marks} {why} at {}.", names.join("; ")))
        }
    }
}

/// Names the points whose window covers only parts of the rounds of the programs' loops.
fn short_windows(points: &[Point<'_>], keys: &str) -> Vec<String> {
    let short = points.iter().filter(|point| short_window(point.document).is_some());
    let names: Vec<&str> = short.map(|point| point.name.as_str()).collect();
    if names.is_empty() {
        return vec![];
    }
    let text = format!(
        "The window is short at {keys} {}: the slowest program begins fewer than {ENOUGH_ROUNDS} \
         rounds of its loop in it, so the figures depend on the part of a round that it covers. \
         Make it longer (--set duration_ms), or rounds shorter.",
        names.join("; ")
    );
    let mut lines = wrap(&text, "", "  ");
    lines.push(String::new());
    lines
}

/// Formats the error of recordings at each point. Empty if the programs are no recordings.
fn errors(points: &[Point<'_>], keys: &str) -> Vec<String> {
    let of_arm = |arm: &str| {
        let of = |point: &Point<'_>| {
            let error = halves_differ(self::arm(point.document, arm)?)?;
            Some(format!("{error} at {keys} {}", point.name))
        };
        let errors: Vec<String> = points.iter().filter_map(of).collect();
        (!errors.is_empty()).then(|| format!("{arm}: {}.", words::halves(&errors.join(", "))))
    };
    let errors: Vec<String> = arms(points).into_iter().filter_map(of_arm).collect();
    let mut lines: Vec<String> = errors.iter().flat_map(|text| wrap(text, "", "  ")).collect();
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

/// Returns the parameters that differ between documents; CPUs first.
pub(super) fn swept<'a>(documents: &[&'a Document]) -> Vec<&'a str> {
    let mut values = BTreeMap::<&str, BTreeSet<String>>::new();
    for document in documents {
        for (key, value) in &document.params {
            values.entry(key).or_default().insert(value.to_string());
        }
        values.entry(CPUS).or_default().insert(document.cpus.to_string());
        values.entry("hz").or_default().insert(document.hz.to_string());
        values.entry(PROFILE).or_default().insert(document.profile.clone());
    }
    let mut keys: Vec<&str> =
        values.into_iter().filter(|(_, values)| values.len() > 1).map(|(key, _)| key).collect();
    keys.sort_by_key(|&key| (key != CPUS, key));
    keys
}

/// Returns a document's values of swept parameters.
pub(super) fn name(document: &Document, keys: &[&str]) -> String {
    let value = |key: &&str| match *key {
        CPUS => document.cpus.to_string(),
        "hz" => document.hz.to_string(),
        PROFILE => document.profile.clone(),
        key => document.params.get(key).map_or("-".to_owned(), ToString::to_string),
    };
    keys.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// Returns the name of a document among others: its study, and its values of the parameters that
/// are swept in that study.
pub(crate) fn point(document: &Document, all: &[&Document]) -> String {
    let same_study: Vec<&Document> =
        all.iter().copied().filter(|other| other.study == document.study).collect();
    format!("{} {}", document.study, name(document, &swept(&same_study))).trim().to_owned()
}

/// Returns the headlines that some document has, without those that are 0 everywhere.
fn headlines<'a>(documents: &[&'a Document]) -> Vec<&'a str> {
    let arms = documents.iter().flat_map(|document| &document.arms);
    let metrics = arms
        .flat_map(|arm| &arm.metrics)
        .filter(|(_, metric)| metric.headline && metric.mean != 0.0);
    let names: BTreeSet<&str> = metrics.map(|(name, _)| name.as_str()).collect();
    // Rates first: they are what a curve shows.
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| (!name.ends_with("_per_s"), *name));
    names
}

/// Returns the names of all arms, in the order of the documents.
fn arms<'a>(points: &[Point<'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = vec![];
    for arm in points.iter().flat_map(|point| &point.document.arms) {
        if !names.contains(&arm.arm.as_str()) {
            names.push(&arm.arm);
        }
    }
    names
}

fn arm<'a>(document: &'a Document, name: &str) -> Option<&'a ArmRecord> {
    document.arms.iter().find(|arm| arm.arm == name)
}

/// Returns one headline of all arms, points as rows. The changes are against the first arm.
fn table(headline: &str, points: &[Point<'_>], names: &str, width: usize) -> Vec<String> {
    let all = arms(points);
    let Some((base, others)) = all.split_first() else { return vec![] };
    let fit = ((WIDTH - width - MEAN) / (MEAN + CHANGE)).max(1);
    let groups: Vec<&[&str]> =
        if others.is_empty() { vec![&[]] } else { others.chunks(fit).collect() };
    let mut lines = vec![];
    for group in groups {
        let mut head = format!("{:<width$}{:>MEAN$}", cut(names, width), cut(base, MEAN - 1));
        for other in group {
            head.push_str(&format!("{:>MEAN$}{:>CHANGE$}", cut(other, MEAN - 1), "change"));
        }
        lines.push(head);
        for point in points {
            let first = arm(point.document, base);
            let metric = first.and_then(|arm| arm.metrics.get(headline));
            let mut row =
                format!("{:>width$}{:>MEAN$}", cut(&point.name, width), figure::mean(metric));
            for other in group {
                let other = arm(point.document, other);
                let metric = other.and_then(|arm| arm.metrics.get(headline));
                let found = first.zip(other).map(|(first, other)| changes(first, other));
                let found = found.as_ref().and_then(|found| found.get(headline));
                let change = format!("{}{}", figure::change(found), figure::star(found));
                // A long change keeps its distance from the mean.
                let (mean, width) = (figure::mean(metric), CHANGE - 1);
                row.push_str(&format!("{mean:>MEAN$} {change:>width$}"));
            }
            lines.push(row);
        }
    }
    lines
}

/// Returns the lock that limits each arm at each point. Empty if no lock limits any.
fn limit_table(points: &[Point<'_>], names: &str, width: usize) -> Vec<String> {
    let limit = |point: &Point<'_>, name: &str| -> Option<String> {
        let limits = limits(arm(point.document, name)?)?;
        let first = limits.into_iter().next().filter(Limit::is_limiting)?;
        Some(format!("{} {}", first.class, percent(100.0 * first.wait_share)))
    };
    let all = arms(points);
    let any = points.iter().any(|point| all.iter().any(|name| limit(point, name).is_some()));
    if !any {
        return vec![];
    }
    let mut lines = wrap(
        "the lock with the longest waits, with their share of the time of CPUs (spin lock) or of \
         running and waiting tasks (mutex, rwsem)",
        "",
        "  ",
    );
    for group in all.chunks(((WIDTH - width) / LIMIT).max(1)) {
        let heads: String =
            group.iter().map(|arm| format!("{:>LIMIT$}", cut(arm, LIMIT - 1))).collect();
        lines.push(format!("{:<width$}{heads}", cut(names, width)));
        for point in points {
            let cells: String = group
                .iter()
                .map(|name| format!("{:>LIMIT$}", limit(point, name).unwrap_or("-".to_owned())))
                .collect();
            lines.push(format!("{:>width$}{cells}", cut(&point.name, width)));
        }
    }
    lines.extend(first_limits(points, &all));
    lines
}

/// Returns, for each arm, the first point of a sweep over CPUs from which on one lock limits.
fn first_limits(points: &[Point<'_>], arms: &[&str]) -> Vec<String> {
    let mut by_cpus: Vec<&Point<'_>> = points.iter().collect();
    by_cpus.sort_by_key(|point| point.document.cpus);
    let of_arm = |name: &&str| {
        let limited = |point: &&&Point<'_>| {
            let limits = arm(point.document, name).and_then(limits);
            limits.is_some_and(|limits| limits.iter().any(Limit::is_limiting))
        };
        let first = by_cpus.iter().find(limited)?;
        let limits = limits(arm(first.document, name)?)?;
        Some(format!("{name}: {}, first with {} CPUs", limits.first()?.class, first.document.cpus))
    };
    let parts: Vec<String> = arms.iter().filter_map(of_arm).collect();
    let curve = points.iter().map(|point| point.document.cpus).collect::<BTreeSet<_>>().len() > 1;
    if parts.is_empty() || !curve { vec![] } else { wrap(&parts.join("; "), "first limit: ", "  ") }
}

/// Returns a plot of a headline against the number of CPUs.
fn against_cpus(headline: &str, documents: &[&Document]) -> Vec<String> {
    let points: Vec<Point<'_>> =
        documents.iter().map(|document| Point { name: String::new(), document }).collect();
    let curves: Vec<Curve> = arms(&points)
        .into_iter()
        .map(|name| {
            let at = |document: &&Document| {
                let metric = arm(document, name)?.metrics.get(headline)?;
                Some((f64::from(document.cpus), metric.mean))
            };
            Curve { name: name.to_owned(), points: documents.iter().filter_map(at).collect() }
        })
        .collect();
    let ideal = headline.ends_with("_per_s");
    plot(headline, CPUS, &curves, ideal)
}
