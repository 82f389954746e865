//! Other machines and other workloads, with the change on each.

use mmscale_document::{ArmRecord, Document, ParamValue};

use super::Letter;
use crate::changes::changes;
use crate::figure;
use crate::text::answer::in_order;
use crate::text::{Notes, columns, table, wrap};
use crate::words;

/// Columns of a mean, and of a change.
const MEAN: usize = 10;
const CHANGE: usize = 10;

/// Returns a row for each arm of each other run, and the calls for runs that are not there.
pub(super) fn lines(letter: &Letter<'_>) -> Vec<String> {
    let document = letter.document;
    let mut lines = vec![];
    for (other, notes) in &letter.others {
        lines.extend(rows(other, notes, document));
    }
    if !lines.is_empty() {
        let cells = format!("{:>MEAN$}{:>MEAN$}{:>CHANGE$} ", "first arm", "this arm", "change");
        lines.splice(0..0, table::beside("", &cells));
        let text =
            format!("{}; {}; the change is that of the first headline", words::STAR, words::TILDE);
        lines.extend(wrap(&text, "", "  "));
    }
    let same_study = |other: &Document| other.study == document.study;
    let mut others = letter.others.iter().map(|(other, _)| *other);
    if document.cpus > 1 && !others.any(|other| same_study(other) && other.cpus < document.cpus) {
        lines.extend(missing("no smaller machine was run", letter.about.calls.smaller.as_deref()));
    }
    if !letter.others.iter().any(|(other, _)| other.profile != document.profile) {
        lines.extend(missing(
            "no other kind of machine was run",
            letter.about.calls.profile.as_deref(),
        ));
    }
    if letter.others.iter().all(|(other, _)| same_study(other)) {
        let call = letter.about.calls.workloads.as_deref();
        lines.extend(missing("no other workload was run", call));
    }
    lines
}

/// Says that something is missing, with the call for it.
pub(super) fn missing(what: &str, call: Option<&str>) -> Vec<String> {
    let text = call.map_or(format!("{what}."), |call| format!("{what}: {call}"));
    wrap(&text, "", "  ")
}

/// Returns the settings of a run that differ from those of `of`; its study if that differs.
pub(super) fn place(document: &Document, of: &Document) -> String {
    let mut parts = vec![];
    let same_study = document.study == of.study;
    if !same_study {
        parts.push(document.study.clone());
    }
    if document.on != of.on {
        parts.push(format!("on {}", document.on));
    }
    if document.profile != of.profile {
        parts.push(document.profile.clone());
    }
    if document.cpus != of.cpus {
        parts.push(match document.cpus {
            1 => "1 CPU".to_owned(),
            n => format!("{n} CPUs"),
        });
    }
    if document.hz != of.hz {
        parts.push(format!("HZ={}", document.hz));
    }
    let differs = |(name, value): &(&String, &ParamValue)| of.params.get(*name) != Some(value);
    let params = document.params.iter().filter(|pair| same_study && differs(pair));
    parts.extend(params.map(|(name, value)| format!("{name}={value}")));
    parts.join(", ")
}

fn rows(document: &Document, notes: &Notes<'_>, of: &Document) -> Vec<String> {
    let Some((base, others)) = document.arms.split_first() else { return vec![] };
    let place = place(document, of);
    others.iter().flat_map(|arm| row(&place, base, arm, notes)).collect()
}

/// Returns the row of an arm: the first headline of the study.
fn row(place: &str, base: &ArmRecord, arm: &ArmRecord, notes: &Notes<'_>) -> Vec<String> {
    let all = changes(base, arm);
    let Some((name, found)) = in_order(&all, notes).find(|(_, found)| found.holds.is_some()) else {
        return wrap("no headline has a value", &format!("{place}, {}: ", arm.arm), "  ");
    };
    let [before, after] = [base, arm].map(|arm| figure::mean(arm.metrics.get(name)));
    let change = figure::change(Some(found));
    let cells =
        format!("{before:>MEAN$}{after:>MEAN$}{change:>CHANGE$}{:1}", figure::star(Some(found)));
    let name = format!("{place}: {} {name}", arm.arm);
    if columns(&name) + columns(&cells) <= crate::WIDTH {
        return table::beside(&name, &cells);
    }
    let mut lines = wrap(&name, "", "  ");
    lines.extend(table::beside("", &cells));
    lines
}
