//! Typed parameters of studies.
//!
//! A study declares its parameters as [`ParamSpec`]s. The values on the command line are checked
//! against them before anything runs. A study reads values from [`Params`] by name.

mod number;
mod set;
mod spec;
mod sweep;

use std::collections::BTreeMap;
use std::sync::Arc;

use mmscale_document::ParamValue;
use mmscale_script::Script;
use thiserror::Error;

pub use number::Unit;
pub use set::{Named, ParamSet};
pub use spec::{Kind, Length, ParamSpec};
pub use sweep::{MAX_DOCUMENTS, Settings, sweep};

use crate::names::UnknownName;

/// Why a parameter could not be set.
#[derive(Debug, Error)]
pub enum ParamError {
    /// The text is not `key=value`.
    #[error("cannot read `{0}`: use key=value, or key=value,value for a sweep")]
    Malformed(String),
    /// The parameter does not exist.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The parameter is given twice.
    #[error("parameter `{0}` is set twice; for several values use {0}=value,value")]
    Twice(String),
    /// A value is given twice in a sweep, possibly in another notation.
    #[error("parameter `{name}` has the value `{given}` twice; give each value of a sweep once")]
    SameValue {
        /// The name of the parameter.
        name: String,
        /// The second of the equal values, as given.
        given: String,
    },
    /// The sweep has too many combinations.
    #[error(
        "the given values make {count} combinations; one call allows at most {MAX_DOCUMENTS} \
         documents: give fewer values, or distribute them over several calls"
    )]
    TooMany {
        /// Number of combinations, saturating.
        count: usize,
    },
    /// The value is not allowed.
    #[error("cannot set {name} to `{given}`: {problem}")]
    Value {
        /// The name of the parameter.
        name: String,
        /// The value as given.
        given: String,
        /// The problem, and the allowed values.
        problem: String,
    },
}

/// The values of all parameters of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    values: BTreeMap<String, ParamValue>,
    /// The script that they are parameters of, for the workload of scripts.
    script: Option<Arc<Script>>,
}

impl Params {
    /// Returns all parameters with their defaults.
    pub fn defaults(specs: &[ParamSpec], length: Length) -> Self {
        let values = specs.iter().map(|spec| (spec.name.to_string(), spec.default(length)));
        Self { values: values.collect(), script: None }
    }

    /// Returns these parameters as those of a script.
    pub(crate) fn of_script(&self, script: Option<Arc<Script>>) -> Self {
        Self { values: self.values.clone(), script }
    }

    /// Returns the script.
    ///
    /// # Panics
    /// If these are not the parameters of a script; that is a bug.
    pub(crate) fn script(&self) -> &Arc<Script> {
        self.script.as_ref().expect("the study of a script sets it")
    }

    /// Sets a parameter.
    pub fn set(&mut self, name: &str, value: ParamValue) {
        self.values.insert(name.to_owned(), value);
    }

    /// Returns the parameters without the named ones.
    pub fn without(mut self, names: &[&str]) -> Self {
        self.values.retain(|name, _| !names.contains(&name.as_str()));
        self
    }

    /// Returns all values by name.
    pub fn values(&self) -> &BTreeMap<String, ParamValue> {
        &self.values
    }

    /// Returns a parameter declared with [`ParamSpec::count`], in its unit.
    ///
    /// # Panics
    /// If the study declared the parameter otherwise, or not at all; that is a bug of the study.
    pub fn count(&self, name: &str) -> u64 {
        match self.values.get(name) {
            Some(&ParamValue::Count(n)) => n,
            other => panic!("parameter {name} is not a count but {other:?}"),
        }
    }

    /// Returns a parameter declared with [`ParamSpec::real`], in its unit.
    ///
    /// # Panics
    /// If the study declared the parameter otherwise, or not at all; that is a bug of the study.
    pub fn real(&self, name: &str) -> f64 {
        match self.values.get(name) {
            Some(&ParamValue::Real(x)) => x,
            other => panic!("parameter {name} is not a real number but {other:?}"),
        }
    }

    /// Returns a parameter declared with [`ParamSpec::switch`].
    ///
    /// # Panics
    /// If the study declared the parameter otherwise, or not at all; that is a bug of the study.
    pub fn switch(&self, name: &str) -> bool {
        match self.values.get(name) {
            Some(&ParamValue::Switch(on)) => on,
            other => panic!("parameter {name} is not a switch but {other:?}"),
        }
    }

    /// Returns a parameter declared with [`ParamSpec::choice`].
    ///
    /// # Panics
    /// If the study declared the parameter otherwise, or not at all; that is a bug of the study.
    pub fn choice(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(ParamValue::Choice(choice)) => choice,
            other => panic!("parameter {name} is not a choice but {other:?}"),
        }
    }
}
