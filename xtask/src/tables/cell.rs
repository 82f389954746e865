//! One value in a page.

use mmscale_document::Metric;
use mmscale_report::{MetricChange, figure};

/// The kind of a cell's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Mean,
    /// The mean, and its standard deviation in percent.
    Spread,
    /// The change against the first arm.
    Change,
}

impl Kind {
    /// Determines the kind from the form of the text; `None` for an empty cell.
    pub(super) fn of(cell: &str) -> Option<Self> {
        let cell = cell.trim();
        match cell {
            "" => None,
            _ if cell.contains('±') => Some(Self::Spread),
            _ if cell.ends_with('%') || cell == "from 0" => Some(Self::Change),
            _ => Some(Self::Mean),
        }
    }
    /// Formats the value of `metric` in this form.
    pub(super) fn show(self, metric: Option<&Metric>, change: Option<&MetricChange>) -> String {
        match self {
            Self::Mean => spaced(&figure::mean(metric)),
            Self::Change => spaced(&figure::change(change)),
            Self::Spread => {
                let mean = spaced(&figure::mean(metric));
                // A mean without a deviation keeps its place.
                let spread = figure::spread(metric).unwrap_or_else(|| "-%".to_owned());
                format!("{mean} ± {}", spaced(&spread))
            }
        }
    }
}

/// Inserts a space before a unit (reports have none, to save columns). Suffixes for thousands and
/// millions are not units.
fn spaced(figure: &str) -> String {
    let number = figure.trim_end_matches(|c: char| c.is_alphabetic() || c == '%');
    match &figure[number.len()..] {
        "" | "k" | "M" | "G" => figure.to_owned(),
        unit if number.ends_with(|c: char| c.is_ascii_digit() || c == '-') => {
            format!("{number} {unit}")
        }
        _ => figure.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_cell_says_what_it_tells() {
        assert_eq!(Kind::of("  "), None);
        for mean in ["0", "1.226M", "417.8 us", "-", "2.1e-4"] {
            assert_eq!(Kind::of(mean), Some(Kind::Mean), "{mean}");
        }
        assert_eq!(Kind::of("19.25 ms ± 58 %"), Some(Kind::Spread));
        for change in ["~+0.7 %", "-13.2 %", "0.0 %", "from 0"] {
            assert_eq!(Kind::of(change), Some(Kind::Change), "{change}");
        }
    }

    #[test]
    fn units_stand_apart_and_thousands_do_not() {
        let cases = [
            ("417.8us", "417.8 us"),
            ("1.500MiB", "1.500 MiB"),
            ("~+0.7%", "~+0.7 %"),
            ("149.8k", "149.8k"),
            ("2.00e-5", "2.00e-5"),
            ("from 0", "from 0"),
            ("-", "-"),
            ("0", "0"),
        ];
        for (report, page) in cases {
            assert_eq!(spaced(report), page);
            assert_eq!(spaced(page), page, "twice");
        }
    }
}
