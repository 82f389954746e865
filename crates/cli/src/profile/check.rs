//! `mmscale profile check`.

use anyhow::anyhow;
use mmscale_calibrate::review::{Entry, Review, review};
use mmscale_calibrate::{Basis, Profiles, WrongProfile};
use mmscale_report::wrap;

use super::wrong;
use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::output;

/// Shows the review of a profile. Fails if the profile has problems.
pub(super) fn check(profiles: &Profiles, args: &CheckArgs) -> Result<(), Failure> {
    let merged = profiles.open(&args.profile).map_err(|why| match why {
        WrongProfile::Unknown { .. } | WrongProfile::Read { .. } => wrong(why),
        why => Failure::Run(why.into()),
    })?;
    let review = review(&merged);
    output::print(&text(&review))?;
    let problems = review.wrong.len();
    if problems == 0 {
        return Ok(());
    }
    let s = if problems == 1 { "" } else { "s" };
    let profile = args.profile.display();
    Err(Failure::Run(anyhow!("profile `{profile}` has {problems} problem{s}; see above")))
}

/// Formats the review in 72 columns.
fn text(review: &Review) -> String {
    let mut lines = wrap(&format!("{}: {}", review.name, review.description), "", "  ");
    lines.extend(counts(review));
    if !review.first.is_empty() {
        let inherited = review.numbers.len() - review.own();
        let bases = review.bases.join(" and ");
        let first = format!("{inherited} inherited numbers have sources for {bases}: check these");
        lines.push(String::new());
        lines.extend(wrap(&format!("{first} first"), "", "  "));
        lines.extend(review.first.iter().map(row));
    }
    let at_end: Vec<String> = review.at_end().map(row).collect();
    if !at_end.is_empty() {
        lines.extend([String::new(), "at an end of their own range".to_owned()]);
        lines.extend(at_end);
    }
    if !review.wrong.is_empty() {
        lines.extend([String::new(), "wrong".to_owned()]);
        lines.extend(review.wrong.iter().flat_map(|what| wrap(what, "  ", "    ")));
    }
    lines.join("\n") + "\n"
}

/// Formats the counts of own and inherited numbers by kind of source.
fn counts(review: &Review) -> Vec<String> {
    let kinds = Basis::ALL.map(Basis::name);
    let all = review.numbers.len();
    let row = |name: &str, count: usize, kinds: [String; Basis::ALL.len()]| {
        let kinds: String = kinds.iter().map(|kind| format!("{kind:>10}")).collect();
        format!("  {name:<12}{count:>6}{kinds}")
    };
    let of = |inherited: bool| Basis::ALL.map(|basis| review.count(basis, inherited).to_string());
    let title = row("", 0, kinds.map(str::to_owned)).replacen("     0", "   all", 1);
    let mut lines = vec![String::new(), format!("numbers{}", &title["numbers".len()..])];
    lines.push(row("own", review.own(), of(false)));
    if review.own() < all {
        lines.push(row("inherited", all - review.own(), of(true)));
    }
    lines.extend(review.bases.iter().map(|base| format!("    {} from {base}", review.from(base))));
    lines
}

fn row(entry: &Entry) -> String {
    let Entry { key, value, range: [low, high], base, basis } = entry;
    let basis = basis.map_or("", Basis::name);
    let from = base.as_ref().map_or(String::new(), |base| format!(", {base}"));
    format!("  {key:<22} {value:>8}  ({low} to {high}; {basis}{from})")
}
