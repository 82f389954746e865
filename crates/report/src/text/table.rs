//! The table of metrics: a row for each arm, compared with the first arm.
//!
//! The headlines come first: the changes that the study tests. The form is that of comparisons on
//! the kernel's mailing lists: mean, standard deviation in percent, change in percent, to which the
//! interval of the change over pairs of seeds is added. Absolute numbers come first. Metrics that
//! are 0 in all runs are only named.

use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, Average, Document, Metric};

use super::only::is_shown;
use super::{Extent, Notes, WIDTH, columns, cut, wrap};
use crate::changes::{MetricChange, changes};
use crate::figure;
use crate::number::digits;
use crate::words;

/// Columns of a mean and its deviation.
const MEAN: usize = 9;
const SPREAD: usize = 7;
/// Columns of a change, its interval, and its mark.
const CHANGE: usize = 9;
const INTERVAL: usize = 16;
const MARK: usize = 8;

/// The changes of one arm against the first.
type Changes<'a> = BTreeMap<&'a str, MetricChange>;

/// Returns the table of metrics. A brief one has the headlines, or the metrics that the call names;
/// all if there are none of either.
pub(super) fn metrics(document: &Document, notes: &Notes<'_>, extent: Extent) -> Vec<String> {
    let Some((base, others)) = document.arms.split_first() else { return vec![] };
    let measured = |name: &str| {
        let mut metrics = document.arms.iter().map(|arm| arm.metrics.get(name));
        metrics.any(|metric| metric.is_none_or(|m| m.values.iter().flatten().any(|v| !v.is_zero())))
    };
    let (names, zero): (Vec<&str>, Vec<&str>) = ordered(document, &notes.order)
        .into_iter()
        .filter(|name| is_shown(&notes.only, name))
        .partition(|name| measured(name));
    let others: Vec<(&ArmRecord, Changes<'_>)> =
        others.iter().map(|arm| (arm, changes(base, arm))).collect();
    let headline = |name: &&str| {
        let mut metrics = document.arms.iter().filter_map(|arm| arm.metrics.get(*name));
        metrics.any(|metric| metric.headline)
    };
    let (tested, mut rest): (Vec<&str>, Vec<&str>) = names.into_iter().partition(headline);
    let brief = extent == Extent::Brief && notes.only.is_empty() && !tested.is_empty();
    if brief {
        rest.clear();
    }
    let mut lines = vec![head(!others.is_empty())];
    let parts = if others.is_empty() || tested.is_empty() {
        vec![("", [tested, rest].concat())]
    } else {
        vec![("headlines", tested), ("exploratory", rest)]
    };
    for (title, names) in parts.into_iter().filter(|(_, names)| !names.is_empty()) {
        lines.extend((!title.is_empty()).then(|| title.to_owned()));
        lines.extend(names.iter().flat_map(|name| rows(name, base, &others)));
        lines.push(String::new());
    }
    if !zero.is_empty() && !brief {
        lines.extend(wrap(&zero.join(", "), "0 in every run of every arm: ", "  "));
        lines.push(String::new());
    }
    lines.extend(legend(base, &others));
    lines
}

/// Returns a table of these metrics, of all arms.
pub(super) fn of_metrics(document: &Document, names: &[&str]) -> Vec<String> {
    let Some((base, others)) = document.arms.split_first() else { return vec![] };
    let others: Vec<(&ArmRecord, Changes<'_>)> =
        others.iter().map(|arm| (arm, changes(base, arm))).collect();
    let rows = names.iter().flat_map(|name| rows(name, base, &others));
    [head(!others.is_empty())].into_iter().chain(rows).collect()
}

/// Returns the lines that explain the tables of a document.
pub(super) fn explanation(document: &Document) -> Vec<String> {
    let Some((base, others)) = document.arms.split_first() else { return vec![] };
    let others: Vec<(&ArmRecord, Changes<'_>)> =
        others.iter().map(|arm| (arm, changes(base, arm))).collect();
    legend(base, &others)
}

/// Returns the lines that explain the table.
fn legend(base: &ArmRecord, others: &[(&ArmRecord, Changes<'_>)]) -> Vec<String> {
    let rate = base.metrics.values().any(|m| m.average == Average::Harmonic);
    let harmonic = if rate { " (of rates, the harmonic mean)" } else { "" };
    let mut lines = wrap(
        &format!("mean over seeds{harmonic}, ± its sample standard deviation in percent"),
        "",
        "  ",
    );
    if others.is_empty() {
        return lines;
    }
    let all = || others.iter().flat_map(|(_, changes)| changes.values());
    let pairs = all().map(|found| found.change.pairs).max().unwrap_or(0);
    let tests = others.iter().map(|(_, changes)| tested(changes)).max().unwrap_or(0);
    let mut text = format!(
        "change against {}: Hodges-Lehmann estimate over {pairs} pairs of equal seeds, and its 95 \
         % interval;",
        base.arm
    );
    let first_look = all().any(|found| found.first_look);
    let few = words::too_few(pairs, tests).filter(|_| !first_look);
    text.push_str(&match few {
        Some(few) => format!(" {few}"),
        None if tests > 0 => format!(" {}", words::tested_together(first_look)),
        None => " nothing is tested, because the study has no headlines".to_owned(),
    });
    if first_look {
        text.push_str(&format!("; {}", words::first_look()));
    }
    lines.extend(wrap(&text, "", "  "));
    lines
}

/// Returns the number of headlines.
fn tested(changes: &Changes<'_>) -> usize {
    changes.values().filter(|found| found.holds.is_some()).count()
}

/// Returns the names of all metrics of all arms: those that the study orders, then the others by
/// name.
pub(crate) fn ordered<'a>(document: &'a Document, order: &[&'a str]) -> Vec<&'a str> {
    let mut all: Vec<&str> =
        document.arms.iter().flat_map(|arm| arm.metrics.keys()).map(String::as_str).collect();
    let place = |name: &str| order.iter().position(|o| *o == name).unwrap_or(order.len());
    all.sort_by(|a, b| (place(a), a).cmp(&(place(b), b)));
    all.dedup();
    all
}

fn head(several: bool) -> String {
    let means = format!("{:>MEAN$}{:>SPREAD$}", "mean", "±");
    let changes = format!("{:>CHANGE$}{:>INTERVAL$}{:MARK$}", "change", "95 % interval", "");
    let cells = if several { means + &changes } else { means };
    format!("{cells:>WIDTH$}")
}

/// Returns the rows of a metric. The first arm is in the line of the name if there is room.
fn rows(name: &str, base: &ArmRecord, others: &[(&ArmRecord, Changes<'_>)]) -> Vec<String> {
    let room = if others.is_empty() { 0 } else { CHANGE + INTERVAL + MARK };
    let first = mean_cell(base.metrics.get(name)) + &" ".repeat(room);
    let mut lines = if columns(name) + columns(&first) <= WIDTH || others.is_empty() {
        beside(name, &first)
    } else {
        [vec![name.to_owned()], arm_row(&base.arm, &first)].concat()
    };
    for (arm, changes) in others {
        let found = changes.get(name);
        let cells = mean_cell(arm.metrics.get(name)) + &change_cell(found);
        let full = base.seeds.len().max(arm.seeds.len());
        let few = found.map(|found| found.change.pairs).filter(|&pairs| pairs < full);
        let pairs = few.map_or(String::new(), |pairs| format!(" ({pairs} pairs)"));
        lines.extend(arm_row(&format!("{}{pairs}", arm.arm), &cells));
    }
    lines
}

fn arm_row(arm: &str, cells: &str) -> Vec<String> {
    beside(&cut(&format!("  {arm}"), WIDTH.saturating_sub(columns(cells))), cells)
}

/// Puts a name and cells at the right edge on one line, or on two if they do not fit.
pub(crate) fn beside(name: &str, cells: &str) -> Vec<String> {
    if columns(name) + columns(cells) <= WIDTH {
        let room = WIDTH - columns(name);
        vec![format!("{name}{cells:>room$}")]
    } else {
        vec![name.to_owned(), format!("{cells:>WIDTH$}")]
    }
}

fn mean_cell(metric: Option<&Metric>) -> String {
    let spread = figure::spread(metric);
    let spread = spread.map_or(String::new(), |sd| format!("±{sd:>5}"));
    format!("{:>MEAN$}{spread:>SPREAD$}", figure::mean(metric))
}

fn change_cell(found: Option<&MetricChange>) -> String {
    let estimate = found.map_or("-".to_owned(), figure::estimate);
    let interval = found.map_or(String::new(), figure::interval);
    let verdict = found.and_then(MetricChange::verdict).map_or("", |verdict| verdict.name());
    // Without a better direction, the interval says all.
    let word = if verdict == "changed" { "" } else { verdict };
    let mark = format!(" {word}{}", figure::star(found));
    format!("{estimate:>CHANGE$}{interval:>INTERVAL$}{mark:<MARK$}")
}

/// Returns the lines on the cost of the run on the host, arm by arm.
pub(super) fn host(document: &Document) -> Vec<String> {
    let mut names: Vec<&String> =
        document.arms.iter().flat_map(|arm| arm.host_metrics.keys()).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return vec![];
    }
    let mut lines = vec![String::new(), "what the run cost the host".to_owned()];
    for name in names {
        let figure = |arm: &ArmRecord| {
            let figure = arm.host_metrics.get(name);
            format!("{} {}", arm.arm, figure.map_or("-".to_owned(), |&x| digits(x)))
        };
        let figures: Vec<String> = document.arms.iter().map(figure).collect();
        lines.extend(wrap(&figures.join(", "), &format!("  {name}: "), "    "));
    }
    lines
}
