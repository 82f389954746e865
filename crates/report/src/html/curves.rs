//! Scaling curves: headlines against the number of CPUs, with the intervals of their means.

use std::collections::BTreeSet;

use maud::{Markup, html};
use mmscale_document::{Document, Metric};

use super::picture::{Picture, colour, legend};
use super::scale::Scale;
use crate::number::scaled;

/// The size of the picture in its own units, and the room for its axes.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 48.0;
const BELOW: f64 = 30.0;

/// A point of a curve: CPUs, mean, interval.
type Point = (f64, f64, Option<[f64; 2]>);

/// Returns a picture for each headline of documents that differ in their number of CPUs, unless it
/// is 0 everywhere; none if there is only one number.
pub(super) fn pictures(documents: &[&Document]) -> Vec<Picture> {
    let counts: BTreeSet<u32> = documents.iter().map(|document| document.cpus).collect();
    let Some(first) = documents.first().filter(|_| counts.len() > 1) else { return vec![] };
    let Some(arm) = first.arms.first() else { return vec![] };
    let headlines = arm.metrics.iter().filter(|(_, metric)| metric.headline);
    let zero = |name: &String| {
        let arms = documents.iter().flat_map(|document| &document.arms);
        arms.filter_map(|arm| arm.metrics.get(name)).all(|metric| metric.mean == 0.0)
    };
    let shown = headlines.filter(|(name, _)| !zero(name));
    shown.map(|(name, metric)| picture(name, metric, documents)).collect()
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

fn picture(name: &str, metric: &Metric, documents: &[&Document]) -> Picture {
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
    let ideal_too = if ideal.is_some() { "; dashes: in proportion to CPUs" } else { "" };
    Picture {
        title: format!("{name} by CPUs"),
        how: format!(
            "Each line is an arm, its band the 95 % interval of the mean over seeds{ideal_too}."
        ),
        wide: false,
        body: html! { (legend(&arms)) (drawn(&curves, ideal, &metric.unit)) },
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
        svg.plot viewBox=(format!("0 -6 {WIDTH} {}", HEIGHT + 6.0)) role="img" {
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
