//! The tables, within 72 columns.

use crate::fragmentation::Fragmentation;
use crate::round::Row;
use crate::sheet::Sheet;
use std::fmt::Write;

/// Columns of the page.
const PAGE: usize = 72;
/// Columns for the name.
const NAME: usize = 22;
/// The most columns for a number.
const NUMBER: usize = 7;

/// Times in ns, their spread, then the ratio of each row to the first one.
pub fn render(sheet: &Sheet, rows: &[Row]) -> String {
    let mut text = format!("{}\n", sheet.title);
    let names: Vec<&str> = sheet.columns.iter().map(|(name, _)| &**name).collect();
    let width = NUMBER.min((PAGE - NAME) / names.len().max(1));
    heading(&mut text, "ns per alloc + free", &names, width);
    rows.iter().for_each(|row| line(&mut text, row.name, &row.times, width, number));
    text.push('\n');
    heading(&mut text, "spread, +- %", &names, width);
    rows.iter().for_each(|row| line(&mut text, row.name, &row.spreads, width, number));
    let Some((ours, others)) = rows.split_first() else { return text };
    text.push('\n');
    heading(&mut text, &format!("times {}", ours.name), &names, width);
    for row in others {
        let ratio = |(theirs, ours): (&Option<f64>, &Option<f64>)| Some((*theirs)? / (*ours)?);
        let ratios: Vec<Option<f64>> = row.times.iter().zip(&ours.times).map(ratio).collect();
        line(&mut text, row.name, &ratios, width, times);
    }
    text
}

/// Only the times: for runs in which ratios have no meaning.
pub fn render_times(sheet: &Sheet, rows: &[Row]) -> String {
    let mut text = format!("{}\n", sheet.title);
    let names: Vec<&str> = sheet.columns.iter().map(|(name, _)| &**name).collect();
    let width = NUMBER.min((PAGE - NAME) / names.len().max(1));
    heading(&mut text, "ns per alloc + free", &names, width);
    rows.iter().for_each(|row| line(&mut text, row.name, &row.times, width, number));
    text
}

/// Percent of the ideal, by allocator.
pub fn render_fragmentation(rows: &[(&str, Fragmentation)]) -> String {
    let mut text = String::new();
    heading(&mut text, "% of ideal", &Fragmentation::NAMES, NUMBER);
    for (name, found) in rows {
        line(&mut text, name, &found.figures().map(Some), NUMBER, |value| format!("{value:.1}"));
    }
    text
}

fn heading(text: &mut String, name: &str, columns: &[&str], width: usize) {
    let _ = write!(text, "{name:NAME$}");
    for column in columns {
        let _ = write!(text, "{column:>width$}");
    }
    text.push('\n');
}

fn line(
    text: &mut String,
    name: &str,
    cells: &[Option<f64>],
    width: usize,
    show: impl Fn(f64) -> String,
) {
    let _ = write!(text, "{name:NAME$}");
    for cell in cells {
        let _ = write!(text, "{:>width$}", cell.map_or_else(|| "-".to_owned(), &show));
    }
    text.push('\n');
}

/// Up to three significant figures, in at most four columns.
fn number(value: f64) -> String {
    match value {
        ..99.95 => format!("{value:.1}"),
        ..9_999.5 => format!("{value:.0}"),
        ..999_500.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.0}M", value / 1e6),
    }
}

fn times(ratio: f64) -> String {
    if ratio < 9.995 { format!("{ratio:.2}") } else { number(ratio) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::{FreeOrder, PoolState, Program};

    #[test]
    fn the_tables_fit_a_mail_and_show_ratios() {
        let (fresh, same) = (PoolState::Fresh, FreeOrder::Same);
        let orders = Sheet::orders(Program::Bulk, 2, fresh, same);
        for sheet in [Sheet::programs(fresh, same), orders] {
            let row = |name, ns: f64| Row {
                name,
                times: (0..sheet.columns.len()).map(|at| (at != 5).then_some(ns)).collect(),
                spreads: vec![Some(1.0); sheet.columns.len()],
                disturbed: 0,
                samples: 0,
            };
            let rows = [row("mmscale", 25.0), row("a name of 22 columns..", 100_000.0)];
            let text = render(&sheet, &rows);
            assert!(text.lines().all(|line| line.len() <= PAGE), "{text}");
            assert!(text.contains(" 4000"), "{text}");
            assert!(text.lines().last().is_some_and(|line| line.contains(" -")), "{text}");
            assert!(render_times(&sheet, &rows).contains("100k"));
        }
    }

    #[test]
    fn numbers_keep_to_their_columns() {
        let numbers = [3.41, 99.96, 1234.0, 9_999.6, 70_000.0, 999_900.0, 5e6].map(number);
        assert_eq!(numbers, ["3.4", "100", "1234", "10k", "70k", "1M", "5M"]);
    }
}
