//! A robustness analysis as text: each conclusion, the numbers that it depends on, and whether it
//! holds on other machines.

use mmscale_document::{Claim, MovedNumber, Robustness};

use super::{WIDTH, cut, joined, wrap};
use crate::number::{change, digits};

/// Maximum number of numbers to show of each conclusion.
const SHOWN: usize = 8;
/// Number of numbers to name in a paragraph.
const IN_SHORT: usize = 3;
/// Columns of a bar.
const BAR: usize = 17;
/// Share of the drawn machines on which a conclusion must hold to be called robust.
const ROBUST: f64 = 0.95;

/// Formats a robustness analysis, with lines of at most [`WIDTH`] columns.
pub fn robust_text(robust: &Robustness) -> String {
    let mut lines = head(robust);
    for claim in &robust.claims {
        lines.push(String::new());
        lines.extend(of_claim(robust, claim));
    }
    lines.push(String::new());
    lines.extend(summary(robust));
    joined(lines)
}

fn head(robust: &Robustness) -> Vec<String> {
    let hash = robust.profile_hash.get(..8).unwrap_or(&robust.profile_hash);
    let title = format!(
        "{}: what the conclusions depend on, on {} CPUs of {} ({hash}), number of seeds: {}",
        robust.study,
        robust.cpus,
        robust.profile,
        robust.seeds.len()
    );
    let mut lines = wrap(&title, "", "  ");
    let effect = robust.numbers as usize - robust.without_effect.len();
    let numbers = format!(
        "{} numbers of the profile have a range, and {effect} of them change a result.",
        robust.numbers
    );
    lines.extend(wrap(&numbers, "", ""));
    let params = robust.params.iter().map(|(name, value)| format!("{name}={value}"));
    lines.extend(wrap(&params.collect::<Vec<_>>().join(", "), "with ", "  "));
    if !robust.failures.is_empty() {
        let failed = format!(
            "{} machines gave no result, such as: {}",
            robust.failures.len(),
            robust.failures[0]
        );
        lines.extend(wrap(&failed, "", "  "));
    }
    lines
}

fn of_claim(robust: &Robustness, claim: &Claim) -> Vec<String> {
    let title = format!(
        "{} against {}: {} {}",
        claim.arm,
        robust.base,
        claim.metric,
        change(claim.percent)
    );
    let mut lines = wrap(&title, "", "  ");
    if !is_change(claim) {
        lines.push("  no change, and so no sign to keep.".to_owned());
        return lines;
    }
    lines.extend(wrap(&on_drawn(claim), "  ", "  "));
    lines.extend(wrap(&reversed(claim), "  ", "  "));
    if claim.moved.is_empty() {
        return lines;
    }
    lines.push(format!("  {:<22}{:>9} {:>9}  {:<9}", "number", "at low", "at high", "source"));
    lines.extend(claim.moved.iter().take(SHOWN).map(|number| row(claim, number)));
    if claim.moved.len() > SHOWN {
        let rest = &claim.moved[SHOWN..];
        lines.push(format!(
            "  and {} more, each below {} points",
            rest.len(),
            digits(rest[0].span().max(0.1).round())
        ));
    }
    lines
}

/// Formats a conclusion in one paragraph: where it holds, the numbers that reverse it, and those
/// that move it most.
pub(super) fn in_short(claim: &Claim) -> String {
    if !is_change(claim) {
        return format!("{}: {} does not change.", claim.arm, claim.metric);
    }
    let most: Vec<String> = claim
        .moved
        .iter()
        .take(IN_SHORT)
        .map(|number| {
            let [low, high] = number.percent.map(change);
            format!("{} ({low} to {high}; {})", number.name, number.basis)
        })
        .collect();
    let most = if most.is_empty() { "no number".to_owned() } else { most.join(", ") };
    format!(
        "{}: {} {} {} {} It depends most on {most}.",
        claim.arm,
        claim.metric,
        change(claim.percent),
        on_drawn(claim),
        reversed(claim)
    )
}

