//! Counts, times and percentages in the forms of the tools.

use crate::fault::Fault;
use crate::text::{Cursor, Word};

/// Units of time that perf and klockstat print, in ns.
const UNITS: [(&str, f64); 9] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
    ("usecs", 1e3),
];

/// Returns the length of a unit of time, in ns.
pub(crate) fn unit_ns(unit: &str) -> Option<f64> {
    UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ns)| *ns)
}

/// Returns a count. Groups of three digits may have commas between them.
pub(crate) fn count(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let mut groups = text.split(',');
    let first = groups.next()?;
    let digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let fits = (1..=3).contains(&first.len()) && digits(first);
    let whole = fits && groups.clone().all(|group| group.len() == 3 && digits(group));
    if whole { text.replace(',', "").parse().ok() } else { None }
}

/// Returns a number that is not negative. A comma before one or two last digits is a decimal comma
/// of other languages.
pub(crate) fn real(text: &str) -> Option<f64> {
    let plain = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if digits && text.bytes().any(|byte| byte.is_ascii_digit()) {
            text.parse::<f64>().ok().filter(|x| x.is_finite())
        } else {
            None
        }
    };
    let decimals = |text: &str| (1..=2).contains(&text.len());
    match text.rsplit_once(',') {
        Some((whole, last)) if !whole.contains([',', '.']) && decimals(last) => {
            plain(&format!("{whole}.{last}"))
        }
        Some(_) => match text.split_once('.') {
            Some((groups, decimals)) => plain(&format!("{}.{decimals}", count(groups)?)),
            None => count(text).map(|n| n as f64),
        },
        None => plain(text),
    }
}

/// The signs before a deviation: also those that programs make of `±` in another encoding.
const DEVIATIONS: [&str; 10] = ["±", "+/-", "+-", "A+-", "Â±", "A±", "Â+-", "ą", "▒", "\u{fffd}"];

/// Returns what follows the sign of a deviation in a word. `None` if the word has none.
pub(crate) fn deviation(word: &str) -> Option<&str> {
    DEVIATIONS.iter().find_map(|sign| word.strip_prefix(sign))
}

/// Converts a time, rounded to ns.
pub(crate) fn to_ns(number: f64, unit_ns: f64) -> u64 {
    (number * unit_ns).round() as u64
}

/// Returns a time that is written as one word: `199.43ms`, `965us`.
pub(crate) fn time_word(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',')?;
    let (number, unit) = text.split_at(digits);
    Some(to_ns(real(number)?, unit_ns(unit)?))
}

/// Reads a count; a line may be broken before it.
pub(crate) fn read_count(cursor: &mut Cursor<'_>, what: &str) -> Result<u64, Fault> {
    let word = expect(cursor, what)?;
    count(word.text).ok_or_else(|| wrong(word, what, "a whole number"))
}

/// Reads a number with its unit of time, as one word or as two; a line may be broken before either.
pub(crate) fn read_time(cursor: &mut Cursor<'_>, what: &str) -> Result<u64, Fault> {
    let word = expect(cursor, what)?;
    if let Some(ns) = time_word(word.text) {
        return Ok(ns);
    }
    let number = real(word.text).ok_or_else(|| wrong(word, what, "a time, such as `7.80 ms`"))?;
    let unit = expect(cursor, &format!("the unit of {what}"))?;
    let ns = unit_ns(unit.text).ok_or_else(|| {
        unit.fault(format!("`{}` is no unit of time; expected ns, us, ms, s, m or h", unit.text))
    })?;
    Ok(to_ns(number, ns))
}

/// Reads a number in a fixed unit of time.
pub(crate) fn read_fixed(cursor: &mut Cursor<'_>, what: &str, unit_ns: f64) -> Result<u64, Fault> {
    let word = expect(cursor, what)?;
    let number = real(word.text).ok_or_else(|| wrong(word, what, "a number"))?;
    Ok(to_ns(number, unit_ns))
}

fn expect<'a>(cursor: &mut Cursor<'a>, what: &str) -> Result<Word<'a>, Fault> {
    cursor.next_wrapped().ok_or_else(|| {
        cursor.end_fault(format!("the row ends before {what}: the table is cut; give all of it"))
    })
}

fn wrong(word: Word<'_>, what: &str, expected: &str) -> Fault {
    word.fault(format!("expected {what}, {expected}; found `{}`", word.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    #[test]
    fn counts_and_times_have_many_forms() {
        assert_eq!(
            ["872", "1,638", "1,63", "-1", "", "7.8"].map(count),
            [Some(872), Some(1638), None, None, None, None]
        );
        assert_eq!(
            ["7.80", "7,80", "1,638", "7,8", ".", "1e3", "NaN", "1,638.5"].map(real),
            [Some(7.8), Some(7.8), Some(1638.0), Some(7.8), None, None, None, Some(1638.5)]
        );
        assert_eq!(time_word("199.43ms"), Some(199_430_000));
        assert_eq!(
            ["965us", "1.35", "xms", "2x"].map(time_word),
            [Some(965_000), None, None, None]
        );
    }

    #[test]
    fn errors_have_the_place_of_the_word() {
        let all = lines("  7.80 ms 46.34 parsecs");
        let mut cursor = Cursor::new(&all, 0);
        assert_eq!(read_time(&mut cursor, "total wait"), Ok(7_800_000));
        let fault = read_time(&mut cursor, "max wait").unwrap_err();
        assert_eq!((fault.line, fault.column), (1, 17));
        assert!(fault.what.contains("`parsecs` is no unit"), "{fault}");
        let fault = read_count(&mut cursor, "the number of waits").unwrap_err();
        assert_eq!((fault.line, fault.column), (1, 24));
        assert!(fault.what.contains("the table is cut"), "{fault}");
    }
}
