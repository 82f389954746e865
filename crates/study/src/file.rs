//! A study's own file, `studies/<name>/study.toml`, which is compiled in: its arms, and the
//! defaults of its parameters with the reasons for them.

use crate::param::{Kind, ParamSpec};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The file. `A` is an arm's choice of policies, which each study defines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StudyFile<A> {
    /// The name on the command line; also the folder's name.
    pub(crate) name: String,
    /// The question, in one line.
    pub(crate) summary: String,
    /// The machine profile it runs on unless somebody says otherwise.
    pub(crate) profile: String,
    /// Defaults of parameters; a parameter that is not here has the default of its declaration.
    pub(crate) defaults: BTreeMap<String, toml::Value>,
    /// Defaults of quick runs, where they differ.
    #[serde(default)]
    pub(crate) quick: BTreeMap<String, toml::Value>,
    /// Defaults on the live kernel, where they differ: real time is shorter than simulated time is
    /// long.
    #[serde(default)]
    pub(crate) linux: BTreeMap<String, toml::Value>,
    /// Defaults of quick runs there.
    #[serde(default)]
    pub(crate) linux_quick: BTreeMap<String, toml::Value>,
    /// The arms. The others are compared with the first.
    pub(crate) arm: Vec<ArmFile<A>>,
}

/// An arm: a name and a set of policies.
#[derive(Debug, Deserialize)]
pub(crate) struct ArmFile<A> {
    /// Its name: shown, never computed with.
    pub(crate) name: String,
    /// What it does, in one line.
    pub(crate) help: String,
    /// Its policies.
    #[serde(flatten)]
    pub(crate) choice: A,
}

impl<A: for<'de> Deserialize<'de>> StudyFile<A> {
    /// Reads a file that is compiled in.
    ///
    /// # Panics
    /// If the file is broken: it is part of the program.
    pub(crate) fn parse(text: &str) -> Self {
        toml::from_str(text).unwrap_or_else(|why| panic!("a study.toml is broken: {why}"))
    }

    /// The declared parameters with the file's defaults.
    ///
    /// # Panics
    /// If the file sets a parameter that is not declared, or to something that it cannot be.
    pub(crate) fn params(&self, declared: Vec<ParamSpec>) -> Vec<ParamSpec> {
        self.with_defaults(declared, [&self.defaults, &self.quick])
    }

    /// The same as they are on the live kernel.
    pub(crate) fn params_on_linux(&self, params: &[ParamSpec]) -> Vec<ParamSpec> {
        self.with_defaults(params.to_vec(), [&self.linux, &self.linux_quick])
    }

    fn with_defaults(
        &self,
        mut declared: Vec<ParamSpec>,
        [full, quick]: [&BTreeMap<String, toml::Value>; 2],
    ) -> Vec<ParamSpec> {
        for (length, values) in [(0, full), (1, quick)] {
            for (name, value) in values {
                let spec = declared.iter_mut().find(|spec| spec.name == name);
                let spec = spec.unwrap_or_else(|| panic!("{}: no parameter `{name}`", self.name));
                set_default(spec, length, value)
                    .unwrap_or_else(|| panic!("{}: `{name}` cannot be {value}", self.name));
            }
        }
        declared
    }
}

/// Sets the default of the full run (`length` 0, which the quick run follows) or of the quick run.
fn set_default(spec: &mut ParamSpec, length: usize, value: &toml::Value) -> Option<()> {
    match &mut spec.kind {
        Kind::Count { default, range, .. } => {
            let n = u64::try_from(value.as_integer()?).ok()?;
            (range[0]..=range[1]).contains(&n).then(|| default[length..].fill(n))
        }
        Kind::Real { default, range, .. } => {
            let x = value.as_float()?;
            (range[0]..=range[1]).contains(&x).then(|| default[length..].fill(x))
        }
        Kind::Switch { default } => {
            *default = value.as_bool()?;
            Some(())
        }
        Kind::Each { names } => {
            let wanted: Vec<_> = value.as_array()?.iter().map(|name| name.as_str()).collect();
            let kept: Vec<_> =
                names.iter().copied().filter(|name| wanted.contains(&Some(*name))).collect();
            *names = (kept.len() == wanted.len()).then(|| &*kept.leak())?;
            Some(())
        }
        Kind::Choice { default, names } => {
            *default = names.iter().find(|name| Some(**name) == value.as_str())?;
            Some(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::{Length, Unit};
    use mmscale_record::ParamValue;

    const TEXT: &str = r#"
        name = "x"
        summary = "y"
        profile = "arm64-8"
        [defaults]
        pages = 7
        [quick]
        pages = 3
        [[arm]]
        name = "a"
        help = "b"
        number = 5
    "#;

    #[derive(Debug, Deserialize)]
    struct Choice {
        number: u32,
    }

    #[test]
    fn a_file_gives_arms_and_both_defaults() {
        let file = StudyFile::<Choice>::parse(TEXT);
        assert_eq!(file.arm[0].choice.number, 5);
        let specs = file.params(vec![ParamSpec::count("pages", Unit::Pages, 1, [1, 9], "")]);
        assert_eq!(specs[0].default(Length::Full), ParamValue::Count(7));
        assert_eq!(specs[0].default(Length::Quick), ParamValue::Count(3));
    }

    #[test]
    #[should_panic(expected = "`pages` cannot be 7")]
    fn a_default_outside_its_range_is_refused() {
        let file = StudyFile::<Choice>::parse(TEXT);
        file.params(vec![ParamSpec::count("pages", Unit::Pages, 1, [1, 5], "")]);
    }
}
