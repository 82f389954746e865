//! The file of a fitted profile: scaled numbers, each with its base's source.

use std::fmt::Write as _;

use mmscale_sim::profile::{Merged, Number, ProfileFile};

use super::group::{self, Decided, Factors};
use super::{Fitted, REPRODUCED, Rate};
use crate::derive;

/// A factor that changes a number by less is 1.
const SAME: f64 = 0.000_5;
/// Digits of factors and of scaled numbers, the first one that is not 0 included.
const DIGITS: i32 = 4;

/// Rounds a factor as it is written.
pub(super) fn rounded(factor: f64) -> f64 {
    if (factor - 1.0).abs() < SAME { 1.0 } else { significant(factor, f64::round) }
}

/// Rounds a number above 0 to [`DIGITS`].
fn significant(value: f64, round: fn(f64) -> f64) -> f64 {
    if value <= 0.0 {
        return value;
    }
    let digits = DIGITS - 1 - value.log10().floor() as i32;
    // Powers of positive exponents are exact, and so is the nearest number of a quotient.
    let power = 10_f64.powi(digits.abs());
    if digits >= 0 { round(value * power) / power } else { round(value / power) * power }
}

/// A profile whose costs are scaled.
pub(super) struct Scaling<'a> {
    /// The derived file, with the costs of the base.
    pub(super) file: &'a ProfileFile,
    /// The base with all numbers.
    pub(super) base: &'a Merged,
    /// The rates that the costs are fitted to.
    pub(super) rates: &'a [Rate],
    /// Whether the rates decide the factor of a group. All others have the common factor.
    pub(super) decided: &'a Decided,
}

impl Scaling<'_> {
    /// Returns the file with scaled costs.
    pub(super) fn by(&self, factors: &Factors) -> ProfileFile {
        let mut file = self.file.clone();
        for fitted in group::numbers(self.base) {
            let factor = factors[fitted.group.place()];
            if factor == 1.0 {
                continue;
            }
            let source = self.source(&fitted, factor);
            let numbers = if fitted.section == "ops" { &mut file.ops } else { &mut file.costs };
            numbers.insert(fitted.key, scaled(&fitted.number, factor, source));
        }
        file
    }

    /// Returns the source of a scaled number: the fit, and then the value and source of the base.
    fn source(&self, of: &group::Fitted, factor: f64) -> String {
        let rates = self.rates.iter().map(|rate| format!("`{rate}`"));
        let to = rates.collect::<Vec<_>>().join(" and ");
        let fit = if self.rates.len() == 1 {
            format!("fitted to {to} with factor {factor} of all operations")
        } else if self.decided[of.group.place()] {
            format!("fitted to {to} with factor {factor} of {}", of.group.name())
        } else {
            format!("derived from the common factor {factor} of {to}, which do not decide it")
        };
        let base = self.base.inherited_from(of.section, &of.key);
        let base = base.map_or_else(|| self.base.title(), str::to_owned);
        let Number { value, source, .. } = &of.number;
        format!("{fit}; {value} in {base}: {source}")
    }
}

/// Returns a number times a factor. The range grows by the rounding at most.
fn scaled(number: &Number, factor: f64, source: String) -> Number {
    let [low, high] = number.range;
    Number {
        value: significant(number.value * factor, f64::round),
        range: [significant(low * factor, f64::floor), significant(high * factor, f64::ceil)],
        source,
    }
}

/// Returns the text of the file, with a comment on the rates.
pub fn text(fitted: &Fitted) -> String {
    let whole = derive::text(&fitted.derived);
    let (head, rest) = whole.split_once('\n').unwrap_or((&whole, ""));
    let mut text = format!("{head}\n{RATES}");
    for of in &fitted.rates {
        let [before, after] = [of.before_per_s, of.after_per_s].map(Rate::shown);
        let left = of.remainder();
        let left = if left.abs() > REPRODUCED {
            format!(", not reproduced: {:+.1} % are left", left * 100.0)
        } else {
            String::new()
        };
        let _ =
            writeln!(text, "#   {}: {before} with the base's costs, {after} here{left}", of.rate);
    }
    if !fitted.with.is_empty() {
        let _ = writeln!(text, "# The programs ran with {}.", fitted.with.join(", "));
    }
    text + rest
}

const RATES: &str = "\
# Costs of operations are fitted to rates that were measured on one CPU. These are inputs; figures
# on more CPUs are predictions.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits_and_their_value_stays_in_the_range() {
        let number = |value, range| Number { value, range, source: "assumption: x".to_owned() };
        for (of, factor, value, range) in [
            (number(2000.0, [800.0, 2600.0]), 1.2345, 2469.0, [987.6, 3210.0]),
            (number(0.49, [0.3, 1.0]), 1.1111, 0.5444, [0.3333, 1.112]),
            (number(37.8, [37.8, 37.8]), 0.3333, 12.6, [12.59, 12.6]),
            (number(12345.0, [0.0, 1e6]), 1.0001, 12350.0, [0.0, 1_001_000.0]),
        ] {
            let scaled = scaled(&of, factor, "assumption: x".to_owned());
            assert_eq!((scaled.value, scaled.range), (value, range));
            assert_eq!(scaled.problem(), None);
        }
        assert_eq!(rounded(1.000_4), 1.0);
        assert_eq!(rounded(0.213_449), 0.2134);
    }
}
