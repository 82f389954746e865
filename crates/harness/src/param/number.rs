//! Numbers with units. The units are those of scripts; times may be given in minutes, too, and
//! numbers with `k`, `M` or `G`.

use mmscale_script::Unit as Written;
use mmscale_system::PAGE_BYTES;

/// The unit of a parameter. Times may be given with another unit of time (`10ms`), pages and bytes
/// with a unit of size (`4MiB`), amounts with `k`, `M` or `G`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A plain number; `k`, `M` and `G` are 10^3, 10^6 and 10^9.
    One,
    /// Nanoseconds.
    Ns,
    /// Milliseconds.
    Ms,
    /// Seconds.
    Seconds,
    /// Pages; `k`, `M` and `G` are 2^10, 2^20 and 2^30.
    Pages,
    /// Bytes; `k`, `M` and `G` are 2^10, 2^20 and 2^30.
    Bytes,
}

impl Unit {
    /// Returns the name of the unit in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "1",
            Self::Ns => "ns",
            Self::Ms => "ms",
            Self::Seconds => "s",
            Self::Pages => "pages",
            Self::Bytes => "bytes",
        }
    }

    /// Returns the text after a number in this unit within a sentence; empty for plain numbers.
    pub fn suffix(self) -> String {
        if self == Self::One { String::new() } else { format!(" {}", self.name()) }
    }

    /// Returns the allowed suffixes, for messages.
    const fn suffixes(self) -> &'static str {
        match self {
            Self::Ns | Self::Ms | Self::Seconds => "ns, us, ms, s or min",
            Self::One => "k, M or G",
            Self::Pages | Self::Bytes => "pages, B, KiB, MiB, GiB, or k, M or G (powers of 1024)",
        }
    }

    /// Returns the factor of a suffix, as numerator and denominator.
    fn factor(self, suffix: &str) -> Option<(u64, u64)> {
        let kilo: u64 = if self == Self::One { 1000 } else { 1024 };
        let (per_unit, kind) = match self {
            Self::Ns => (1, Written::Time),
            Self::Ms => (1_000_000, Written::Time),
            Self::Seconds => (1_000_000_000, Written::Time),
            Self::Pages => (PAGE_BYTES, Written::Bytes),
            Self::Bytes => (1, Written::Bytes),
            Self::One => (1, Written::One),
        };
        match (suffix, kind) {
            ("", _) => return Some((1, 1)),
            ("min" | "m", Written::Time) => return Some((60_000_000_000, per_unit)),
            ("µs", Written::Time) => return Some((1_000, per_unit)),
            (_, Written::Time) => {}
            ("k" | "K", _) => return Some((kilo, 1)),
            ("m" | "M", _) => return Some((kilo * kilo, 1)),
            ("g" | "G", _) => return Some((kilo * kilo * kilo, 1)),
            _ => {}
        }
        let (factor, of) = Written::of_suffix(suffix)?;
        let of = if of == Written::Pages { Written::Bytes } else { of };
        (of == kind).then_some((factor, per_unit))
    }

    /// Splits `text` into its number and the factor of its suffix.
    fn split(self, text: &str) -> Result<(String, (u64, u64)), String> {
        // An exponent's `e` is part of the number; no suffix begins with it.
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || "+-._eE".contains(c)))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let number = number.replace('_', "");
        if number.parse::<f64>().is_err() {
            return Err("expected a number".to_owned());
        }
        match self.factor(suffix.trim()) {
            Some(factor) => Ok((number, factor)),
            None => {
                let (suffix, allowed) = (suffix.trim(), self.suffixes());
                Err(format!("unknown suffix `{suffix}` (allowed: {allowed})"))
            }
        }
    }

    /// Parses a whole number in this unit. Returns a description of the problem on failure.
    pub fn parse_count(self, text: &str) -> Result<u64, String> {
        let (number, (up, down)) = self.split(text)?;
        if let Ok(n) = number.parse::<u64>() {
            let scaled = u128::from(n) * u128::from(up);
            if !scaled.is_multiple_of(u128::from(down)) {
                return Err(format!("not a whole number of {}", self.name()));
            }
            return u64::try_from(scaled / u128::from(down)).map_err(|_| "too large".to_owned());
        }
        let x = self.parse_real(text)?;
        if x < 0.0 {
            return Err("must not be negative".to_owned());
        }
        // Above 2^53 not every whole number is representable as a float, so digits would be lost.
        if x.fract() != 0.0 || x > (1_u64 << 53) as f64 {
            let unit =
                if self == Self::One { String::new() } else { format!(" of {}", self.name()) };
            return Err(format!("not a whole number{unit}"));
        }
        Ok(x as u64)
    }

    /// Parses a finite number in this unit. Returns a description of the problem on failure.
    pub fn parse_real(self, text: &str) -> Result<f64, String> {
        let (number, (up, down)) = self.split(text)?;
        let x: f64 = number.parse().map_err(|_| "expected a number".to_owned())?;
        let x = x * up as f64 / down as f64;
        if x.is_finite() { Ok(x) } else { Err("too large".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_mean_what_the_unit_says() {
        assert_eq!(Unit::Ns.parse_count("10ms"), Ok(10_000_000));
        assert_eq!(Unit::Ns.parse_count("1s"), Ok(1_000_000_000));
        assert_eq!(Unit::Ns.parse_count("1.5us"), Ok(1500));
        assert_eq!(Unit::Ms.parse_count("2s"), Ok(2000));
        assert_eq!(Unit::Seconds.parse_real("250ms"), Ok(0.25));
        assert_eq!(Unit::Pages.parse_count("64k"), Ok(65_536));
        assert_eq!(Unit::One.parse_count("64k"), Ok(64_000));
        assert_eq!(Unit::One.parse_count("1_000"), Ok(1000));
        assert_eq!(Unit::One.parse_count("1e3"), Ok(1000));
        assert_eq!(Unit::One.parse_count("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(Unit::One.parse_real("0.5"), Ok(0.5));
    }

    /// A number means the same on the command line as in a script.
    #[test]
    fn the_units_of_scripts_are_known() {
        assert_eq!(Unit::Pages.parse_count("4MiB"), Ok(1024));
        assert_eq!(Unit::Pages.parse_count("4 MiB"), Ok(1024));
        assert_eq!(Unit::Pages.parse_count("64 pages"), Ok(64));
        assert_eq!(Unit::Bytes.parse_count("2 pages"), Ok(8192));
        assert_eq!(Unit::Bytes.parse_count("64KiB"), Ok(65_536));
        assert_eq!(Unit::Bytes.parse_count("0.5MiB"), Ok(1 << 19));
        assert_eq!(Unit::Ms.parse_real("100us"), Ok(0.1));
        assert_eq!(Unit::Ms.parse_count("5 s"), Ok(5000));
        assert_eq!(Unit::Seconds.parse_real("2min"), Ok(120.0));
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(Unit::Pages.parse_count("-5"), Err("must not be negative".into()));
        assert_eq!(Unit::Pages.parse_count("1.5"), Err("not a whole number of pages".into()));
        assert_eq!(Unit::Ms.parse_count("1ns"), Err("not a whole number of ms".into()));
        assert_eq!(Unit::Pages.parse_count("many"), Err("expected a number".into()));
        assert_eq!(Unit::Pages.parse_count(""), Err("expected a number".into()));
        assert_eq!(Unit::One.parse_count("20000000000G"), Err("too large".into()));
        assert_eq!(Unit::One.parse_real("1e999"), Err("too large".into()));
        assert_eq!(Unit::One.parse_real("--1"), Err("expected a number".into()));
        let error = Unit::Ns.parse_count("10kb").unwrap_err();
        assert_eq!(error, "unknown suffix `kb` (allowed: ns, us, ms, s or min)");
        // An `e` that begins a word is no exponent.
        assert_eq!(Unit::One.parse_count("eight"), Err("expected a number".into()));
        let wrong_kind = [(Unit::Ms, "4MiB"), (Unit::Pages, "5s"), (Unit::One, "4KiB")];
        for (unit, text) in wrong_kind {
            let error = unit.parse_count(text).unwrap_err();
            assert!(error.starts_with("unknown suffix `"), "{text}: {error}");
        }
        let odd = Unit::Pages.parse_count("5KiB").unwrap_err();
        assert_eq!(odd, "not a whole number of pages");
    }
}
