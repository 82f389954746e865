//! The blame matrix: holders as rows, waiters as columns.

use std::collections::BTreeMap;

use maud::{Markup, html};
use mmscale_document::{ArmRecord, BlameRecord, Document};

use super::picture::Picture;
use crate::number::{percent, scaled};

/// Maximum number of rows, and of columns; the rest is a row and a column of its own.
const ROWS: usize = 10;
const COLUMNS: usize = 6;
/// Minimum share of all waits, in percent, that is written into a cell.
const SHOWN: f64 = 0.05;
/// Functions of the holder's path that are shown; the tooltip has all.
const DEPTH: usize = 2;
/// The name of what is beyond the maximum.
const REST: &str = "others";

/// Returns a picture for each arm whose waits were recorded.
pub(super) fn pictures(document: &Document) -> Vec<Picture> {
    document.arms.iter().filter(|arm| !arm.blame.is_empty()).map(picture).collect()
}

fn picture(arm: &ArmRecord) -> Picture {
    Picture {
        title: format!("Holders and waiters: {}", arm.arm),
        how: "A row is what the holder of a lock did, a column who waited for it meanwhile; the \
              cell is its share of all waits for spin locks, the darker the larger."
            .to_owned(),
        wide: true,
        body: table(&arm.blame),
    }
}

/// Names what a holder did, with the innermost functions of its path.
pub(super) fn holder(row: &BlameRecord) -> String {
    crate::holder::holder(row, DEPTH)
}

fn waiter(row: &BlameRecord) -> String {
    format!("{} in {}", row.class, row.waiter)
}

/// Returns the names with the largest sums, in descending order.
fn largest(rows: &[BlameRecord], name: fn(&BlameRecord) -> String, most: usize) -> Vec<String> {
    let mut sums = BTreeMap::<String, u64>::new();
    for row in rows {
        *sums.entry(name(row)).or_default() += row.wait_total_ns;
    }
    let mut sums: Vec<(String, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let more = sums.len() > most;
    let mut names: Vec<String> = sums.into_iter().take(most).map(|(name, _)| name).collect();
    if more {
        names.push(REST.to_owned());
    }
    names
}

fn table(blame: &[BlameRecord]) -> Markup {
    let rows = largest(blame, holder, ROWS);
    let columns = largest(blame, waiter, COLUMNS);
    let all: u64 = blame.iter().map(|row| row.wait_total_ns).sum();
    let mut cells = BTreeMap::<(usize, usize), u64>::new();
    for row in blame {
        let place = |names: &[String], name: &str| {
            names.iter().position(|known| known == name).unwrap_or(names.len() - 1)
        };
        let cell = (place(&rows, &holder(row)), place(&columns, &waiter(row)));
        *cells.entry(cell).or_default() += row.wait_total_ns;
    }
    let share = |ns: u64| 100.0 * ns as f64 / all.max(1) as f64;
    html! {
        div.scroll {
            table.matrix {
                tr {
                    th { "holder" }
                    @for column in &columns { th scope="col" { (column) } }
                }
                @for (y, row) in rows.iter().enumerate() {
                    tr {
                        th scope="row" { (row) }
                        @for x in 0..columns.len() {
                            @let ns = cells.get(&(y, x)).copied().unwrap_or(0);
                            td style=(format!("--share:{:.0}%", share(ns).sqrt() * 7.0))
                                title=(scaled(ns as f64, "ns")) {
                                @if share(ns) >= SHOWN { (percent(share(ns))) }
                            }
                        }
                    }
                }
            }
        }
    }
}
