//! One page with the answers of many documents.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_document::{ArmRecord, Document, Target};

use super::answer::{not_simulated, nothing_worse, worse_in};
use super::sweep::{legend, point};
use super::{Notes, WIDTH, beside, columns, cut, joined, ordered, wrap};
use crate::changes::changes;
use crate::figure;
use crate::limits::{Limit, limits};
use crate::number::percent;

/// Columns of a mean, and of a change with its mark.
const MEAN: usize = 10;
const CHANGE: usize = 11;
/// Number of changes for the worse to show.
const WORSE: usize = 5;

/// Formats the answers of several documents on one page, with lines of at most [`WIDTH`] columns.
/// Each document has the notes of its study.
pub fn page(documents: &[(Document, Notes<'_>)]) -> String {
    let mut lines = wrap(&basis(documents), "", "");
    lines.push(String::new());
    lines.extend(beside(
        "first headline of each study",
        &format!("{:>MEAN$}{:>CHANGE$}", "mean", "change"),
    ));
    for (document, notes) in documents {
        let all: Vec<&Document> = documents.iter().map(|(other, _)| other).collect();
        lines.extend(rows(document, notes, &point(document, &all)));
    }
    lines.push(String::new());
    let limit = "limit: the lock for which the first arm waits longest, with its share of the time \
                 of CPUs (spin lock) or of running and waiting tasks (mutex, rwsem).";
    let all: Vec<&Document> = documents.iter().map(|(document, _)| document).collect();
    let marks = legend(&all).map_or(String::new(), |marks| format!(" {marks}"));
    lines.extend(wrap(&format!("{limit}{marks}"), "", "  "));
    lines.extend(foot(documents));
    joined(lines)
}

/// Names what the changes of a page rest on: the first arms, the number of seeds, the machines.
pub(crate) fn basis(documents: &[(Document, Notes<'_>)]) -> String {
    let mut bases = BTreeSet::new();
    let mut seeds = BTreeSet::new();
    let mut machines = BTreeMap::<String, BTreeSet<&str>>::new();
    for (document, _) in documents {
        if let Some(base) = document.arms.first() {
            bases.insert(base.arm.as_str());
            seeds.insert(base.seeds.len());
        }
        machines.entry(machine(document)).or_default().insert(&document.study);
    }
    let bases = Vec::from_iter(bases).join(", ");
    let seeds = match (seeds.first(), seeds.last()) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
        (least, _) => least.copied().unwrap_or(0).to_string(),
    };
    let machines: Vec<String> = machines
        .into_iter()
        .map(|(machine, studies)| format!("{machine} ({})", Vec::from_iter(studies).join(", ")))
        .collect();
    format!(
        "Changes are against the first arm of each study ({bases}). Number of seeds: {seeds}. \
         Machines: {}.",
        machines.join("; ")
    )
}

/// Names the machine of a document in a few words.
fn machine(document: &Document) -> String {
    match document.on {
        Target::Sim => format!("{} CPUs of {}, simulated", document.cpus, document.machine()),
        Target::Threads => format!("{} threads of this computer", document.cpus),
        Target::Live => format!("{} CPUs of the live kernel", document.cpus),
    }
}

/// Formats what follows tables of several documents: the changes for the worse, and what is not
/// simulated.
pub fn foot_text(documents: &[(Document, Notes<'_>)]) -> String {
    joined(foot(documents))
}

fn foot(documents: &[(Document, Notes<'_>)]) -> Vec<String> {
    let mut lines = vec![];
    let worse = worse(documents);
    lines.extend(wrap(&worse, "worse: ", "  "));
    let gaps = documents.iter().flat_map(|(document, _)| document.not_simulated.clone());
    let by_name: BTreeMap<String, _> = gaps.map(|gap| (gap.name.clone(), gap)).collect();
    let gaps: Vec<_> = by_name.into_values().collect();
    lines.extend(
        not_simulated(&gaps).map(|text| wrap(&text, "missing: ", "  ")).unwrap_or_default(),
    );
    for (document, notes) in documents {
        if let Some(robust) = &notes.robust {
            lines.extend(wrap(robust, &format!("{}: ", document.study), "  "));
        }
    }
    let rest = "Whether a conclusion survives other costs: --robust, or mmscale robust STUDY. \
                Tables, locks, call paths: --details, or mmscale run STUDY.";
    lines.extend(wrap(rest, "", "  "));
    lines
}

/// Returns the first headline of a document and the lock that limits its first arm, and a row for
/// each arm.
fn rows(document: &Document, notes: &Notes<'_>, point: &str) -> Vec<String> {
    let Some((base, others)) = document.arms.split_first() else { return vec![] };
    let limit = limits(base).map_or(String::new(), |limits| {
        let first = limits.into_iter().next().filter(Limit::is_limiting);
        first.map_or("limit: no lock".to_owned(), |limit| {
            format!("limit: {} {}", limit.class, percent(100.0 * limit.wait_share))
        })
    });
    let is_headline = |name: &&str| {
        let mut metrics = document.arms.iter().filter_map(|arm| arm.metrics.get(*name));
        metrics.any(|metric| metric.headline)
    };
    let Some(name) = ordered(document, &notes.order).into_iter().find(is_headline) else {
        return beside(&format!("{point}: no headline has a value"), &limit);
    };
    let mut lines = beside(&format!("{point}: {name}"), &limit);
    let mut row = |arm: &ArmRecord, change: &str| {
        let mean = figure::mean(arm.metrics.get(name));
        let cells = format!("{mean:>MEAN$}{change:>CHANGE$}");
        lines.extend(beside(&cut(&format!("  {}", arm.arm), WIDTH - columns(&cells)), &cells));
    };
    row(base, "");
    for arm in others {
        let found = changes(base, arm);
        let found = found.get(name);
        row(arm, &format!("{}{}", figure::change(found), figure::star(found)));
    }
    lines
}

/// Formats the largest changes for the worse over all documents.
fn worse(documents: &[(Document, Notes<'_>)]) -> String {
    let mut all: Vec<(f64, String)> = vec![];
    let points: Vec<&Document> = documents.iter().map(|(document, _)| document).collect();
    for document in &points {
        let Some((base, others)) = document.arms.split_first() else { continue };
        let name = point(document, &points);
        let found = worse_in(base, others).into_iter();
        all.extend(found.map(|(size, text)| (size, format!("{name} {text}"))));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let more = all.len().saturating_sub(WORSE);
    all.truncate(WORSE);
    let mut text = all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("; ");
    match (text.is_empty(), more) {
        (true, _) => {
            let arms = documents.iter().filter_map(|(document, _)| document.arms.first());
            let fewest = arms.min_by_key(|arm| arm.seeds.len());
            text.push_str(fewest.map_or("no metric", nothing_worse));
        }
        (false, 0) => {}
        (false, more) => text.push_str(&format!("; and {more} more")),
    }
    text
}
