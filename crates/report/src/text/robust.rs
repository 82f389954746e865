//! A robustness analysis as text: each conclusion, the numbers that it depends on, and whether it
//! holds on other machines.

use mmscale_document::{
    Claim, DrawnLimit, Level, MovedNumber, Robustness, WaitShare, machine_name,
};

use super::{WIDTH, cut, joined, wrap};
use crate::number::{change, digits, percent, scaled};
use crate::words;

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
    for level in &robust.levels {
        lines.push(String::new());
        lines.extend(of_level(robust, level));
    }
    lines.push(String::new());
    lines.extend(summary(robust));
    joined(lines)
}

fn head(robust: &Robustness) -> Vec<String> {
    let hash = robust.profile_hash.get(..8).unwrap_or(&robust.profile_hash);
    let title = format!(
        "{}: what the {} depend on, on {} CPUs of {} ({hash}), number of seeds: {}",
        robust.study,
        words::subject(robust),
        robust.cpus,
        machine_name(&robust.profile, &robust.params),
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
    if let Some(short) = words::short_analysis(robust.rounds_min) {
        lines.extend(wrap(&short, "", "  "));
    }
    if let Some(limits) = limits(robust) {
        lines.extend(wrap(&limits, "", "  "));
    }
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

/// Says which lock or line limits the base arm, with which single cost another one does, and what
/// limits it with all costs drawn. `None` if nothing limits on any machine.
fn limits(robust: &Robustness) -> Option<String> {
    let limit = robust.limit.as_ref();
    let is_any = robust.drawn_limits.iter().any(|limit| limit.class.is_some());
    if limit.is_none() && robust.moved_limits.is_empty() && !is_any {
        return None;
    }
    let own = format!("{} waits for {}", robust.base, waited(limit));
    let moved = moved_limits(robust);
    let single = match moved.is_empty() {
        true => format!("{own}, with each single cost at either end of its range."),
        false => format!("{own}; {moved}."),
    };
    Some(match drawn_limits(robust) {
        Some(drawn) => format!("{single} With all costs drawn, it waits most for {drawn}."),
        None => single,
    })
}

/// Says on how many of the drawn machines each lock or line limits. `None` if none was drawn, or
/// the analysis is of an earlier version.
fn drawn_limits(robust: &Robustness) -> Option<String> {
    let all: u32 = robust.drawn_limits.iter().map(|limit| limit.machines).sum();
    let named = |limit: &DrawnLimit| {
        let class = limit.class.as_deref().unwrap_or("no lock or line");
        format!("{class} on {} of {all} machines", limit.machines)
    };
    let named: Vec<String> = robust.drawn_limits.iter().map(named).collect();
    (!named.is_empty()).then(|| named.join(", for "))
}

/// Names what is waited for.
fn waited(limit: Option<&WaitShare>) -> String {
    limit.map_or("no lock or line".to_owned(), |limit| {
        format!("{} ({} of the time)", limit.class, percent(100.0 * limit.share))
    })
}

/// Names the ends of ranges with which another lock limits; empty without any.
fn moved_limits(robust: &Robustness) -> String {
    let moved = robust.moved_limits.iter().map(|moved| {
        format!(
            "with {} = {} for {}",
            moved.name,
            digits(moved.value),
            waited(moved.limit.as_ref())
        )
    });
    let mut moved: Vec<String> = moved.collect();
    let more = moved.len().saturating_sub(IN_SHORT);
    moved.truncate(IN_SHORT);
    if more > 0 {
        moved.push(format!("and with {more} more ends of ranges for another or none"));
    }
    moved.join(", ")
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
    lines.extend(wrap(&reversed(claim, robust.own_seeds.len()), "  ", "  "));
    lines.extend(numbers(claim.percent, &claim.moved));
    lines
}

/// Formats the level of a metric of an arm that is compared with no other.
fn of_level(robust: &Robustness, level: &Level) -> Vec<String> {
    let Level { metric, unit, mean, .. } = level;
    let title = format!("{}: {metric} {}", robust.base, scaled(*mean, unit));
    let mut lines = wrap(&title, "", "  ");
    let mut text = level_on_drawn(level);
    if let Some([low, high]) = level.ci95 {
        text += &format!(
            " Over {} seeds on the profile's machine: {} to {} (95 % interval).",
            robust.own_seeds.len(),
            scaled(low, unit),
            scaled(high, unit)
        );
    }
    lines.extend(wrap(&text, "  ", "  "));
    lines.extend(numbers(0.0, &level.moved));
    lines
}

/// Formats the level on the drawn machines.
fn level_on_drawn(level: &Level) -> String {
    let at = |share| level.drawn_quantile(share).map(|value| scaled(value, &level.unit));
    match (at(0.05), at(0.95), at(0.5)) {
        (Some(low), Some(high), Some(middle)) => format!(
            "{low} to {high} on {} machines with all costs drawn from their ranges ({}), {middle} \
             in the middle.",
            level.drawn.len(),
            ends(level.drawn.len())
        ),
        _ => "no machine was drawn.".to_owned(),
    }
}

/// Formats the numbers that move a change or a level, which is `own` on the profile's machine.
fn numbers(own: f64, moved: &[MovedNumber]) -> Vec<String> {
    if moved.is_empty() {
        return vec![];
    }
    let mut lines =
        vec![format!("  {:<22}{:>9} {:>9}  {:<9}", "number", "at low", "at high", "source")];
    lines.extend(moved.iter().take(SHOWN).map(|number| row(own, moved, number)));
    if moved.len() > SHOWN {
        let rest = &moved[SHOWN..];
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
pub(super) fn in_short(robust: &Robustness, claim: &Claim) -> String {
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
        reversed(claim, robust.own_seeds.len())
    )
}

/// Formats an analysis in a few lines: for each arm, on how many of the drawn machines its
/// headlines have their sign, and the number that moves the first of them most, with the change at
/// both ends of its range; of an arm alone, the levels of its headlines; the costs with which
/// another lock or line limits the base arm.
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
            if claim.is_noise() {
                return format!("{} {}", claim.metric, words::NO_CHANGE_SHOWN);
            }
            let holds = words::holds_over_costs(agreeing(claim), claim.drawn_percent.len());
            let unless = unless(claim).map_or(String::new(), |unless| format!(" unless {unless}"));
            format!("{} {holds}{unless}", claim.metric)
        });
        let counts = counts.collect::<Vec<_>>().join(", ");
        let shown = claims.iter().find(|claim| !claim.is_noise());
        let most = shown.and_then(|claim| Some((claim, claim.moved.first()?)));
        let most = most.map_or("no cost changes it".to_owned(), |(claim, number)| {
            let [low, high] = number.percent.map(change);
            let [from, to] = number.range.map(digits);
            format!("{} is {low} to {high} with {} {from} to {to}", claim.metric, number.name)
        });
        format!("{arm}: {counts}; {most}")
    };
    let mut parts: Vec<String> = arms.iter().map(of_arm).collect();
    parts.extend(robust.levels.iter().map(|level| {
        let most = level.moved.first().map_or(String::new(), |number| {
            let [low, high] = number.percent.map(change);
            let [from, to] = number.range.map(digits);
            format!(", {low} to {high} with {} {from} to {to}", number.name)
        });
        format!("{} {}{most}", level.metric, level_on_drawn(level).trim_end_matches('.'))
    }));
    if let Some(drawn) = drawn_limits(robust).filter(|_| !robust.levels.is_empty()) {
        parts.push(format!("{} waits most for {drawn}", robust.base));
    }
    let moved = moved_limits(robust);
    if !moved.is_empty() {
        parts.push(format!("{} waits {moved}", robust.base));
    }
    parts.extend(words::short_analysis(robust.rounds_min));
    parts.join("; ")
}

