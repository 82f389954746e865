//! Tornado: how far each number of a machine profile moves a conclusion or a level.

use maud::{Markup, html};
use mmscale_document::{Claim, Level, MovedNumber, Robustness};

use super::picture::{Picture, axis, strip};
use super::scale::{Scale, percent};
use crate::number::{change, scaled};
use crate::words;

/// Maximum number of numbers to show of a conclusion.
const SHOWN: usize = 8;
/// Pixels of a row.
const ROW: u32 = 14;

/// A value that costs move, in percent.
struct Tornado<'a> {
    title: String,
    how: &'static str,
    /// On the profile's machine.
    own: f64,
    moved: &'a [MovedNumber],
    drawn: Vec<f64>,
    /// The verdict of the drawn machines.
    said: String,
}

/// Returns a picture for each conclusion and each level.
pub(super) fn pictures(robust: &Robustness) -> Vec<Picture> {
    let claims = robust.claims.iter().map(|claim| picture(&of_claim(robust, claim)));
    claims.chain(robust.levels.iter().map(|level| picture(&of_level(robust, level)))).collect()
}

fn of_claim<'a>(robust: &Robustness, claim: &'a Claim) -> Tornado<'a> {
    let agreeing = claim.drawn_percent.iter().filter(|&&percent| claim.agrees(percent)).count();
    Tornado {
        title: format!(
            "{} against {}: {} {} depends on",
            claim.arm,
            robust.base,
            claim.metric,
            change(claim.percent)
        ),
        how: "A bar is the change with one number of the machine at the low and the high end of \
              its range, a dot a machine with all of them drawn; a bar or dot across the dashed \
              zero reverses the conclusion.",
        own: claim.percent,
        moved: &claim.moved,
        drawn: claim.drawn_percent.clone(),
        said: words::holds_over_costs(agreeing, claim.drawn_percent.len()),
    }
}

fn of_level<'a>(robust: &Robustness, level: &'a Level) -> Tornado<'a> {
    let Level { metric, unit, mean, .. } = level;
    Tornado {
        title: format!("{}: {metric} {} depends on", robust.base, scaled(*mean, unit)),
        how: "A bar is the level with one number of the machine at the low and the high end of \
              its range, a dot a machine with all of them drawn, as changes against the profile's \
              machine.",
        own: 0.0,
        moved: &level.moved,
        drawn: level.drawn.iter().map(|drawn| 100.0 * (drawn / mean - 1.0)).collect(),
        said: format!("{} machines", level.drawn.len()),
    }
}

fn picture(tornado: &Tornado<'_>) -> Picture {
    let Tornado { title, how, own, moved, drawn, said } = tornado;
    let moved = &moved[..moved.len().min(SHOWN)];
    let ends = moved.iter().flat_map(|number| number.percent);
    let scale = Scale::over(ends.chain(drawn.iter().copied()).chain([0.0, *own]), false);
    let all = html! { b { "all costs drawn" } ": " (said) };
    let body = html! {
        @for number in moved {
            @let [low, high] = number.percent.map(change);
            @let label = html! {
                b { (number.name) } " " (low) " to " (high) "; " (number.basis)
            };
            (strip(&label, ROW, &bar(number, *own, &scale)))
        }
        (strip(&all, ROW, &dots(drawn, *own, &scale)))
        (axis(&scale, "%"))
    };
    Picture { title: title.clone(), how: (*how).to_owned(), wide: false, body }
}

/// Marks no change and the change on the profile's machine.
fn marks(own: f64, scale: &Scale) -> Markup {
    let (zero, own) = (scale.percent(0.0), scale.percent(own));
    html! {
        line.zero x1=(zero) x2=(zero) y1="0" y2="100%" {}
        line.own x1=(own) x2=(own) y1="0" y2="100%" {}
    }
}

fn bar(number: &MovedNumber, own: f64, scale: &Scale) -> Markup {
    let [low, high] = number.percent.map(|percent| scale.at(percent));
    let (from, width) = (low.min(high), (low - high).abs().max(0.002));
    html! {
        rect.moved x=(percent(from)) y="2" width=(percent(width)) height=(ROW - 4) {}
        (marks(own, scale))
    }
}

fn dots(drawn: &[f64], own: f64, scale: &Scale) -> Markup {
    html! {
        (marks(own, scale))
        @for &drawn in drawn {
            circle.drawn cx=(scale.percent(drawn)) cy=(ROW / 2) r="3" { title { (change(drawn)) } }
        }
    }
}
