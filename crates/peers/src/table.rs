//! The table, within 72 columns.

use crate::Phase;
use crate::round::Row;
use std::fmt::Write;

/// Columns for the name; each of the seven numbers has [`NUMBER`].
const NAME: usize = 23;
const NUMBER: usize = 7;

const _: () = assert!(NAME + NUMBER * Phase::ALL.len() <= 72);

/// Medians in ns, their spread, then how many times slower than the first row each is.
pub fn render(rows: &[Row]) -> String {
    let mut text = String::new();
    heading(&mut text, "ns per alloc + free");
    rows.iter().for_each(|row| line(&mut text, row.name, &row.medians, number));
    text.push('\n');
    heading(&mut text, "spread, +- %");
    rows.iter().for_each(|row| line(&mut text, row.name, &row.spreads, number));
    let Some((ours, others)) = rows.split_first() else { return text };
    text.push('\n');
    heading(&mut text, &format!("times {}", ours.name));
    for row in others {
        let ratio = |(theirs, ours): (&Option<f64>, &Option<f64>)| Some((*theirs)? / (*ours)?);
        let ratios: Vec<Option<f64>> = row.medians.iter().zip(&ours.medians).map(ratio).collect();
        line(&mut text, row.name, &ratios, |ratio| format!("{ratio:.2}"));
    }
    text
}

fn heading(text: &mut String, name: &str) {
    let _ = write!(text, "{name:NAME$}");
    for phase in Phase::ALL {
        let _ = write!(text, "{:>NUMBER$}", phase.name());
    }
    text.push('\n');
}

fn line(text: &mut String, name: &str, cells: &[Option<f64>], show: impl Fn(f64) -> String) {
    let _ = write!(text, "{name:NAME$}");
    for cell in cells {
        let _ = write!(text, "{:>NUMBER$}", cell.map_or_else(|| "-".to_owned(), &show));
    }
    text.push('\n');
}

/// Three significant figures, as far as they say something.
fn number(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_a_mail_and_shows_ratios() {
        let row = |name, ns: f64| Row {
            name,
            medians: (0..7).map(|at| (at != 5).then_some(ns)).collect(),
            spreads: vec![Some(1.0); 7],
            disturbed: 0,
        };
        let text = render(&[row("mmscale", 25.0), row("a name of twenty-three.", 100_000.0)]);
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
        assert!(text.contains("4000.00"), "{text}");
        assert!(text.lines().last().is_some_and(|line| line.contains(" -")), "{text}");
    }
}