/// Formats an analysis in a few lines: for each arm, on how many of the drawn machines its
/// headlines have their sign, and the numbers that move them most.
pub fn robust_brief(robust: &Robustness) -> String {
    let mut arms: Vec<&str> = robust.claims.iter().map(|claim| claim.arm.as_str()).collect();
    arms.dedup();
    let of_arm = |arm: &&str| {
        let claims: Vec<&Claim> =
            robust.claims.iter().filter(|claim| claim.arm == *arm && is_change(claim)).collect();
        if claims.is_empty() {
            return format!("{arm}: no headline changes");
        }
        let counts = claims.iter().map(|claim| {
            let all = claim.drawn_percent.len();
            let holds = claim.holds_share().unwrap_or(0.0) * all as f64;
            format!("{} on {holds:.0} of {all}", claim.metric)
        });
        let mut most: Vec<&str> =
            claims.iter().filter_map(|claim| Some(claim.moved.first()?.name.as_str())).collect();
        most.sort_unstable();
        most.dedup();
        let counts = counts.collect::<Vec<_>>().join(", ");
        let most = match most.is_empty() {
            true => "no cost changes it".to_owned(),
            false => format!("depends most on {}", most.join(", ")),
        };
        format!("{arm}: {counts}; {most}")
    };
    let arms = arms.iter().map(of_arm).collect::<Vec<_>>().join("; ");
    format!("sign on drawn machines: {arms}")
}

/// Returns whether there is a change on the profile's machine, which has a sign to keep.
fn is_change(claim: &Claim) -> bool {
    claim.percent != 0.0
}

/// Formats the single numbers that reverse a conclusion.
fn reversed(claim: &Claim) -> String {
    let flips: Vec<String> = claim
        .reversed_by()
        .map(|(number, end)| format!("{} = {}", number.name, digits(end)))
        .collect();
    match &flips[..] {
        [] => "No single number reverses it.".to_owned(),
        some => format!("A single number reverses it: {}.", some.join(", ")),
    }
}

/// Formats where a conclusion holds among the drawn machines.
fn on_drawn(claim: &Claim) -> String {
    let Some(share) = claim.holds_share() else {
        return "no machine was drawn.".to_owned();
    };
    let drawn = claim.drawn_percent.len();
    let at = |share: f64| claim.drawn_quantile(share).map_or(String::new(), change);
    let holds = (share * drawn as f64).round();
    format!(
        "has this sign on {holds} of {drawn} machines with all costs drawn from their ranges; \
         there it is {} to {} (5th and 95th of 100), {} in the middle.",
        at(0.05),
        at(0.95),
        at(0.5)
    )
}

/// Formats the effect of a number, with a bar from one end to the other. The longest bar is that of
/// the first number.
fn row(claim: &Claim, number: &MovedNumber) -> String {
    let all = claim.moved.iter().take(SHOWN).flat_map(|number| number.percent);
    let (least, most) = all.fold((claim.percent, claim.percent), |(least, most), percent| {
        (least.min(percent), most.max(percent))
    });
    let width = (most - least).max(f64::MIN_POSITIVE);
    let column = |percent: f64| ((percent - least) / width * (BAR - 1) as f64).round() as usize;
    let [low, high] = number.percent;
    let mut bar = vec![' '; BAR];
    let (from, to) = (column(low.min(high)), column(low.max(high)));
    bar[from..=to].fill('-');
    bar[column(claim.percent)] = '|';
    let bar: String = bar.into_iter().collect();
    let row = format!(
        "  {:<22}{:>9} {:>9}  {:<9} {bar}",
        cut(&number.name, 21),
        change(low),
        change(high),
        number.basis
    );
    cut(&row, WIDTH)
}

fn summary(robust: &Robustness) -> Vec<String> {
    let drawn: Vec<&Claim> = robust
        .claims
        .iter()
        .filter(|claim| is_change(claim) && claim.holds_share().is_some())
        .collect();
    if drawn.is_empty() {
        return vec![];
    }
    let holds = drawn.iter().filter(|claim| claim.holds_share() >= Some(ROBUST)).count();
    let text = format!(
        "{holds} of {} conclusions hold on at least {:.0} % of the drawn machines.",
        drawn.len(),
        100.0 * ROBUST
    );
    wrap(&text, "", "")
}
