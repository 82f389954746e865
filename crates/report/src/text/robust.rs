//! A robustness analysis as text: each conclusion, the numbers that it depends on, and whether it
//! holds on other machines.

use mmscale_document::{Claim, MovedNumber, Robustness};

use super::{WIDTH, cut, joined, wrap};
use crate::number::{change, digits};

/// Maximum number of numbers to show of each conclusion.
const SHOWN: usize = 8;
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
    lines.extend(wrap(&on_drawn(claim), "  ", "  "));
    let flips: Vec<String> = claim
        .moved
        .iter()
        .filter_map(|number| flip(claim, number).map(|value| format!("{} = {value}", number.name)))
        .collect();
    let flips = match &flips[..] {
        [] => "no single number reverses it.".to_owned(),
        some => format!("a single number reverses it: {}.", some.join(", ")),
    };
    lines.extend(wrap(&flips, "  ", "  "));
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

/// Formats where a conclusion holds among the drawn machines.
fn on_drawn(claim: &Claim) -> String {
    let mut sorted = claim.drawn_percent.clone();
    sorted.sort_by(f64::total_cmp);
    let Some(share) = claim.holds_share() else {
        return "no machine was drawn.".to_owned();
    };
    let at = |share: f64| change(sorted[((sorted.len() - 1) as f64 * share).round() as usize]);
    let holds = (share * sorted.len() as f64).round();
    format!(
        "has this sign on {holds} of {} machines with all costs drawn from their ranges; there it \
         is {} to {} (5th and 95th of 100), {} in the middle.",
        sorted.len(),
        at(0.05),
        at(0.95),
        at(0.5)
    )
}

/// Returns the end of a number's range at which the conclusion is reversed.
fn flip(claim: &Claim, number: &MovedNumber) -> Option<String> {
    let ends = number.percent.iter().zip(number.range);
    let mut reversed = ends.filter(|(percent, _)| !claim.agrees(**percent));
    reversed.next().map(|(_, value)| digits(value))
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
    let drawn: Vec<&Claim> =
        robust.claims.iter().filter(|claim| claim.holds_share().is_some()).collect();
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
