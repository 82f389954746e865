//! Numbers for readers: four digits and a suitable unit.

/// Formats a value with about four significant digits in a unit of convenient size: `199.4ms` for
/// `ns`, `1.5MiB` for `bytes`, `12.35M` for any other unit.
pub(crate) fn scaled(value: f64, unit: &str) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let steps: &[(f64, &str)] = match unit {
        "ns" => &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")],
        "bytes" => &[(1.0, "B"), (1024.0, "KiB"), (1048576.0, "MiB"), (1073741824.0, "GiB")],
        _ => &[(1.0, ""), (1e5, "k"), (1e6, "M"), (1e9, "G")],
    };
    let &(from, name) = steps.iter().rev().find(|s| value.abs() >= s.0).unwrap_or(&steps[0]);
    // Counts below 100,000 are not scaled to thousands, because five digits are still easy to read.
    let size = if name == "k" { 1e3 } else { from };
    if size == 1.0 {
        return format!("{}{name}", digits(value));
    }
    format!("{}{name}", four_digits(value / size))
}

/// Formats about four significant digits; whole numbers below 100,000 in full.
pub(crate) fn digits(x: f64) -> String {
    let size = x.abs();
    if x.fract() == 0.0 && size < 1e5 { format!("{x:.0}") } else { four_digits(x) }
}

/// Size from which a number is written with its power of ten: no table has room for its digits.
const LARGE: f64 = 1e9;

fn four_digits(x: f64) -> String {
    let size = x.abs();
    let decimals = match size {
        _ if size >= LARGE => return format!("{x:.2e}"),
        _ if size >= 999.95 => 0,
        _ if size >= 99.995 => 1,
        _ if size >= 9.9995 => 2,
        _ if size >= 0.99995 => 3,
        _ if size >= 0.001 => 4,
        _ => return format!("{x:.2e}"),
    };
    format!("{x:.decimals$}")
}

/// Formats a share in percent, without decimals above 10: `0.4%`, `12%`.
pub(crate) fn percent(x: f64) -> String {
    match x {
        x if x < 9.95 => format!("{x:.1}%"),
        x if x < LARGE => format!("{x:.0}%"),
        x => format!("{x:.1e}%"),
    }
}

/// Formats a signed change in percent: `-86.6%`, `+1203%`.
pub(crate) fn change(x: f64) -> String {
    if x.abs() < 0.05 {
        "0.0%".to_owned()
    } else if x.abs() < 999.95 {
        format!("{x:+.1}%")
    } else if x.abs() < LARGE {
        format!("{x:+.0}%")
    } else {
        format!("{x:+.1e}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_suit_the_value() {
        let cases = [
            (0.0, "ns", "0"),
            (874.0, "ns", "874ns"),
            (2310.0, "ns", "2.310us"),
            (199_430_000.0, "ns", "199.4ms"),
            (2.5e9, "ns", "2.500s"),
            (872.0, "1", "872"),
            (882.8, "1", "882.8"),
            (99_999.0, "1", "99999"),
            (123_456.0, "1", "123.5k"),
            (12_345_678.0, "1/s", "12.35M"),
            (0.694, "1", "0.6940"),
            (0.000_02, "1", "2.00e-5"),
            (1_572_864.0, "bytes", "1.500MiB"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(scaled(value, unit), expected, "{value} {unit}");
        }
    }

    #[test]
    fn rounding_does_not_add_a_digit() {
        assert_eq!(digits(99.996), "100.0");
        assert_eq!(digits(999.96), "1000");
        assert_eq!(digits(9.99996), "10.00");
    }

    #[test]
    fn percentages_keep_their_size() {
        assert_eq!((percent(0.44), percent(12.4)), ("0.4%".into(), "12%".into()));
        assert_eq!([-86.58, 11_318.6, -0.01].map(change), ["-86.6%", "+11319%", "0.0%"]);
    }
}
