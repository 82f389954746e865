//! Declarations of parameters.

use std::borrow::Cow;

use mmscale_document::ParamValue;

use super::number::Unit;
use super::{ParamError, UnknownName};
use crate::names::nearest;

/// The declaration of a parameter.
#[derive(Clone, Debug)]
pub struct ParamSpec {
    /// The name, in snake_case, with the unit last if it has one.
    pub name: Cow<'static, str>,
    /// A description of the effect, in one line.
    pub help: Cow<'static, str>,
    /// The allowed values and the default.
    pub kind: Kind,
}

/// Which of a study's two sets of defaults a run uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Length {
    /// As long as the metrics need.
    #[default]
    Full,
    /// Just long enough to check that everything works.
    Quick,
}

/// The allowed values of a parameter and its default.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A whole number.
    Count {
        /// The unit of the value.
        unit: Unit,
        /// Defaults of the full and the quick run.
        default: [u64; 2],
        /// The smallest and the largest allowed value.
        range: [u64; 2],
    },
    /// A number with a fraction.
    Real {
        /// The unit of the value.
        unit: Unit,
        /// Defaults of the full and the quick run.
        default: [f64; 2],
        /// The smallest and the largest allowed value.
        range: [f64; 2],
    },
    /// On or off.
    Switch {
        /// Whether the default is on.
        default: bool,
    },
    /// One of several names.
    Choice {
        /// The default name.
        default: &'static str,
        /// All allowed names.
        names: Vec<&'static str>,
    },
    /// One of several names. If the parameter is not set, several of them in turn, each in a
    /// document of its own.
    Each {
        /// All allowed names.
        names: Vec<&'static str>,
        /// The names that run in turn.
        in_turn: Vec<&'static str>,
    },
}

