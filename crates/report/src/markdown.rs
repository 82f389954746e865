//! Documents as Markdown tables, for a page or a mail.

use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, Document};
use mmscale_stats::FIRST_LOOK;

use crate::changes::{MetricChange, changes};
use crate::figure;
use crate::limits::{Limit, limits};
use crate::number::percent;
use crate::text::{Notes, answer, basis, in_order, is_shown, listed, ordered, point};
use crate::words;

/// Formats a document: its answer, a table of metrics, and how to repeat it. The table has the
/// headlines; all metrics if `details` are asked for or if there are no headlines, and those that
/// the call chooses.
pub fn markdown(document: &Document, notes: &Notes<'_>, details: bool) -> String {
    let mut text = format!(
        "### {} on {}, {}, {} CPUs\n\n",
        document.study,
        document.on,
        document.machine(),
        document.cpus
    );
    for (key, what) in answer(document, notes) {
        text.push_str(&format!("- {}: {}\n", escaped(&key), escaped(&what)));
    }
    text.push('\n');
    text.push_str(&metrics(document, notes, details));
    text.push_str(&format!(
        "\n{}; `{}`, {}, fingerprint `{}`\n",
        seeds(document),
        document.command.join(" "),
        document.build,
        document.fingerprint
    ));
    text
}

/// Formats many documents as one table, with a row for each arm: what limits the first arm, and the
/// first headline.
pub fn markdown_page(documents: &[(Document, Notes<'_>)]) -> String {
    let mut text = format!("{}\n\n", escaped(&basis(documents)));
    text.push_str(
        "| run | limit | arm | headline | first arm | this arm | change |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (document, notes) in documents {
        let Some((base, others)) = document.arms.split_first() else { continue };
        let all: Vec<&Document> = documents.iter().map(|(document, _)| document).collect();
        let run = point(document, &all);
        let limit = limit(base);
        if others.is_empty() {
            let name = base.metrics.iter().find(|(_, metric)| metric.headline);
            let (name, mean) = name.map_or(("", "-".to_owned()), |(name, metric)| {
                (name.as_str(), figure::mean(Some(metric)))
            });
            text.push_str(&format!("| {run} | {limit} | {} | {name} | {mean} | | |\n", base.arm));
        }
        for arm in others {
            let found = changes(base, arm);
            let Some((name, found)) =
                in_order(&found, notes).find(|(_, found)| found.holds.is_some())
            else {
                text.push_str(&format!("| {run} | {limit} | {} | none | - | - | - |\n", arm.arm));
                continue;
            };
            let [before, after] = [base, arm].map(|arm| figure::mean(arm.metrics.get(name)));
            text.push_str(&format!(
                "| {run} | {limit} | {} | `{name}` | {before} | {after} | {} |\n",
                escaped(&arm.arm),
                change(found)
            ));
        }
    }
    let looked = documents.iter().any(|(of, _)| of.arms.iter().any(|arm| arm.first_look));
    text.push_str(&format!("\n{}\n", legend(looked)));
    text
}

/// Returns the meaning of the marks.
fn legend(first_look: bool) -> String {
    let looked = if first_look {
        format!(" With {FIRST_LOOK} seeds {}.", words::first_look())
    } else {
        String::new()
    };
    format!(
        "Change: Hodges-Lehmann estimate over pairs of equal seeds with its 95 % interval; {} \
         (signed rank, headlines of an arm tested together at 5 %); {}.{looked}",
        words::STAR.replace('*', "\\*"),
        words::TILDE
    )
}

fn metrics(document: &Document, notes: &Notes<'_>, details: bool) -> String {
    let Some((base, others)) = document.arms.split_first() else { return String::new() };
    let names: Vec<&str> = ordered(document, &notes.order)
        .into_iter()
        .filter(|name| is_shown(&notes.only, name))
        .collect();
    let headline = |name: &&str| {
        let mut metrics = document.arms.iter().filter_map(|arm| arm.metrics.get(*name));
        metrics.any(|metric| metric.headline)
    };
    let headlines: Vec<&str> = names.iter().copied().filter(|name| headline(name)).collect();
    let all = details || !notes.only.is_empty() || headlines.is_empty();
    let names = if all { names } else { headlines };
    let mut text = format!("| metric | {} |", escaped(&base.arm));
    others.iter().for_each(|arm| text.push_str(&format!(" {} | change |", escaped(&arm.arm))));
    text.push_str(&format!("\n|---|---|{}\n", "---|---|".repeat(others.len())));
    let found: Vec<_> = others.iter().map(|arm| changes(base, arm)).collect();
    for name in names {
        text.push_str(&format!("| `{name}` | {} |", figure::mean(base.metrics.get(name))));
        for (arm, found) in others.iter().zip(&found) {
            let change = found.get(name).map_or("-".to_owned(), change);
            let mean = figure::mean(arm.metrics.get(name));
            text.push_str(&format!(" {mean} | {change} |"));
        }
        text.push('\n');
    }
    if !others.is_empty() {
        let looked = |found: &BTreeMap<&str, MetricChange>| found.values().any(|of| of.first_look);
        text.push_str(&format!("\n{}\n", legend(found.iter().any(looked))));
    }
    text
}

/// Formats a change with its interval and marks.
fn change(found: &MetricChange) -> String {
    let interval = figure::interval(found);
    let interval = if interval.is_empty() { interval } else { format!(" [{interval}]") };
    let star = figure::star(Some(found)).replace('*', "\\*");
    format!("{}{interval}{star}", figure::change(Some(found)))
}

fn limit(arm: &ArmRecord) -> String {
    let Some(limits) = limits(arm) else { return String::new() };
    let first = limits.into_iter().next().filter(Limit::is_limiting);
    first.map_or("no spin lock".to_owned(), |limit| {
        format!("{} {}", limit.class, percent(100.0 * limit.wait_share))
    })
}

fn seeds(document: &Document) -> String {
    let seeds = document.arms.first().map_or(&[][..], |arm| &arm.seeds);
    format!("seeds {}", listed(seeds))
}

/// Escapes characters that Markdown gives a meaning.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*")
}
