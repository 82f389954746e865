//! Scaling curves: headlines against the number of CPUs, with the intervals of their means.

use std::collections::BTreeSet;

use maud::{Markup, PreEscaped, html};
use mmscale_document::{Document, Metric};

use super::STYLE;
use super::picture::{Picture, colour, legend};
use super::scale::Scale;
use crate::number::scaled;
use crate::words;

/// The size of the picture in its own units, and the room for its axes.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 48.0;
const BELOW: f64 = 30.0;

/// The room above a picture for its title and the names of arms, and between two pictures.
const ABOVE: f64 = 44.0;
const GAP: f64 = 48.0;
/// Number of pictures next to each other.
const COLUMNS: usize = 2;
/// The distance of two names of arms in a legend.
const LEGEND: f64 = 90.0;

/// A point of a curve: CPUs, mean, interval.
type Point = (f64, f64, Option<[f64; 2]>);

/// Returns a picture for each headline of documents that differ in their number of CPUs, unless it
/// is 0 everywhere; none if there is only one number.
pub(super) fn pictures(documents: &[&Document]) -> Vec<Picture> {
    curves(documents).iter().map(Curves::picture).collect()
}

/// The curves of a headline, one for each arm.
struct Curves<'a> {
    name: &'a str,
    unit: &'a str,
    arms: Vec<&'a str>,
    curves: Vec<Vec<Point>>,
    /// The ends of the line in proportion to CPUs, where the headline is a rate.
    ideal: Option<[(f64, f64); 2]>,
    /// Whether intervals are those of a first look.
    first_look: bool,
}

/// Returns the curves of each headline; see [`pictures`].
fn curves<'a>(documents: &[&'a Document]) -> Vec<Curves<'a>> {
    let counts: BTreeSet<u32> = documents.iter().map(|document| document.cpus).collect();
    let Some(first) = documents.first().filter(|_| counts.len() > 1) else { return vec![] };
    let Some(arm) = first.arms.first() else { return vec![] };
    let is_zero = |name: &String| {
        let arms = documents.iter().flat_map(|document| &document.arms);
        arms.filter_map(|arm| arm.metrics.get(name)).all(|metric| metric.mean == 0.0)
    };

    arm.metrics
        .iter()
        .filter(|(name, metric)| metric.headline && !is_zero(name))
        .map(|(name, metric)| Curves::of(name, metric, documents))
        .collect()
}

/// Formats the curves of documents as an SVG file; `None` if there are none.
pub(super) fn file(documents: &[&Document]) -> Option<String> {
    let all = curves(documents);
    let columns = all.len().min(COLUMNS) as f64;
    let rows = all.len().div_ceil(COLUMNS) as f64;
    let (width, height) = (columns * (WIDTH + GAP), rows * (ABOVE + HEIGHT + GAP / 2.0));
    let at = |index: usize| {
        let (column, row) = ((index % COLUMNS) as f64, (index / COLUMNS) as f64);
        let x = column * (WIDTH + GAP) + GAP / 2.0;
        format!("translate({x} {})", row * (ABOVE + HEIGHT + GAP / 2.0))
    };

    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) {
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" fill="var(--paper)" {}
            @for (index, curves) in all.iter().enumerate() {
                g.plot transform=(at(index)) {
                    text y="16" font-weight="600" { (curves.title()) }
                    @for (arm, name) in curves.arms.iter().enumerate() {
                        g transform=(format!("translate({} 28)", arm as f64 * LEGEND)) {
                            circle class=(colour(arm)) cx="5" cy="0" r="4.5" {}
                            text x="14" y="4" { (name) }
                        }
                    }
                    g transform=(format!("translate(0 {ABOVE})")) { (curves.drawn()) }
                }
            }
        }
    };
    (!all.is_empty()).then(|| svg.into_string() + "\n")
}

/// Returns the names of all arms, in the order of their first document.
fn arms<'a>(documents: &[&'a Document]) -> Vec<&'a str> {
    let mut names: Vec<&str> = vec![];
    for arm in documents.iter().flat_map(|document| &document.arms) {
        if !names.contains(&arm.arm.as_str()) {
            names.push(&arm.arm);
        }
    }
    names
}

