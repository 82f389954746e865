//! Figures of tables: a number with its unit, its deviation and the change next to it.

use crate::number::{self, count, real};

/// A figure of a row.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Figure {
    /// The number.
    pub(super) value: f64,
    /// Half of the last digit that is printed.
    pub(super) half: f64,
    /// Its unit, which may be empty.
    pub(super) unit: String,
    /// Whether it is a percentage.
    pub(super) percent: bool,
    /// Whether it has a sign.
    pub(super) signed: bool,
    /// Whether it is a multiple: `1.34x`.
    pub(super) times: bool,
    /// The change in percent that stands next to it, in brackets or between stars.
    pub(super) change: Option<Change>,
    /// The form of its number, if commas may be read in two ways.
    pub(super) comma: Comma,
}

/// A change in percent, with half of its last digit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Change {
    /// In percent.
    pub(super) percent: f64,
    /// Half of the last digit that is printed.
    pub(super) half: f64,
}

/// How a number uses commas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Comma {
    /// Not at all, or in a way that has one meaning.
    #[default]
    Clear,
    /// One comma before three digits: 1,234.
    Either,
    /// Before one or two digits: 12,5.
    Decimal,
}

/// Units that follow a figure.
const UNITS: [&str; 44] = [
    "s",
    "ms",
    "us",
    "µs",
    "μs",
    "ns",
    "sec",
    "secs",
    "seconds",
    "msec",
    "usec",
    "nsec",
    "ops",
    "ops/s",
    "ops/sec",
    "op/s",
    "/s",
    "faults/s",
    "faults/sec",
    "pages/s",
    "req/s",
    "reqs/s",
    "tps",
    "qps",
    "iops",
    "iter/s",
    "loops/s",
    "B",
    "kB",
    "KB",
    "MB",
    "GB",
    "KiB",
    "MiB",
    "GiB",
    "B/s",
    "kB/s",
    "KB/s",
    "MB/s",
    "GB/s",
    "MiB/s",
    "GiB/s",
    "cycles",
    "pages",
];

/// Units before which a letter is a power of a thousand: `12.3M/s`, `4.5Mops/s`, `6kiops`.
const SCALED: [&str; 22] = [
    "/s", "/sec", "ops", "ops/s", "ops/sec", "op/s", "op/sec", "iops", "IOPS", "io/s", "tps",
    "qps", "pps", "rps", "req/s", "reqs/s", "pages/s", "faults/s", "iter/s", "loops/s", "cycles",
    "pages",
];

/// Returns whether a word is a unit.
pub(super) fn is_unit(word: &str) -> bool {
    UNITS.contains(&word)
}

/// Splits a power of a thousand from a unit.
fn scaled_unit(text: &str) -> Option<(i32, &str)> {
    let (letter, unit) = text.split_at_checked(1)?;
    let thousands = match letter {
        "k" | "K" => 1,
        "M" => 2,
        "G" => 3,
        _ => return None,
    };
    SCALED.contains(&unit).then_some((thousands, unit))
}

/// Words that stand for a missing figure.
const MISSING: [&str; 7] = ["-", "--", "n/a", "N/A", "NaN", "nan", "—"];

/// Returns whether a word stands for a missing figure.
pub(super) fn is_missing(word: &str) -> bool {
    MISSING.contains(&word)
}

/// Returns a number with a power of ten. The product with it is rounded twice, so the digits are
/// read again.
fn scaled(number: f64, power: i32) -> f64 {
    format!("{number}e{power}").parse().unwrap_or(f64::NAN)
}

