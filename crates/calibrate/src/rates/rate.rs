//! Rates as a call has them: `page_fault1=720k`.

use std::fmt;

use thiserror::Error;

/// The measured rate of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The name of a script, or the path of its file.
    pub program: String,
    /// Operations a second of one program on one CPU.
    pub per_s: f64,
    /// The rate as it was given.
    given: String,
}

/// Why a text is no rate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RateError {
    /// There is no program, or no rate.
    #[error("--rate {0}: a program and its rate are needed, as in --rate page_fault1=720k")]
    Form(String),
    /// The rate is not a number.
    #[error(
        "--rate {given}: `{value}` is not a rate; write operations a second as a number, with k \
         (thousand) or M (million) if you like, as in 720k or 2.1M"
    )]
    Number {
        /// The item.
        given: String,
        /// Its rate.
        value: String,
    },
    /// The number is followed by something else than a suffix.
    #[error(
        "--rate {given}: a rate has no suffix `{suffix}`; allowed: k (thousand) and M (million) \
         operations a second, as in 720k or 2.1M"
    )]
    Suffix {
        /// The item.
        given: String,
        /// The suffix.
        suffix: String,
    },
    /// The rate is zero, negative, infinite or NaN.
    #[error(
        "--rate {given}: a rate is a finite number above 0: operations a second of one program on \
         one CPU"
    )]
    Range {
        /// The item.
        given: String,
    },
}

impl Rate {
    /// Parses `PROGRAM=RATE`. The program may be a path with `=` in it.
    ///
    /// # Errors
    /// Another form, or a rate that is no finite number above 0.
    pub fn parse(text: &str) -> Result<Self, RateError> {
        let given = || text.to_owned();
        let parts = text.rsplit_once('=').map(|(program, rate)| (program.trim(), rate.trim()));
        let Some((program, rate)) = parts.filter(|(program, rate)| ![program, rate].contains(&&""))
        else {
            return Err(RateError::Form(given()));
        };
        let end = rate.trim_end_matches(|c: char| !c.is_ascii_digit() && c != '.').len();
        let (number, suffix) = rate.split_at(end);
        if number.is_empty() {
            // A word such as `nan` or `fast`.
            return Err(match rate.parse::<f64>() {
                Ok(_) => RateError::Range { given: given() },
                Err(_) => RateError::Number { given: given(), value: rate.to_owned() },
            });
        }
        let Ok(number) = number.parse::<f64>() else {
            return Err(RateError::Number { given: given(), value: rate.to_owned() });
        };
        let unit = match suffix.trim() {
            "" => 1.0,
            "k" => 1e3,
            "M" => 1e6,
            suffix => {
                return Err(RateError::Suffix { given: given(), suffix: suffix.to_owned() });
            }
        };
        let per_s = number * unit;
        if !(per_s.is_finite() && per_s > 0.0) {
            return Err(RateError::Range { given: given() });
        }
        Ok(Self { program: program.to_owned(), per_s, given: given() })
    }

    /// Formats a rate with four digits: `720.4k`.
    pub fn shown(per_s: f64) -> String {
        let (value, unit) = match per_s {
            1e6.. => (per_s / 1e6, "M"),
            1e3.. => (per_s / 1e3, "k"),
            _ => (per_s, ""),
        };
        let digits = 3_i32 - value.max(1.0).log10().floor() as i32;
        format!("{value:.0$}{unit}", digits.max(0) as usize)
    }

    /// Returns the time of an operation, in ns.
    pub(super) fn ns(&self) -> f64 {
        1e9 / self.per_s
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_and_without_a_suffix() {
        for (text, program, per_s) in [
            ("page_fault1=720k", "page_fault1", 720_000.0),
            ("brk1=2.1M", "brk1", 2_100_000.0),
            ("brk1 = 2.1 M", "brk1", 2_100_000.0),
            ("mmap1=340000", "mmap1", 340_000.0),
            ("mmap1=3.4e5", "mmap1", 340_000.0),
            ("./a=b/mine.mms=.5k", "./a=b/mine.mms", 500.0),
        ] {
            let rate = Rate::parse(text).unwrap();
            assert_eq!((rate.program.as_str(), rate.per_s), (program, per_s), "{text}");
            assert_eq!(rate.to_string(), text);
        }
        assert_eq!(Rate::parse("mmap1=2M").unwrap().ns(), 500.0);
    }

    #[test]
    fn a_rate_is_shown_with_four_digits() {
        let shown = [720_417.0, 2.1e6, 2.5e9, 999.96, 12.34, 0.5].map(Rate::shown);
        assert_eq!(shown, ["720.4k", "2.100M", "2500M", "1000.0", "12.34", "0.500"]);
    }

    #[test]
    fn what_is_no_rate_is_refused_with_the_reason() {
        for text in ["page_fault1", "=720k", "page_fault1=", "", "="] {
            assert_eq!(Rate::parse(text), Err(RateError::Form(text.to_owned())));
        }
        for text in ["a=0", "a=-5", "a=-720k", "a=NaN", "a=inf", "a=0k", "a=1e400", "a=-0"] {
            assert_eq!(Rate::parse(text), Err(RateError::Range { given: text.to_owned() }));
        }
        for (text, suffix) in [("a=720m", "m"), ("a=720K", "K"), ("a=1kk", "kk"), ("a=7/s", "/s")] {
            let expected = RateError::Suffix { given: text.to_owned(), suffix: suffix.to_owned() };
            assert_eq!(Rate::parse(text), Err(expected));
        }
        for text in ["a=fast", "a=720,000", "a=1_000", "a=1.2.3k", "a=k", "a=."] {
            assert!(matches!(Rate::parse(text), Err(RateError::Number { .. })), "{text}");
        }
    }
}
