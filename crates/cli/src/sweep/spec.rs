//! The spec of a sweep: options of `mmscale run` as keys of a TOML or JSON file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use mmscale_files::{Limit, Pipe};
use mmscale_harness::{
    CallError, Checks, Costs, Length, Origin, PolicyArm, Request, Settings, Shape, linux_version,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::ShapeArg;
use crate::failure::Failure;
use crate::request::simulated;

/// Some thousand times the size of a usual one.
const LIMIT: Limit = Limit::new("a sweep", 1 << 20);

/// A sweep. A list of values of any key makes runs with each of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) study: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hz: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shape: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arm: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) cost: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) linux: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) set: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seeds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) quick: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) check: bool,
}

impl Spec {
    /// Reads a file; `-` is stdin. A text that begins with `{` is JSON.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = mmscale_files::text(path, LIMIT, Pipe::Read);
        let text = text.map_err(|why| call(format!("cannot read the sweep `{shown}`: {why}")))?;
        Self::parse(&text).map_err(|why| call(format!("the sweep `{shown}` is wrong: {why}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|why| why.to_string())
        } else {
            toml::from_str(text).map_err(|why| why.to_string().trim_end().to_owned())
        }
    }

    /// Returns the studies; there is at least one.
    pub(crate) fn studies(&self) -> Result<Vec<String>, Failure> {
        let studies = words("study", self.study.as_ref())?;
        if studies.is_empty() {
            let what = "the sweep names no study: add `study = \"churn\"` (mmscale list shows all)";
            return Err(call(what.to_owned()));
        }
        Ok(studies)
    }

    /// Returns the profiles; `None` is that of the study.
    pub(crate) fn profiles(&self) -> Result<Vec<Option<String>>, Failure> {
        let profiles = words("profile", self.profile.as_ref())?;
        Ok(if profiles.is_empty() { vec![None] } else { profiles.into_iter().map(Some).collect() })
    }

    /// Returns the policies as given.
    pub(crate) fn policies(&self) -> Result<Vec<String>, Failure> {
        words("policy", self.policy.as_ref())
    }

    /// Returns the request for one study on one machine. A study without arms or policies has all
    /// its arms.
    pub(crate) fn request(
        &self,
        study: &str,
        profile: Option<&str>,
        origin: Origin,
    ) -> Result<Request, Failure> {
        let mut settings = Settings::default();
        let own = self.set.iter().map(|(key, value)| (key.as_str(), Some(value)));
        let common = [("cpus", self.cpus.as_ref()), ("hz", self.hz.as_ref())];
        for (key, value) in own.chain(common) {
            let values = words(key, value)?;
            if !values.is_empty() {
                settings.add(key, &values.join(",")).map_err(CallError::from)?;
            }
        }
        let policies = self.policies()?;
        let policies = policies.iter().map(|text| PolicyArm::parse(text));
        Ok(Request {
            arms: words("arm", self.arm.as_ref())?,
            policies: policies.collect::<Result<_, _>>().map_err(CallError::from)?,
            linux: self.linux.as_deref().map(linux_version).transpose().map_err(CallError::from)?,
            profile: profile.map(Into::into),
            settings,
            seeds: self.seeds,
            first_seed: self.seed.unwrap_or(1),
            length: if self.quick { Length::Quick } else { Length::Full },
            checks: if self.check { Checks::On } else { Checks::Off },
            costs: self.costs()?,
            shape: self.shape()?,
            ..simulated(vec![study.to_owned()], origin)
        })
    }

    /// Returns the costs that differ from the profile's.
    fn costs(&self) -> Result<Costs, Failure> {
        let item = |(key, value): (&String, &Value)| {
            Ok(format!("{key}={}", words(key, Some(value))?.join(",")))
        };
        let items: Vec<String> = self.cost.iter().map(item).collect::<Result<_, Failure>>()?;
        Ok(Costs::parse(&items).map_err(CallError::from)?)
    }

    fn shape(&self) -> Result<Shape, Failure> {
        let Some(name) = &self.shape else { return Ok(Shape::default()) };
        let shape = <ShapeArg as clap::ValueEnum>::from_str(name, false);
        shape
            .map(Into::into)
            .map_err(|_| call(format!("there is no shape `{name}` (known: keep, fill, flat)")))
    }
}

/// Returns one value or several as the command line has them.
fn words(key: &str, value: Option<&Value>) -> Result<Vec<String>, Failure> {
    match value {
        None => Ok(vec![]),
        Some(Value::Array(values)) => values.iter().map(|value| word(key, value)).collect(),
        Some(value) => Ok(vec![word(key, value)?]),
    }
}

fn word(key: &str, value: &Value) -> Result<String, Failure> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(true) => Ok("on".to_owned()),
        Value::Bool(false) => Ok("off".to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(call(format!("`{key}` of a sweep is a value or a list of values, not {value}")))
        }
    }
}

/// Returns the failure of a wrong call.
pub(crate) fn call(what: String) -> Failure {
    Failure::Call(anyhow!(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn toml_and_json_are_one_spec() {
        let text = "study = 'churn'\ncpus = [2, 4]\nquick = true\n[set]\nmadvise = ['none', 'mix']";
        let toml = Spec::parse(text).unwrap();
        let json = Spec::parse(&serde_json::to_string(&toml).unwrap()).unwrap();
        assert_eq!(format!("{toml:?}"), format!("{json:?}"));
        let why = Spec::parse("studdy = 'churn'").unwrap_err();
        assert!(why.contains("unknown field `studdy`"), "{why}");
    }

    #[test]
    fn values_are_written_as_on_the_command_line() {
        let list = json!(["none", 4, 2.5, true]);
        assert_eq!(words("x", Some(&list)).unwrap(), ["none", "4", "2.5", "on"]);
        let why = words("x", Some(&json!([[1]]))).unwrap_err().to_string();
        assert_eq!(why, "`x` of a sweep is a value or a list of values, not [1]");
        assert!(Spec::default().studies().unwrap_err().to_string().contains("names no study"));
    }
}
