//! Costs of a machine profile that a call sets: one machine for each combination of their values.

use std::collections::BTreeMap;

use mmscale_document::{COST_OPTION, ParamValue};
use mmscale_sim::HoldScale;
use mmscale_sim::profile::{Merged, Profile, ProfileError};
use thiserror::Error;

use crate::param::{MAX_DOCUMENTS, ParamError, Settings};

/// Why costs cannot be set.
#[derive(Debug, Error)]
pub enum CostError {
    /// An item that is no cost with its values; the text has what is needed.
    #[error("--cost {0}")]
    Item(String),
    /// A key or value is given twice, or the values make too many combinations.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// The profile has no such cost, or another range.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Costs of one machine, by key. Others have the values of the profile.
pub type CostsSet = BTreeMap<String, f64>;

/// Costs as a call has them: keys with one value or several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs(Vec<(String, Vec<f64>)>);

impl Costs {
    /// Parses items of the form `KEY=VALUE` or `KEY=VALUE,VALUE`.
    ///
    /// # Errors
    /// Another form, a value that is no number, or a key or value that is given twice.
    pub fn parse<T: AsRef<str>>(items: &[T]) -> Result<Self, CostError> {
        let settings = Settings::parse(items).map_err(|why| match why {
            ParamError::Malformed(item) => CostError::Item(format!(
                "{item}: a cost and its value are needed, as in --cost handoff_fixed_ns=20"
            )),
            other => other.into(),
        })?;
        let mut costs = Self::default();
        for (key, given) in settings.given() {
            let mut values: Vec<f64> = vec![];
            for text in given {
                let value = text.parse().map_err(|_| {
                    CostError::Item(format!("{key}={text}: `{text}` is not a number"))
                })?;
                if values.contains(&value) {
                    let what = format!("{key} has the value {value} twice; name it once");
                    return Err(CostError::Item(what));
                }
                values.push(value);
            }
            costs.0.push((key.to_owned(), values));
        }
        Ok(costs)
    }

    /// Returns whether the call sets no cost.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns every combination of the values; one without costs if there are none.
    fn combinations(&self) -> Result<Vec<CostsSet>, ParamError> {
        let number = |(_, values): &(String, Vec<f64>)| values.len();
        let count = self.0.iter().map(number).fold(1, usize::saturating_mul);
        if count > MAX_DOCUMENTS {
            return Err(ParamError::TooMany { count });
        }
        let mut all = vec![CostsSet::new()];
        for (key, values) in &self.0 {
            let with_each = |set: CostsSet| {
                values.iter().map(move |&value| {
                    let mut set = set.clone();
                    set.insert(key.clone(), value);
                    set
                })
            };
            all = all.into_iter().flat_map(with_each).collect();
        }
        Ok(all)
    }

    /// Returns the machines of a profile with every combination of the values.
    pub(crate) fn machines(&self, profile: &Merged) -> Result<Vec<(CostsSet, Profile)>, CostError> {
        let machine = |set: CostsSet| {
            let profile = with_costs(profile, &set)?.machine()?;
            Ok((set, profile))
        };
        self.combinations()?.into_iter().map(machine).collect()
    }
}

/// Returns a profile with these costs in place of its own.
///
/// # Errors
/// A key of no cost, or a value outside the cost's range.
pub fn with_costs(profile: &Merged, costs: &CostsSet) -> Result<Merged, ProfileError> {
    costs.iter().try_fold(profile.clone(), |profile, (key, &value)| profile.with_cost(key, value))
}

/// Returns costs as a document has them among its parameters.
pub(crate) fn shown(costs: &CostsSet) -> impl Iterator<Item = (String, ParamValue)> {
    costs.iter().map(|(key, &value)| (format!("{COST_OPTION}{key}"), ParamValue::Real(value)))
}

/// Returns a scale of holds as a document has it among its parameters, with the factor that the run
/// uses.
pub(crate) fn shown_hold(scale: HoldScale) -> ParamValue {
    let factor = f64::from(scale.factor_1024) / 1024.0;
    ParamValue::Choice(format!("{}={factor}", scale.class.name()))
}

/// Returns the costs among a document's parameters.
pub fn costs_of(params: &BTreeMap<String, ParamValue>) -> CostsSet {
    let cost = |(name, value): (&String, &ParamValue)| match value {
        ParamValue::Real(value) => Some((name.strip_prefix(COST_OPTION)?.to_owned(), *value)),
        ParamValue::Count(value) => {
            Some((name.strip_prefix(COST_OPTION)?.to_owned(), *value as f64))
        }
        ParamValue::Switch(_) | ParamValue::Choice(_) => None,
    };
    params.iter().filter_map(cost).collect()
}

#[cfg(test)]
mod tests {
    use mmscale_sim::profile::open;

    use super::*;

    #[test]
    fn values_make_every_combination_and_a_machine_each() {
        let costs = Costs::parse(&["handoff_fixed_ns=20,110", "lock_ns=9"]).unwrap();
        let machines = costs.machines(&open("x86-512").unwrap()).unwrap();
        let handoffs: Vec<u64> =
            machines.iter().map(|(_, profile)| profile.costs.handoff_fixed_ps).collect();
        assert_eq!(handoffs, [20_000, 110_000]);
        assert_ne!(machines[0].1.hash, machines[1].1.hash);
        let named: Vec<String> =
            shown(&machines[0].0).map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(named, ["--cost handoff_fixed_ns=20", "--cost lock_ns=9"]);
        assert_eq!(costs_of(&shown(&machines[0].0).collect()), machines[0].0);
        assert_eq!(Costs::default().machines(&open("x86-512").unwrap()).unwrap().len(), 1);
    }

    #[test]
    fn a_scale_is_shown_as_the_option_has_it() {
        let scale = HoldScale { class: mmscale_arch::LockClass::Zone, factor_1024: 512 };
        assert_eq!(shown_hold(scale).to_string(), "zone=0.5");
    }

    #[test]
    fn what_is_no_cost_is_refused() {
        let why = |item: &str| Costs::parse(&[item]).unwrap_err().to_string();
        assert!(why("handoff_fixed_ns").contains("--cost handoff_fixed_ns: a cost and its value"));
        assert!(why("handoff_fixed_ns=fast").contains("`fast` is not a number"));
        assert!(why("handoff_fixed_ns=110,110.0").contains("110 twice"));
    }
}
