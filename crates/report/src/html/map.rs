//! The map of a settlement: sections along two knobs, coloured by the best arms, with the points
//! that were run.

use maud::{Markup, PreEscaped, html};
use mmscale_document::{MapSection, SettledKnob, Settlement};

use super::STYLE;
use super::picture::{Picture, colour};
use crate::text::{name_of, value_of};

/// The size of a section, the room around it, and that of a line of the legend.
const SIDE: f64 = 150.0;
const LEFT: f64 = 62.0;
const BELOW: f64 = 34.0;
const ABOVE: f64 = 20.0;
const LINE: f64 = 16.0;
/// The height of a section along one knob.
const STRIP: f64 = 30.0;

/// Returns the picture of a map.
pub(super) fn picture(map: &Settlement) -> Picture {
    Picture {
        title: format!("Where which arm has the best {}", map.metric),
        how: "A colour is the arms that are as good as the best one, a dot a point that was run, \
              in the colour of what it found; a dot in another colour than the map around it \
              belongs to other values of the knobs above the section, or to an error of the map."
            .to_owned(),
        wide: true,
        body: svg(map),
    }
}

/// Formats the picture as an SVG file.
pub(super) fn file(map: &Settlement) -> String {
    let (width, height) = size(map);
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) {
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" fill="var(--paper)" {}
            g.plot { (drawn(map)) }
        }
    };
    svg.into_string() + "\n"
}

fn svg(map: &Settlement) -> Markup {
    let (width, height) = size(map);
    html! {
        svg.plot.map viewBox=(format!("0 0 {width} {height}")) role="img" { (drawn(map)) }
    }
}

/// Returns the columns of sections: one for each value of the third knob.
fn columns(map: &Settlement) -> usize {
    if map.sections.len() > 1 { 3 } else { 1 }
}

fn section_height(map: &Settlement) -> f64 {
    if map.sections.first().is_some_and(|section| section.rows.len() > 1) { SIDE } else { STRIP }
}

fn size(map: &Settlement) -> (f64, f64) {
    let columns = columns(map);
    let rows = map.sections.len().div_ceil(columns) as f64;
    let legend = LINE * map.regions.len() as f64 + 8.0;
    let width = (columns as f64 * (SIDE + LEFT)).max(2.0 * (SIDE + LEFT)) + 10.0;
    (width, legend + rows * (ABOVE + section_height(map) + BELOW))
}

fn drawn(map: &Settlement) -> Markup {
    let columns = columns(map);
    let top = LINE * map.regions.len() as f64 + 8.0;
    html! {
        @for (at, region) in map.regions.iter().enumerate() {
            @let y = LINE * at as f64;
            rect.(fill(map, at)) x="4" y=(y + 3.0) width="10" height="10" {}
            text x="20" y=(y + 12.0) {
                (name_of(map, &region.best)) " (" (format!("{:.0}", 100.0 * region.share)) " %)"
            }
        }
        @for (at, section) in map.sections.iter().enumerate() {
            @let x = LEFT + (at % columns) as f64 * (SIDE + LEFT);
            @let y = top + ABOVE + (at / columns) as f64 * (ABOVE + section_height(map) + BELOW);
            g transform=(format!("translate({x} {y})")) { (of_section(map, section)) }
        }
    }
}

/// Returns the class of a region's colour; grey where no difference matters.
fn fill(map: &Settlement, region: usize) -> String {
    match map.regions.get(region) {
        Some(region) if region.best.len() == map.arms.len() => "same".to_owned(),
        _ => colour(region),
    }
}

fn of_section(map: &Settlement, section: &MapSection) -> Markup {
    let height = section_height(map);
    let knob = |at: usize| {
        let name = section.along.get(at)?;
        map.knobs.iter().find(|knob| knob.name == *name)
    };
    let others: Vec<String> = section
        .others
        .iter()
        .map(|(name, value)| format!("{name} {}", value_of(map, name, *value)))
        .collect();
    let up = height / section.rows.len() as f64;
    html! {
        text x="0" y="-6" { (others.join(", ")) }
        @for (y, row) in section.rows.iter().enumerate() {
            @let across = SIDE / row.len() as f64;
            @for (from, to, region) in runs(row) {
                rect.cell.(fill(map, region)) x=(coordinate(from as f64 * across))
                    y=(coordinate(height - (y + 1) as f64 * up))
                    width=(coordinate((to - from) as f64 * across)) height=(coordinate(up)) {}
            }
        }
        @for point in section.points.iter().filter_map(|at| map.points.get(*at as usize)) {
            @let place = |knob: Option<&SettledKnob>| {
                knob.map_or(0.5, |knob| share(map, knob, &point.at))
            };
            @let region = map.regions.iter().position(|region| region.best == point.best);
            @if let Some(region) = region {
                circle.run.(fill(map, region)) cx=(coordinate(SIDE * place(knob(0))))
                    cy=(coordinate(height * (1.0 - place(knob(1))))) r="3" {}
            }
        }
        @if let Some(knob) = knob(0) {
            text x="0" y=(height + 13.0) { (value_of(map, &knob.name, knob.range[0])) }
            text x=(SIDE) y=(height + 13.0) text-anchor="end" {
                (value_of(map, &knob.name, knob.range[1]))
            }
            text x=(SIDE / 2.0) y=(height + 25.0) text-anchor="middle" { (knob.name) }
        }
        @if let Some(knob) = knob(1) {
            text x="-4" y=(height) text-anchor="end" { (value_of(map, &knob.name, knob.range[0])) }
            text x="-4" y="10" text-anchor="end" { (value_of(map, &knob.name, knob.range[1])) }
            text x="-4" y=(height / 2.0) text-anchor="end" { (knob.name) }
        }
    }
}

/// Returns the parts of a row with one region each: begin, end, region.
fn runs(row: &[u32]) -> Vec<(usize, usize, usize)> {
    let mut runs: Vec<(usize, usize, usize)> = vec![];
    for (at, region) in row.iter().enumerate() {
        match runs.last_mut() {
            Some((_, to, last)) if *last == *region as usize => *to = at + 1,
            _ => runs.push((at, at + 1, *region as usize)),
        }
    }
    runs
}

/// Returns where a point is on a knob, 0 to 1.
fn share(map: &Settlement, knob: &SettledKnob, values: &[f64]) -> f64 {
    let at = map.knobs.iter().position(|own| own.name == knob.name);
    let value = at.and_then(|at| values.get(at)).copied().unwrap_or(knob.range[0]);
    let [low, high] = knob.range;
    if knob.log { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) }
}

fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}
