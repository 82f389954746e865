//! Settings of the command line, and the runs that result from them.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_document::ParamValue;

use super::{Length, ParamError, ParamSpec, Params};

/// Maximum number of documents of one call: each is a plan with its parameters, and all plans are
/// created before the first run.
pub const MAX_DOCUMENTS: usize = 10_000;

/// Parameters as given: names with one or more values each, not yet checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, Vec<String>>);

impl Settings {
    /// Parses items of the form `key=value` or `key=value,value`.
    pub fn parse<T: AsRef<str>>(items: &[T]) -> Result<Self, ParamError> {
        let mut settings = Self::default();
        for item in items.iter().map(AsRef::as_ref) {
            let malformed = || ParamError::Malformed(item.to_owned());
            let (key, values) = item.split_once('=').ok_or_else(malformed)?;
            if key.trim().is_empty() {
                return Err(malformed());
            }
            settings.add(key.trim(), values)?;
        }
        Ok(settings)
    }

    /// Adds a parameter with one or more values, separated by commas.
    pub fn add(&mut self, key: &str, values: &str) -> Result<(), ParamError> {
        let list: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        if list.iter().any(String::is_empty) {
            return Err(ParamError::Malformed(format!("{key}={values}")));
        }
        match self.0.insert(key.to_owned(), list) {
            None => Ok(()),
            Some(_) => Err(ParamError::Twice(key.to_owned())),
        }
    }

    /// Returns the names that were set.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the names that were set, each with its values as given.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// Returns the settings of parameters that are in `specs`.
    pub fn only(&self, specs: &[ParamSpec]) -> Self {
        let known = |name: &str| specs.iter().any(|spec| spec.name == name);
        Self(self.0.clone().into_iter().filter(|(name, _)| known(name)).collect())
    }
}

/// Returns all combinations of the given values, with defaults for other parameters. The first
/// parameter in `specs` varies slowest. A [`Kind::Each`] parameter that is not set takes all its
/// values.
pub fn sweep(
    specs: &[ParamSpec],
    settings: &Settings,
    length: Length,
) -> Result<Vec<Params>, ParamError> {
    for key in settings.keys() {
        ParamSpec::find(specs, key)?;
    }
    let mut swept = Vec::new();
    for spec in specs {
        let values = match settings.0.get(&*spec.name) {
            Some(given) => each_once(spec, given)?,
            None if spec.in_turn().is_empty() => continue,
            None => spec.in_turn().iter().map(|v| spec.parse(v)).collect::<Result<_, _>>()?,
        };
        swept.push((&*spec.name, values));
    }
    let count =
        swept.iter().fold(1, |count: usize, (_, values)| count.saturating_mul(values.len()));
    if count > MAX_DOCUMENTS {
        return Err(ParamError::TooMany { count });
    }
    let mut combinations = vec![Params::defaults(specs, length)];
    for (name, values) in swept {
        let with_each = |params: Params| {
            values.iter().map(move |value| {
                let mut params = params.clone();
                params.set(name, value.clone());
                params
            })
        };
        combinations = combinations.into_iter().flat_map(with_each).collect();
    }
    Ok(combinations)
}

/// Returns the values of one parameter. Equal values are refused, as they would make two equal
/// documents in one file.
fn each_once(spec: &ParamSpec, given: &[String]) -> Result<Vec<ParamValue>, ParamError> {
    let (mut values, mut known) = (Vec::new(), BTreeSet::new());
    for given in given {
        let value = spec.parse(given)?;
        // The text of a value has all its digits.
        if !known.insert(value.to_string()) {
            let (name, given) = (spec.name.to_string(), given.clone());
            return Err(ParamError::SameValue { name, given });
        }
        values.push(value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::Unit;

    fn specs() -> [ParamSpec; 2] {
        [
            ParamSpec::count("cpus", Unit::One, 72, [1, 4096], ""),
            ParamSpec::real("duty", Unit::One, 0.5, [0.0, 1.0], ""),
        ]
    }

    #[test]
    fn lists_make_every_combination_in_order() {
        let settings = Settings::parse(&["duty=0.1,1", "cpus=8,16"]).unwrap();
        let runs = sweep(&specs(), &settings, Length::Full).unwrap();
        let values: Vec<_> = runs.iter().map(|p| (p.count("cpus"), p.real("duty"))).collect();
        assert_eq!(values, [(8, 0.1), (8, 1.0), (16, 0.1), (16, 1.0)]);
        assert_eq!(sweep(&specs(), &Settings::default(), Length::Full).unwrap().len(), 1);
    }

    #[test]
    fn values_in_turn_are_a_sweep_unless_one_is_asked_for() {
        let specs = [ParamSpec::each("load", &["a", "b", "c"], ""), specs()[0].clone()];
        let loads = |items: &[&str]| -> Vec<(String, u64)> {
            let settings = Settings::parse(items).unwrap();
            let runs = sweep(&specs, &settings, Length::Full).unwrap();
            runs.iter().map(|p| (p.choice("load").to_owned(), p.count("cpus"))).collect()
        };
        assert_eq!(loads(&[]), ["a", "b", "c"].map(|load| (load.to_owned(), 72)));
        assert_eq!(loads(&["load=c", "cpus=4"]), [("c".to_owned(), 4)]);
        let error = sweep(&specs, &Settings::parse(&["load=d"]).unwrap(), Length::Full);
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with("allowed: one of a, b, c"), "{error}");
    }

    #[test]
    fn as_many_documents_as_there_may_be_are_planned_and_one_more_is_refused() {
        let specs = [
            ParamSpec::count("a", Unit::One, 1, [0, 1_000_000], ""),
            ParamSpec::count("b", Unit::One, 1, [0, 1_000_000], ""),
        ];
        let sweep_of = |values: [usize; 2]| {
            let list = |n| (0..n).map(|n: usize| n.to_string()).collect::<Vec<_>>().join(",");
            let [a, b] = values.map(list);
            let settings = Settings::parse(&[format!("a={a}"), format!("b={b}")]).unwrap();
            sweep(&specs, &settings, Length::Full)
        };
        assert_eq!(sweep_of([100, 100]).unwrap().len(), MAX_DOCUMENTS);
        let why = sweep_of([101, 100]).unwrap_err().to_string();
        assert!(why.contains("make 10100 combinations"), "{why}");
        assert!(why.contains("at most 10000 documents"), "{why}");
        // Counted and refused, not created.
        let why = sweep_of([100_000, 100_000]).unwrap_err().to_string();
        assert!(why.contains("make 10000000000 combinations"), "{why}");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for item in ["cpus", "cpus=", "=8", "cpus=8,,9"] {
            let error = Settings::parse(&[item]).unwrap_err();
            assert!(matches!(&error, ParamError::Malformed(text) if text == item), "{error}");
        }
        let twice = Settings::parse(&["cpus=8", "cpus=9"]).unwrap_err();
        assert!(matches!(twice, ParamError::Twice(name) if name == "cpus"));
        let same = Settings::parse(&["duty=0.5,1,0.50"]).unwrap();
        let same = sweep(&specs(), &same, Length::Full).unwrap_err();
        assert!(same.to_string().contains("`0.50` twice"), "{same}");
        let unknown =
            sweep(&specs(), &Settings::parse(&["cpu=8"]).unwrap(), Length::Full).unwrap_err();
        assert!(unknown.to_string().contains("did you mean `cpus`?"), "{unknown}");
    }
}
