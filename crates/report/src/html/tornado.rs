//! Tornado: how far each number of a machine profile moves a conclusion.

use maud::{Markup, html};
use mmscale_document::{Claim, MovedNumber, Robustness};

use super::picture::{Picture, axis, strip};
use super::scale::{Scale, percent};
use crate::number::change;
use crate::words;

/// Maximum number of numbers to show of a conclusion.
const SHOWN: usize = 8;
/// Pixels of a row.
const ROW: u32 = 14;

/// Returns a picture for each conclusion.
pub(super) fn pictures(robust: &Robustness) -> Vec<Picture> {
    robust.claims.iter().map(|claim| picture(robust, claim)).collect()
}

fn picture(robust: &Robustness, claim: &Claim) -> Picture {
    let moved: Vec<&MovedNumber> = claim.moved.iter().take(SHOWN).collect();
    let ends = moved.iter().flat_map(|number| number.percent);
    let drawn = claim.drawn_percent.iter().copied();
    let scale = Scale::over(ends.chain(drawn).chain([0.0, claim.percent]), false);
    let count = claim.drawn_percent.len();
    let agreeing = claim.drawn_percent.iter().filter(|&&percent| claim.agrees(percent)).count();
    let holds = words::holds_over_costs(agreeing, count);
    let drawn = html! { b { "all costs drawn" } ": " (holds) };
    let body = html! {
        @for number in &moved {
            @let [low, high] = number.percent.map(change);
            @let label = html! {
                b { (number.name) } " " (low) " to " (high) "; " (number.basis)
            };
            (strip(&label, ROW, &bar(number, claim, &scale)))
        }
        (strip(&drawn, ROW, &dots(claim, &scale)))
        (axis(&scale, "%"))
    };
    Picture {
        title: format!(
            "{} against {}: {} {} depends on",
            claim.arm,
            robust.base,
            claim.metric,
            change(claim.percent)
        ),
        how: "A bar is the change with one number of the machine at the low and the high end of \
              its range, a dot a machine with all of them drawn; a bar or dot across the dashed \
              zero reverses the conclusion."
            .to_owned(),
        wide: false,
        body,
    }
}

/// Marks no change and the change on the profile's machine.
fn marks(claim: &Claim, scale: &Scale) -> Markup {
    let (zero, own) = (scale.percent(0.0), scale.percent(claim.percent));
    html! {
        line.zero x1=(zero) x2=(zero) y1="0" y2="100%" {}
        line.own x1=(own) x2=(own) y1="0" y2="100%" {}
    }
}

fn bar(number: &MovedNumber, claim: &Claim, scale: &Scale) -> Markup {
    let [low, high] = number.percent.map(|percent| scale.at(percent));
    let (from, width) = (low.min(high), (low - high).abs().max(0.002));
    html! {
        rect.moved x=(percent(from)) y="2" width=(percent(width)) height=(ROW - 4) {}
        (marks(claim, scale))
    }
}

fn dots(claim: &Claim, scale: &Scale) -> Markup {
    html! {
        (marks(claim, scale))
        @for &drawn in &claim.drawn_percent {
            circle.drawn cx=(scale.percent(drawn)) cy=(ROW / 2) r="3" { title { (change(drawn)) } }
        }
    }
}
