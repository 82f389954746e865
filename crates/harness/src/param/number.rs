//! Numbers with units.

/// The unit of a parameter. Times may be given with another unit of time (`10ms`), amounts with
/// `k`, `M` or `G`.
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
            Self::Pages | Self::Bytes => "k, M or G (powers of 1024)",
        }
    }

    /// Returns the factor of a suffix, as numerator and denominator.
    fn factor(self, suffix: &str) -> Option<(u64, u64)> {
        let (per_unit, time) = match self {
            Self::Ns => (1, true),
            Self::Ms => (1_000_000, true),
            Self::Seconds => (1_000_000_000, true),
            Self::One | Self::Pages | Self::Bytes => (1, false),
        };
        let kilo: u64 = if self == Self::One { 1000 } else { 1024 };
        let factor = match (suffix, time) {
            ("", _) => return Some((1, 1)),
            ("ns", true) => 1,
            ("us" | "µs", true) => 1_000,
            ("ms", true) => 1_000_000,
            ("s", true) => 1_000_000_000,
            ("min", true) => 60_000_000_000,
            ("k" | "K", false) => kilo,
            ("m" | "M", false) => kilo * kilo,
            ("g" | "G", false) => kilo * kilo * kilo,
            _ => return None,
        };
        Some((factor, per_unit))
    }

    /// Splits `text` into its number and the factor of its suffix.
    fn split(self, text: &str) -> Result<(&str, (u64, u64)), String> {
        // An exponent's `e` is part of the number; no suffix begins with it.
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || "+-._eE".contains(c)))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        if number.is_empty() {
            return Err("not a number".to_owned());
        }
        match self.factor(suffix.trim()) {
            Some(factor) => Ok((number, factor)),
            None => Err(format!("unknown suffix (known: {})", self.suffixes())),
        }
    }

    /// Parses a whole number in this unit. Returns a description of the problem on failure.
    pub fn parse_count(self, text: &str) -> Result<u64, String> {
        let (number, (up, down)) = self.split(text)?;
        if let Ok(n) = number.replace('_', "").parse::<u64>() {
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
        let x: f64 = number.replace('_', "").parse().map_err(|_| "not a number".to_owned())?;
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

    #[test]
    fn nonsense_is_named() {
        assert_eq!(Unit::Pages.parse_count("-5"), Err("must not be negative".into()));
        assert_eq!(Unit::Pages.parse_count("1.5"), Err("not a whole number of pages".into()));
        assert_eq!(Unit::Ms.parse_count("1ns"), Err("not a whole number of ms".into()));
        assert_eq!(Unit::Pages.parse_count("many"), Err("not a number".into()));
        assert_eq!(Unit::Pages.parse_count(""), Err("not a number".into()));
        assert_eq!(Unit::One.parse_count("20000000000G"), Err("too large".into()));
        assert_eq!(Unit::One.parse_real("1e999"), Err("too large".into()));
        assert_eq!(Unit::One.parse_real("--1"), Err("not a number".into()));
        let error = Unit::Ns.parse_count("10kb").unwrap_err();
        assert_eq!(error, "unknown suffix (known: ns, us, ms, s or min)");
    }
}
