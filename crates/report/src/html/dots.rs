//! Dot plots: the values of headlines for each seed, and the mean of each arm with its interval.

use maud::{Markup, html};
use mmscale_document::{Document, Value};

use super::picture::{Picture, axis, colour, mark};
use super::scale::Scale;
use crate::changes::changes;
use crate::figure;
use crate::number::scaled;
use crate::words;

/// Pixels of a row of dots.
const ROW: usize = 26;
/// Maximum number of seeds that are drawn.
const SEEDS: usize = 200;

/// Returns a picture for each headline.
pub(super) fn pictures(document: &Document) -> Vec<Picture> {
    let Some(first) = document.arms.first() else { return vec![] };
    let headlines = first.metrics.iter().filter(|(_, metric)| metric.headline);
    headlines.filter_map(|(name, metric)| picture(document, name, &metric.unit)).collect()
}

/// An arm's values of a metric by seed.
struct Row<'a> {
    arm: &'a str,
    seeds: Vec<(u64, f64)>,
    mean: f64,
    ci95: Option<[f64; 2]>,
    change: String,
}

fn rows<'a>(document: &'a Document, name: &str) -> Vec<Row<'a>> {
    let first = &document.arms[0];
    let row = |(at, arm): (usize, &'a mmscale_document::ArmRecord)| {
        let metric = arm.metrics.get(name)?;
        let values = arm.seeds.iter().zip(&metric.values);
        let values = values.filter_map(|(&seed, value)| Some((seed, value.map(Value::as_f64)?)));
        let found = changes(first, arm);
        let change = found.get(name).filter(|_| at > 0).map(|found| {
            let held = words::held(found.holds);
            let interval = figure::interval(found);
            let interval = if interval.is_empty() { interval } else { format!(" [{interval}]") };
            format!(": {}{interval}{held}", figure::estimate(found))
        });
        Some(Row {
            arm: &arm.arm,
            seeds: values.take(SEEDS).collect(),
            mean: metric.mean,
            ci95: metric.ci95,
            change: change.unwrap_or_default(),
        })
    };
    document.arms.iter().enumerate().filter_map(row).collect()
}

/// Returns the picture of a headline; none if it is 0 in every run.
fn picture(document: &Document, name: &str, unit: &str) -> Option<Picture> {
    let rows = rows(document, name);
    let values = || rows.iter().flat_map(|row| row.seeds.iter().map(|seed| seed.1));
    if values().all(|value| value == 0.0) {
        return None;
    }
    let intervals = rows.iter().flat_map(|row| row.ci95).flatten();
    let scale = Scale::over(values().chain(intervals), true);
    let body = html! {
        p.legend {
            @for (at, row) in rows.iter().enumerate() {
                span {
                    (mark(at)) " " b { (row.arm) } " " (scaled(row.mean, unit)) (row.change)
                }
            }
        }
        svg.strip width="100%" height=(ROW * rows.len()) {
            @for (at, row) in rows.iter().enumerate() {
                (dots(row, at, rows.get(at + 1), &scale, unit))
            }
        }
        (axis(&scale, unit))
    };
    let interval = words::mean_interval(document.arms.iter().any(|arm| arm.first_look));
    Some(Picture {
        title: format!("{name} of each seed"),
        how: format!(
            "A dot is a seed, a row an arm; lines join equal seeds, so lines that lean the same \
             way are a change that all seeds show; the bar is the {interval}."
        ),
        wide: false,
        body,
    })
}

fn dots(row: &Row<'_>, at: usize, next: Option<&Row<'_>>, scale: &Scale, unit: &str) -> Markup {
    let y = at * ROW + ROW / 2;
    let partner = |seed: u64| next?.seeds.iter().find(|other| other.0 == seed);
    html! {
        @for &(seed, value) in &row.seeds {
            @if let Some((_, other)) = partner(seed) {
                line.pair x1=(scale.percent(value)) x2=(scale.percent(*other))
                    y1=(y) y2=(y + ROW) {}
            }
        }
        @if let Some([low, high]) = row.ci95 {
            line.interval.(colour(at)) x1=(scale.percent(low)) x2=(scale.percent(high))
                y1=(y) y2=(y) {}
        }
        @for &(seed, value) in &row.seeds {
            circle.dot.(colour(at)) cx=(scale.percent(value)) cy=(y) r="4.5" {
                title { "seed " (seed) ": " (scaled(value, unit)) }
            }
        }
    }
}