/// Reads a word with one number: `1,234.5`, `12.3M`, `+34.3%`, `1.34x`, `965us`.
pub(super) fn word(text: &str) -> Option<Figure> {
    let (sign, rest) = match text.strip_prefix(['+', '-', '−']) {
        Some(rest) => (Some(!text.starts_with('+')), rest),
        None => (None, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let (mut digits, mut suffix) = rest.split_at(end.unwrap_or(rest.len()));
    let mut power: i32 = 0;
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
        power = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
        suffix = "";
    }
    // The comma of a sentence or of a list.
    if suffix.is_empty() {
        digits = digits.strip_suffix(',').unwrap_or(digits);
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || digits.ends_with(['.', ',']) {
        return None;
    }
    let number = real(digits)?;
    let decimals = match (digits.rsplit_once('.'), comma(digits)) {
        (Some((_, last)), _) => last.len(),
        (None, Comma::Decimal) => digits.len() - digits.find(',')? - 1,
        (None, _) => 0,
    };
    let (thousands, unit, percent, times) = match suffix {
        "" => (0, "", false, false),
        "%" => (0, "%", true, false),
        "x" | "X" | "×" => (0, "", false, true),
        "k" | "K" => (1, "", false, false),
        "M" => (2, "", false, false),
        "G" => (3, "", false, false),
        unit if UNITS.contains(&unit) => (0, unit, false, false),
        unit => {
            let (thousands, unit) = scaled_unit(unit)?;
            (thousands, unit, false, false)
        }
    };
    let power = power.checked_add(thousands * 3)?;
    let value = scaled(number, power) * if sign == Some(true) { -1.0 } else { 1.0 };
    value.is_finite().then(|| Figure {
        value,
        half: scaled(0.5 / 10f64.powi(i32::try_from(decimals).unwrap_or(300)), power),
        unit: unit.to_owned(),
        percent,
        signed: sign.is_some(),
        times,
        change: None,
        comma: comma(digits),
    })
}

fn comma(digits: &str) -> Comma {
    match digits.split_once(',') {
        Some((_, last)) if (1..=2).contains(&last.len()) && !digits.contains('.') => Comma::Decimal,
        Some((_, last)) if last.len() == 3 && count(digits).is_some() => Comma::Either,
        _ => Comma::Clear,
    }
}

/// Reads figures, and nothing else. `None` for one that is missing.
pub(super) fn figures(words: &[&str]) -> Option<Vec<Option<Figure>>> {
    let words: Vec<&str> = words.iter().flat_map(|word| apart(word)).collect();
    let mut all: Vec<Option<Figure>> = vec![];
    let mut at = 0;
    while let Some(&text) = words.get(at) {
        at += 1;
        // A change that is rounded has few digits.
        let text = text.strip_prefix('~').filter(|text| text.ends_with('%')).unwrap_or(text);
        if let Some(rest) = number::deviation(text) {
            // A deviation, perhaps with its number in the next word.
            let figure = if rest.is_empty() {
                at += 1;
                *words.get(at - 1)?
            } else {
                rest
            };
            all.last()?.as_ref()?;
            word(figure)?;
        } else if text.starts_with(['(', '*']) {
            let close = if text.starts_with('(') { ')' } else { '*' };
            let mut inner = text[1..].to_owned();
            while !inner.ends_with(close) {
                inner = format!("{inner} {}", words.get(at)?);
                at += 1;
            }
            let inner = inner.trim_end_matches(close).trim().replace(" %", "%");
            beside(&inner, all.last_mut()?.as_mut()?)?;
        } else if text == "%" {
            let last = all.last_mut()?.as_mut().filter(|last| last.unit.is_empty())?;
            (last.percent, last.unit) = (true, "%".to_owned());
        } else if is_missing(text) {
            all.push(None);
        } else if let Some(figure) = word(text) {
            all.push(Some(figure));
        } else if UNITS.contains(&text) || scaled_unit(text).is_some() {
            let last = all.last_mut()?.as_mut();
            let last = last.filter(|last| last.unit.is_empty() && last.change.is_none())?;
            let (thousands, unit) = scaled_unit(text).unwrap_or((0, text));
            (last.value, last.half) =
                (scaled(last.value, 3 * thousands), scaled(last.half, 3 * thousands));
            last.unit = unit.to_owned();
        } else {
            return None;
        }
    }
    Some(all)
}

/// Divides a figure from the brackets that follow it without a space: `531.7(+14.3%)`.
fn apart(text: &str) -> Vec<&str> {
    match text.find('(').filter(|at| word(&text[..*at]).is_some()) {
        Some(at) => vec![&text[..at], &text[at..]],
        None => vec![text],
    }
}

/// Enters what is in brackets: a change in percent, a deviation, or a change and a difference.
fn beside(inner: &str, figure: &mut Figure) -> Option<()> {
    for part in inner.split(", ") {
        if number::deviation(part).is_some() {
            continue;
        }
        let change = word(part)?;
        // Without a sign it may be a deviation: the reader of the table compares it with the
        // figures.
        if change.percent && figure.change.is_none() {
            figure.change = Some(Change { percent: change.value, half: change.half });
        }
    }
    Some(())
}

impl Figure {
    /// Returns whether `change` leads from `before` to this figure, within the digits that are
    /// printed.
    pub(super) fn follows(&self, before: &Self, change: Change) -> bool {
        let part = |after: f64, before: f64| 100.0 * (after / before - 1.0);
        let ends = [
            part(self.value - self.half, before.value + before.half),
            part(self.value + self.half, before.value - before.half),
        ];
        let slack = change.half * 1.02 + 1e-9;
        let (low, high) = (ends[0].min(ends[1]) - slack, ends[0].max(ends[1]) + slack);
        ends.iter().all(|end| end.is_finite()) && (low..=high).contains(&change.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_numbers_with_units() {
        let value = |text: &str| word(text).map(|figure| figure.value);
        assert_eq!(value("1,234,567"), Some(1_234_567.0));
        assert_eq!(value("12.3M"), Some(12_300_000.0));
        assert_eq!(value("-34.3%"), Some(-34.3));
        assert_eq!(value("1.2e+06"), Some(1_200_000.0));
        assert_eq!(value("965us"), Some(965.0));
        let unit = |text: &str| word(text).map(|figure| (figure.value, figure.unit));
        assert_eq!(unit("268.2M/s"), Some((268_200_000.0, "/s".to_owned())));
        assert_eq!(unit("300K/s"), Some((300_000.0, "/s".to_owned())));
        assert_eq!(unit("4.5Mops/s"), Some((4_500_000.0, "ops/s".to_owned())));
        assert_eq!(unit("1.5MB/s"), Some((1.5, "MB/s".to_owned())), "a unit of its own");
        for text in
            ["6.1.2", "2024-01-02", "1:23.4", "v2", "1.", "12abc", "3M/x", "2Kabc", "0x12", "1'234"]
        {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn changes_agree_within_the_printed_digits() {
        let change = |percent| Change { percent, half: 0.05 };
        let (before, after) = (word("1234567").unwrap(), word("1345678").unwrap());
        assert!(after.follows(&before, change(9.0)));
        assert!(!after.follows(&before, change(9.2)));
        assert!(word("1.0").unwrap().follows(&word("1.0").unwrap(), change(4.0)), "few digits");
    }

    #[test]
    fn rows_have_deviations_and_changes() {
        let all = |text: &str| figures(&text.split_whitespace().collect::<Vec<_>>());
        let row = all("898781.8 (   0.00%)   894440.3 *  -0.48%*").unwrap();
        let change = row[1].as_ref().unwrap().change.unwrap();
        assert_eq!((row.len(), change.percent), (2, -0.48));
        assert_eq!(all("1234 ±  2%  -34.3%  811").unwrap().len(), 3);
        assert_eq!(all("1234 pages and more"), None);
    }
}