/// Returns the number of drawn machines on which a conclusion has its sign.
fn agreeing(claim: &Claim) -> usize {
    claim.drawn_percent.iter().filter(|&&percent| claim.agrees(percent)).count()
}

/// Returns whether there is a change on the profile's machine, which has a sign to keep.
fn is_change(claim: &Claim) -> bool {
    claim.percent != 0.0
}

/// Formats the single numbers that reverse a conclusion, or that seeds alone do.
fn reversed(claim: &Claim, own_seeds: usize) -> String {
    if let Some([low, high]) = claim.ci95.filter(|_| claim.is_noise()) {
        return format!(
            "Seeds alone reverse it: over {own_seeds} seeds on one machine it is {} to {} (95 % \
             interval), so no cost is called the reason.",
            change(low),
            change(high)
        );
    }
    match unless(claim) {
        None => "No single number reverses it.".to_owned(),
        Some(unless) => format!("It holds unless {unless}."),
    }
}

/// Formats the values of single numbers that reverse a conclusion, between the three values that
/// were simulated on a straight line. `None` if none does.
fn unless(claim: &Claim) -> Option<String> {
    let flips = claim.reversed_by().map(|(number, at, above)| {
        let side = if above { "above" } else { "below" };
        // Two digits: more would say that it was simulated there.
        let unit = 10_f64.powf(at.abs().max(1e-9).log10().floor() - 1.0);
        format!("{} is {side} {}", number.name, digits((at / unit).round() * unit))
    });
    let mut flips: Vec<String> = flips.collect();
    let more = flips.len().saturating_sub(IN_SHORT);
    flips.truncate(IN_SHORT);
    if more > 0 {
        flips.push(format!("one of {more} more numbers is near an end of its range"));
    }
    (!flips.is_empty()).then(|| flips.join(" or "))
}

