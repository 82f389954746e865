//! Distributions: buckets as rows, arms as columns.

use std::collections::BTreeMap;

use mmscale_document::{Document, Histogram};

use super::table::beside;
use super::{cut, wrap};
use crate::number::scaled;

/// Columns of an arm's counts.
const COUNT: usize = 11;
/// Maximum number of arms side by side.
const ARMS: usize = 4;

/// Returns the lines on distributions; none if none was collected.
pub(super) fn lines(document: &Document) -> Vec<String> {
    let mut names: Vec<&String> =
        document.arms.iter().flat_map(|arm| arm.histograms.keys()).collect();
    names.sort();
    names.dedup();
    let mut lines = vec![];
    for name in names {
        for arms in document.arms.chunks(ARMS) {
            let titles: Vec<&str> = arms.iter().map(|arm| arm.arm.as_str()).collect();
            let of: Vec<Option<&Histogram>> =
                arms.iter().map(|arm| arm.histograms.get(name)).collect();
            lines.extend(one(name, &titles, &of));
        }
    }
    lines
}

fn one(name: &str, arms: &[&str], of: &[Option<&Histogram>]) -> Vec<String> {
    let mut rows = BTreeMap::<(u64, u64), Vec<u64>>::new();
    let mut unit = "1";
    for (at, histogram) in of.iter().enumerate() {
        let Some(histogram) = histogram else { continue };
        unit = &histogram.unit;
        for &[low, high, count] in &histogram.buckets {
            rows.entry((low, high)).or_insert_with(|| vec![0; of.len()])[at] += count;
        }
    }
    let cells =
        |texts: Vec<String>| texts.iter().map(|t| format!("{t:>COUNT$}")).collect::<String>();
    let mut lines = vec![String::new()];
    lines.extend(wrap(&format!("histogram of {name}, summed over seeds"), "", "  "));
    let titles = arms.iter().map(|arm| cut(arm, COUNT - 1)).collect();
    lines.extend(beside(&format!("  {:>9}   {:>9}", "from", "to below"), &cells(titles)));
    for ((low, high), counts) in rows {
        let range = format!("  {:>9} - {:>9}", scaled(low as f64, unit), scaled(high as f64, unit));
        let counts = counts.into_iter().map(|n| scaled(n as f64, "1")).collect();
        lines.extend(beside(&range, &cells(counts)));
    }
    lines
}