impl<'a> Curves<'a> {
    fn of(name: &'a str, metric: &'a Metric, documents: &[&'a Document]) -> Self {
        let arms = arms(documents);
        let curve = |wanted: &&str| -> Vec<Point> {
            let point = |document: &&Document| {
                let arm = document.arms.iter().find(|arm| arm.arm == *wanted)?;
                let metric = arm.metrics.get(name)?;
                let point = (f64::from(document.cpus), metric.mean, metric.ci95);
                metric.mean.is_finite().then_some(point)
            };
            let mut points: Vec<Point> = documents.iter().filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let curves: Vec<Vec<Point>> = arms.iter().map(curve).collect();
        let ideal = ideal(&curves, name.ends_with("_per_s"));
        let mut all = documents.iter().flat_map(|document| &document.arms);
        let first_look = all.any(|arm| arm.first_look);
        Self { name, unit: &metric.unit, arms, curves, ideal, first_look }
    }

    fn title(&self) -> String {
        format!("{} by CPUs", self.name)
    }

    fn picture(&self) -> Picture {
        let ideal_too = if self.ideal.is_some() { "; dashes: in proportion to CPUs" } else { "" };
        let plot = html! {
            svg.plot viewBox=(format!("0 -6 {WIDTH} {}", HEIGHT + 6.0)) role="img" {
                (self.drawn())
            }
        };
        Picture {
            title: self.title(),
            how: format!(
                "Each line is an arm, its band the {} over seeds{ideal_too}.",
                words::mean_interval(self.first_look)
            ),
            wide: false,
            body: html! { (legend(&self.arms)) (plot) },
        }
    }

    /// Draws axes, bands and lines.
    fn drawn(&self) -> Markup {
        drawn(&self.curves, self.ideal, self.unit)
    }
}

/// Returns the two ends of the line that begins at the first point and grows as CPUs do.
fn ideal(curves: &[Vec<Point>], wanted: bool) -> Option<[(f64, f64); 2]> {
    let first = curves.first()?;
    let (&(from, value, _), &(to, ..)) = (first.first()?, first.last()?);
    (wanted && value > 0.0 && to > from).then(|| [(from, value), (to, value * to / from)])
}

fn drawn(curves: &[Vec<Point>], ideal: Option<[(f64, f64); 2]>, unit: &str) -> Markup {
    let points = || curves.iter().flatten();
    let xs = Scale::over(points().map(|point| point.0), true);
    let ends = points().flat_map(|point| point.2.unwrap_or([point.1; 2]).into_iter());
    let ys = Scale::over(ends.chain(ideal.iter().flatten().map(|end| end.1)), true);
    let x = |cpus: f64| LEFT + xs.at(cpus) * (WIDTH - LEFT);
    let y = |value: f64| (1.0 - ys.at(value)) * (HEIGHT - BELOW);
    let path = |points: &[(f64, f64)]| {
        points
            .iter()
            .map(|&(a, b)| format!("{:.1},{:.1}", x(a), y(b)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let middle = |curve: &[Point]| path(&curve.iter().map(|p| (p.0, p.1)).collect::<Vec<_>>());
    let band = |curve: &[Point]| {
        let end = |at: usize| curve.iter().filter_map(move |p| Some((p.0, p.2?[at])));
        path(&end(0).chain(end(1).collect::<Vec<_>>().into_iter().rev()).collect::<Vec<_>>())
    };
    let mut counts: Vec<f64> = points().map(|point| point.0).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    let labelled = spaced(&counts, x);
    html! {
        @for tick in ys.ticks() {
            line.grid x1=(LEFT) x2=(WIDTH) y1=(y(tick)) y2=(y(tick)) {}
            text x=(LEFT - 4.0) y=(y(tick) + 4.0) text-anchor="end" { (scaled(tick, unit)) }
        }
        @for &cpus in &labelled {
            text x=(x(cpus)) y=(HEIGHT - BELOW + 14.0) text-anchor="middle" { (cpus) }
        }
        text x=(WIDTH) y=(HEIGHT - 2.0) text-anchor="end" { "CPUs" }
        @if let Some(ends) = ideal { polyline.ideal points=(path(&ends)) {} }
        @for (at, curve) in curves.iter().enumerate() {
            polygon.band.(colour(at)) points=(band(curve)) {}
            polyline.curve.(colour(at)) points=(middle(curve)) {}
            @for point in curve {
                circle class=(colour(at)) cx=(x(point.0)) cy=(y(point.1)) r="3.5" {
                    title { (point.0) " CPUs: " (scaled(point.1, unit)) }
                }
            }
        }
    }
}

/// Returns those numbers of CPUs whose labels do not overlap.
fn spaced(counts: &[f64], x: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut kept: Vec<f64> = vec![];
    for &count in counts {
        if kept.last().is_none_or(|&last| x(count) - x(last) > 30.0) {
            kept.push(count);
        }
    }
    kept
}