/// Formats where a conclusion holds among the drawn machines.
fn on_drawn(claim: &Claim) -> String {
    let drawn = claim.drawn_percent.len();
    if drawn == 0 {
        return "no machine was drawn.".to_owned();
    }
    let at = |share: f64| claim.drawn_quantile(share).map_or(String::new(), change);
    format!(
        "{}, with all costs drawn from their ranges; there it is {} to {} ({}), {} in the middle.",
        words::holds_over_costs(agreeing(claim), drawn),
        at(0.05),
        at(0.95),
        ends(drawn),
        at(0.5)
    )
}

/// Names the ends of the values of drawn machines: by nearest rank, few machines have no percentile
/// between theirs.
fn ends(drawn: usize) -> &'static str {
    if (0.05 * (drawn - 1) as f64).round() < 1.0 {
        "least and most"
    } else {
        "5th and 95th percentile"
    }
}

/// Formats the effect of a number, with a bar from one end to the other. The longest bar is that of
/// the first number.
fn row(own: f64, moved: &[MovedNumber], number: &MovedNumber) -> String {
    let all = moved.iter().take(SHOWN).flat_map(|number| number.percent);
    let (least, most) =
        all.fold((own, own), |(least, most), percent| (least.min(percent), most.max(percent)));
    let width = (most - least).max(f64::MIN_POSITIVE);
    let column = |percent: f64| ((percent - least) / width * (BAR - 1) as f64).round() as usize;
    let [low, high] = number.percent;
    let mut bar = vec![' '; BAR];
    let (from, to) = (column(low.min(high)), column(low.max(high)));
    bar[from..=to].fill('-');
    bar[column(own)] = '|';
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
        .filter(|claim| is_change(claim) && !claim.is_noise() && claim.holds_share().is_some())
        .collect();
    if drawn.is_empty() {
        return vec![];
    }
    let holds = drawn.iter().filter(|claim| claim.holds_share() >= Some(ROBUST)).count();
    let text = format!(
        "{holds} of {} conclusions hold over costs on at least {:.0} % of the drawn machines.",
        drawn.len(),
        100.0 * ROBUST
    );
    wrap(&text, "", "")
}