impl ParamSpec {
    /// Creates the declaration of a parameter.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        help: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { name: name.into(), help: help.into(), kind }
    }

    /// Declares a whole number within `range`, both ends included.
    pub fn count(
        name: &'static str,
        unit: Unit,
        default: u64,
        range: [u64; 2],
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Count { unit, default: [default; 2], range }, help)
    }

    /// Declares a number within `range`, both ends included.
    pub fn real(
        name: &'static str,
        unit: Unit,
        default: f64,
        range: [f64; 2],
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Real { unit, default: [default; 2], range }, help)
    }

    /// Declares an on/off switch.
    pub fn switch(name: &'static str, default: bool, help: &'static str) -> Self {
        Self::new(name, Kind::Switch { default }, help)
    }

    /// Declares a choice of one of `names`.
    pub fn choice(
        name: &'static str,
        default: &'static str,
        names: &[&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Choice { default, names: names.to_vec() }, help)
    }

    /// Declares a choice of one of `names`; all of them, in a document each, unless the parameter
    /// is set.
    pub fn each(name: &'static str, names: &[&'static str], help: &'static str) -> Self {
        Self::new(name, Kind::Each { names: names.to_vec(), in_turn: names.to_vec() }, help)
    }

    /// Returns this count with another default for quick runs.
    ///
    /// # Panics
    /// If the parameter is no count.
    pub fn quick_count(mut self, quick: u64) -> Self {
        match &mut self.kind {
            Kind::Count { default, .. } => default[1] = quick,
            _ => panic!("only a count has a count as its default"),
        }
        self
    }

    /// Returns the values that are run in turn if the parameter is not set; empty if it has a
    /// default.
    pub fn in_turn(&self) -> &[&'static str] {
        match &self.kind {
            Kind::Each { in_turn, .. } => in_turn,
            _ => &[],
        }
    }

    /// Returns the default for a run of that length; for [`Kind::Each`] the first value.
    pub fn default(&self, length: Length) -> ParamValue {
        match &self.kind {
            Kind::Count { default, .. } => ParamValue::Count(default[length as usize]),
            Kind::Real { default, .. } => ParamValue::Real(default[length as usize]),
            Kind::Switch { default } => ParamValue::Switch(*default),
            Kind::Choice { default, .. } => ParamValue::Choice((*default).to_owned()),
            Kind::Each { in_turn, .. } => ParamValue::Choice(in_turn[0].to_owned()),
        }
    }

    /// Returns the unit; `None` for switches and choices.
    pub fn unit(&self) -> Option<Unit> {
        match self.kind {
            Kind::Count { unit, .. } | Kind::Real { unit, .. } => Some(unit),
            Kind::Switch { .. } | Kind::Choice { .. } | Kind::Each { .. } => None,
        }
    }

    /// Describes the allowed values: `1 to 4096 pages`, `on or off`, `one of a, b`.
    pub fn range(&self) -> String {
        match &self.kind {
            Kind::Count { unit, range: [lo, hi], .. } => format!("{lo} to {hi}{}", unit.suffix()),
            Kind::Real { unit, range: [lo, hi], .. } => format!("{lo} to {hi}{}", unit.suffix()),
            Kind::Switch { .. } => "on or off".to_owned(),
            Kind::Choice { names, .. } | Kind::Each { names, .. } => {
                format!("one of {}", names.join(", "))
            }
        }
    }

    /// Parses a value.
    pub fn parse(&self, given: &str) -> Result<ParamValue, ParamError> {
        let fail = |problem: String| ParamError::Value {
            name: self.name.to_string(),
            given: given.to_owned(),
            problem,
        };
        let outside =
            |x: &dyn std::fmt::Display| fail(format!("{x} is outside its range, {}", self.range()));
        let spelt = |why: String| fail(format!("{why}; allowed: {}", self.range()));
        match &self.kind {
            Kind::Count { unit, range: [lo, hi], .. } => {
                let n = unit.parse_count(given).map_err(spelt)?;
                if (lo..=hi).contains(&&n) { Ok(ParamValue::Count(n)) } else { Err(outside(&n)) }
            }
            Kind::Real { unit, range: [lo, hi], .. } => {
                let x = unit.parse_real(given).map_err(spelt)?;
                if (lo..=hi).contains(&&x) { Ok(ParamValue::Real(x)) } else { Err(outside(&x)) }
            }
            Kind::Switch { .. } => match given {
                "on" | "true" | "yes" | "1" => Ok(ParamValue::Switch(true)),
                "off" | "false" | "no" | "0" => Ok(ParamValue::Switch(false)),
                _ => Err(fail("allowed: on or off".to_owned())),
            },
            Kind::Choice { names, .. } | Kind::Each { names, .. } => self.named(names, given),
        }
    }

    /// Returns the value if it is one of `names`.
    fn named(&self, names: &[&str], given: &str) -> Result<ParamValue, ParamError> {
        if names.contains(&given) {
            return Ok(ParamValue::Choice(given.to_owned()));
        }
        // Suggestions are for words only, not for numbers.
        let word = given.parse::<f64>().is_err().then_some(given);
        let hint = word
            .and_then(|word| nearest(word, names.iter().copied()))
            .map_or(String::new(), |name| format!("did you mean `{name}`? "));
        Err(ParamError::Value {
            name: self.name.to_string(),
            given: given.to_owned(),
            problem: format!("{hint}allowed: {}", self.range()),
        })
    }

    /// Returns the declaration with this name. The error contains the nearest name.
    pub fn find<'a>(specs: &'a [Self], name: &str) -> Result<&'a Self, ParamError> {
        specs.iter().find(|spec| spec.name == name).ok_or_else(|| {
            ParamError::Unknown(UnknownName::new("parameter", name, specs.iter().map(|s| &*s.name)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst() -> ParamSpec {
        ParamSpec::count("burst_pages", Unit::Pages, 4096, [1, 65_536], "pages per burst")
            .quick_count(1024)
    }

    #[test]
    fn values_outside_the_range_are_refused_with_the_range() {
        assert_eq!(burst().parse("64k").unwrap(), ParamValue::Count(65_536));
        let error = burst().parse("65537").unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot set burst_pages to `65537`: 65537 is outside its range, 1 to 65536 pages"
        );
        let error = burst().parse("-1").unwrap_err().to_string();
        assert!(error.contains("must not be negative; allowed: 1 to 65536 pages"), "{error}");
    }

    #[test]
    fn quick_runs_have_their_own_defaults() {
        assert_eq!(burst().default(Length::Full), ParamValue::Count(4096));
        assert_eq!(burst().default(Length::Quick), ParamValue::Count(1024));
    }

    #[test]
    fn switches_and_choices_say_what_they_take() {
        let hotplug = ParamSpec::switch("hotplug", false, "");
        assert_eq!(hotplug.parse("on").unwrap(), ParamValue::Switch(true));
        assert!(hotplug.parse("maybe").unwrap_err().to_string().contains("on or off"));
        let shape = ParamSpec::choice("shape", "square", &["square", "poisson"], "");
        assert_eq!(shape.parse("poisson").unwrap(), ParamValue::Choice("poisson".into()));
        let error = shape.parse("poison").unwrap_err().to_string();
        assert!(
            error.contains("did you mean `poisson`? allowed: one of square, poisson"),
            "{error}"
        );
    }
}
