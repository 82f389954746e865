//! `cargo xtask paired DIR..`: how much narrower intervals are because runs are paired by seed.
//!
//! For each headline of each arm, a row of a Markdown table has the change with its interval over
//! pairs of seeds, the interval of the same values without pairs, and the ratio of their widths.

use std::collections::BTreeMap;
use std::path::Path;

use mmscale_document::{ArmRecord, Document};
use mmscale_report::changes;
use mmscale_stats::unpaired_percent_ci95;

/// Returns the table for the documents in some folders.
///
/// # Errors
/// A folder that cannot be read, or documents without an interval.
pub fn table(folders: &[&str]) -> Result<String, String> {
    let mut rows = vec![];
    for folder in folders {
        let documents: BTreeMap<String, Document> = crate::folder::read(Path::new(folder))?;
        rows.extend(documents.iter().flat_map(|(file, document)| of_document(file, document)));
    }
    if rows.is_empty() {
        return Err("no headline has an interval: documents need at least six seeds".to_owned());
    }
    let mut ratios: Vec<f64> = rows.iter().filter_map(|row| row.ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let mut text = String::from(
        "| run | arm | headline | change | 95 % paired | 95 % unpaired | unpaired/paired |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in &rows {
        text.push_str(&row.text);
    }
    if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
        text.push_str(&format!(
            "\n{} intervals: the unpaired one is {least:.2} to {most:.2} times as wide as the \
             paired one, {:.2} in the middle.\n",
            ratios.len(),
            ratios[ratios.len() / 2]
        ));
    }
    Ok(text)
}

/// A headline of an arm.
struct Row {
    text: String,
    /// The width of the unpaired interval, divided by that of the paired one; `None` if the paired
    /// one is a point.
    ratio: Option<f64>,
}

/// Returns the rows of a document. They are named by its file, whose name has the swept parameters.
fn of_document(file: &str, document: &Document) -> Vec<Row> {
    let Some((base, others)) = document.arms.split_first() else { return vec![] };
    let mut rows = vec![];
    for arm in others {
        for (name, found) in changes(base, arm) {
            let ends = found.change.percent_ci95().zip(found.change.percent());
            let (true, Some((paired, change))) = (found.holds.is_some(), ends) else { continue };
            let unpaired = unpaired_percent_ci95(&values(base, name), &values(arm, name));
            let Some(unpaired) = unpaired else { continue };
            let width = |[low, high]: [f64; 2]| high - low;
            let ratio = (width(paired) > 0.0).then(|| width(unpaired) / width(paired));
            let shown = |[low, high]: [f64; 2]| format!("{low:+.1} to {high:+.1}");
            rows.push(Row {
                text: format!(
                    "| {} | {} | `{name}` | {change:+.1} % | {} | {} | {} |\n",
                    file.strip_suffix(".json").unwrap_or(file),
                    arm.arm,
                    shown(paired),
                    shown(unpaired),
                    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
                ),
                ratio,
            });
        }
    }
    rows
}

fn values(arm: &ArmRecord, metric: &str) -> Vec<f64> {
    arm.metrics[metric].present()
}
