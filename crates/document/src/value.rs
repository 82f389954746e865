//! Numbers and parameter values as they stand in a record.

use core::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One measured number. Counts stay integers, so that none is rounded on its way to JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A count, or a time in whole ns.
    Count(u64),
    /// Anything that has a fraction, finite.
    Real(f64),
}

impl Value {
    /// The number as a float; exact below 2^53.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(n) => n as f64,
            Self::Real(x) => x,
        }
    }

    /// Whether it is exactly zero.
    pub fn is_zero(self) -> bool {
        self.as_f64() == 0.0
    }

    /// Whether JSON can hold it: not NaN and not infinite.
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

/// The value of a study's parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ParamValue {
    /// A switch.
    Switch(bool),
    /// A whole number, in the parameter's unit.
    Count(u64),
    /// A number with a fraction, in the parameter's unit.
    Real(f64),
    /// One of a parameter's named choices.
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
