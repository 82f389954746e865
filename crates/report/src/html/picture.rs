//! Common parts of pictures: a title, a sentence on how to read it, strips with an axis, and the
//! names of arms in their colours.

use maud::{Markup, html};

use super::scale::Scale;
use crate::number::scaled;

/// Number of colours of arms; they repeat after that.
const COLOURS: usize = 6;
/// Minimum distance of two ticks, as a share of the axis.
const LABEL: f64 = 0.15;

/// A picture of a report.
pub(super) struct Picture {
    /// Its subject.
    pub(super) title: String,
    /// How to read it, in one sentence.
    pub(super) how: String,
    /// Whether it takes the whole width of the page.
    pub(super) wide: bool,
    /// The picture itself.
    pub(super) body: Markup,
}

impl Picture {
    /// Formats the picture with its title and sentence.
    pub(super) fn markup(&self) -> Markup {
        html! {
            figure.wide[self.wide] {
                h3 { (breakable(&self.title)) }
                (self.body)
                figcaption { (self.how) }
            }
        }
    }
}

/// Lets a browser break a line after each `_`.
fn breakable(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('_').enumerate() {
            @if at > 0 { "_" wbr; }
            (part)
        }
    }
}

/// Returns the class of an arm's colour.
pub(super) fn colour(arm: usize) -> String {
    format!("a{}", arm % COLOURS)
}

/// Returns a mark in an arm's colour.
pub(super) fn mark(arm: usize) -> Markup {
    html! { svg width="10" height="10" { circle class=(colour(arm)) cx="5" cy="5" r="4.5" {} } }
}

/// Formats the names of arms with their colours.
pub(super) fn legend(arms: &[&str]) -> Markup {
    html! {
        p.legend {
            @for (at, arm) in arms.iter().enumerate() {
                span { (mark(at)) " " (arm) }
            }
        }
    }
}

/// Formats a row of a picture: its name above a strip of the whole width, `height` pixels high.
pub(super) fn strip(name: &Markup, height: u32, content: &Markup) -> Markup {
    html! {
        div.row {
            div.name { (name) }
            svg.strip width="100%" height=(height) { (content) }
        }
    }
}

/// Formats an axis below strips, with ticks in `unit`.
pub(super) fn axis(scale: &Scale, unit: &str) -> Markup {
    let format = |tick: f64| match unit {
        "%" if tick > 0.0 => format!("+{tick}%"),
        "%" => format!("{tick}%"),
        unit => scaled(tick, unit),
    };
    html! {
        svg.axis width="100%" height="18" {
            line x1="0" x2="100%" y1="1" y2="1" {}
            @for tick in spaced(scale) {
                @let anchor = anchor(scale.at(tick));
                line x1=(scale.percent(tick)) x2=(scale.percent(tick)) y1="1" y2="5" {}
                text x=(scale.percent(tick)) y="16" text-anchor=(anchor) { (format(tick)) }
            }
        }
    }
}

/// Returns the ticks whose labels have room, also on a narrow page.
fn spaced(scale: &Scale) -> Vec<f64> {
    let mut kept: Vec<f64> = vec![];
    for tick in scale.ticks() {
        if kept.last().is_none_or(|&last| scale.at(tick) - scale.at(last) > LABEL) {
            kept.push(tick);
        }
    }
    kept
}

/// Returns the side of a label on which its place is, so that it stays within the picture.
fn anchor(share: f64) -> &'static str {
    match share {
        share if share < 0.08 => "start",
        share if share > 0.92 => "end",
        _ => "middle",
    }
}
