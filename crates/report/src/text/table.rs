//! The table of metrics: arms as columns. The other arms are compared with the first.
//!
//! The form is that of comparisons on the kernel's mailing lists: mean, standard deviation in
//! percent, change in percent. Absolute numbers come first. A metric's name is in the line of its
//! numbers if there is room, otherwise in a line of its own. Metrics that are 0 in all runs are
//! only named.

use mmscale_document::{ArmRecord, Document, Metric};

use super::{Notes, WIDTH, columns, cut, wrap};
use crate::figure;
use crate::number::digits;

/// Columns of a mean, of a mean with its deviation, and of both with a change.
const MEAN: usize = 9;
const BASE: usize = MEAN + 7;
const OTHER: usize = BASE + 9;

/// Maximum number of arms next to the first in one table.
const OTHERS: usize = 2;

/// Returns the table of metrics, or several tables if there are too many arms for one.
pub(super) fn metrics(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    let Some((base, others)) = document.arms.split_first() else { return vec![] };
    let measured = |name: &str| {
        let mut metrics = document.arms.iter().map(|arm| arm.metrics.get(name));
        metrics.any(|metric| metric.is_none_or(|m| m.values.iter().flatten().any(|v| !v.is_zero())))
    };
    let (names, zero): (Vec<&str>, Vec<&str>) =
        ordered(document, &notes.order).into_iter().partition(|name| measured(name));
    let mut lines = vec![];
    let groups: Vec<&[ArmRecord]> =
        if others.is_empty() { vec![&[]] } else { others.chunks(OTHERS).collect() };
    for group in &groups {
        lines.extend(head(base, group));
        for name in &names {
            lines.extend(row(name, base, group));
        }
        lines.push(String::new());
    }
    if !zero.is_empty() {
        lines.extend(wrap(&zero.join(", "), "0 in every run of every arm: ", "  "));
        lines.push(String::new());
    }
    let mut legend = vec!["mean over seeds, ± its sample standard deviation in percent"];
    let change = format!("change against {}; ~ where the 95 % intervals of both means", base.arm);
    if !others.is_empty() {
        legend.extend([change.as_str(), "overlap, so that it may be noise"]);
    }
    lines.extend(legend.into_iter().map(str::to_owned));
    lines
}

/// Returns the names of all metrics of all arms: those that the study orders, then the others by
/// name.
fn ordered<'a>(document: &'a Document, order: &[&'a str]) -> Vec<&'a str> {
    let mut all: Vec<&str> =
        document.arms.iter().flat_map(|arm| arm.metrics.keys()).map(String::as_str).collect();
    let place = |name: &str| order.iter().position(|o| *o == name).unwrap_or(order.len());
    all.sort_by(|a, b| (place(a), a).cmp(&(place(b), b)));
    all.dedup();
    all
}

fn head(base: &ArmRecord, group: &[ArmRecord]) -> Vec<String> {
    let mut names = format!("{:>BASE$}", cut(&base.arm, BASE - 1));
    let mut kinds = format!("{:>MEAN$} {:>6}", "mean", "±");
    for arm in group {
        names.push_str(&format!("{:>OTHER$}", cut(&arm.arm, OTHER - 1)));
        kinds.push_str(&format!("{:>MEAN$} {:>6}{:>9}", "mean", "±", "change"));
    }
    [names, kinds].map(|cells| format!("{cells:>WIDTH$}")).into()
}

fn row(name: &str, base: &ArmRecord, group: &[ArmRecord]) -> Vec<String> {
    let first = base.metrics.get(name);
    let mut cells = mean_cell(first);
    for arm in group {
        let metric = arm.metrics.get(name);
        cells.push_str(&mean_cell(metric));
        cells.push_str(&format!("{:>9}", figure::change(first, metric)));
    }
    beside(name, &cells)
}

/// Puts a name and cells at the right edge on one line, or on two if they do not fit.
pub(super) fn beside(name: &str, cells: &str) -> Vec<String> {
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
    format!("{:>MEAN$} {spread:>6}", figure::mean(metric))
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
