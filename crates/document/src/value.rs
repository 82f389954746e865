//! Numbers and parameter values in a document.

use core::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A measured number. Counts stay integers, so that JSON does not round them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A count, or a time in whole ns.
    Count(u64),
    /// A finite number with a fraction.
    Real(f64),
}

impl Value {
    /// Returns the number as a float; exact below 2^53.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(n) => n as f64,
            Self::Real(x) => x,
        }
    }

    /// Returns whether the number is exactly zero.
    pub fn is_zero(self) -> bool {
        self.as_f64() == 0.0
    }

    /// Returns whether JSON can represent the number: it is not NaN and not infinite.
    pub fn is_finite(self) -> bool {
        self.as_f64().is_finite()
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::Count(n)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Self {
        Self::Real(x)
    }
}

/// The value of a parameter of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ParamValue {
    /// An on/off switch.
    Switch(bool),
    /// A whole number, in the parameter's unit.
    Count(u64),
    /// A number with a fraction, in the parameter's unit.
    Real(f64),
    /// The name of one of a parameter's choices.
    Choice(String),
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
            Self::Count(n) => write!(f, "{n}"),
            Self::Real(x) => write!(f, "{x}"),
            Self::Choice(name) => f.write_str(name),
        }
    }
}
