//! Arms: the policies of the memory manager that a run chooses, by name.

use crate::names::UnknownName;
use mmscale_document::On;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::policy::{MECHANISMS, Mechanism};
use std::collections::BTreeMap;

/// Something that a study's workload may do differently in an arm.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The arm's key.
    pub key: &'static str,
    /// Its values; the first is that of an arm without the key.
    pub values: &'static [&'static str],
}

/// What an arm chooses: the policies of some mechanisms, and what its workload does differently.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arm(BTreeMap<&'static str, &'static str>);

/// The keys of an arm in a study with the choices `own`.
pub(crate) fn keys(own: &[Choice]) -> impl Iterator<Item = &'static str> + Clone {
    MECHANISMS.iter().map(|of| of.key).chain(own.iter().map(|of| of.key))
}

/// The name of a value of `key` as it was declared.
pub(crate) fn value(key: &str, given: &str, own: &[Choice]) -> Result<&'static str, UnknownName> {
    let policies = Mechanism::of(key).map(|of| of.policies);
    let names: Vec<&'static str> = match policies {
        Some(policies) => policies.iter().map(|policy| policy.name).collect(),
        None => own.iter().filter(|of| of.key == key).flat_map(|of| of.values).copied().collect(),
    };
    let what = if policies.is_some() { "policy" } else { "value" };
    let found = names.iter().find(|name| **name == given).copied();
    found.ok_or_else(|| UnknownName::new(what, given, names.iter().copied()))
}

impl Arm {
    /// Chooses a value. Both names are declared ones: of [`keys`] and [`value`].
    pub fn choose(&mut self, key: &'static str, value: &'static str) {
        self.0.insert(key, value);
    }

    /// The value that it chose for a key, if it chose one.
    pub fn chosen(&self, key: &str) -> Option<&'static str> {
        self.0.get(key).copied()
    }

    /// Gives a memory manager the policies that the arm chose. Others stay as they are, so a
    /// study's parameters come before.
    pub(crate) fn configure(&self, mm: &mut MmConfig) {
        for mechanism in MECHANISMS {
            let chosen = self.chosen(mechanism.key).and_then(|name| mechanism.policy(name));
            if let Some(policy) = chosen {
                mechanism.choose(mm, policy);
            }
        }
    }

    /// Whether it chooses no policy but those of Linux, which a live kernel has.
    pub(crate) fn is_stock(&self) -> bool {
        let is_default =
            |of: &Mechanism| self.chosen(of.key).is_none_or(|policy| policy == of.default().name);
        MECHANISMS.iter().all(is_default)
    }

    /// What is in force in a run of the arm, by key: its own choice, else `elsewhere`'s (the
    /// study's parameters), else the default. A live kernel has its own mechanisms, so there it is
    /// only what the workload does differently.
    pub fn in_force(
        &self,
        own: &[Choice],
        on: On,
        elsewhere: impl Fn(&str) -> Option<String>,
    ) -> BTreeMap<String, String> {
        let mechanisms = if on == On::Linux { &[] } else { MECHANISMS };
        let defaults = mechanisms.iter().map(|of| (of.key, of.default().name));
        let defaults = defaults.chain(own.iter().map(|of| (of.key, of.values[0])));
        let of = |(key, default): (&'static str, &str)| {
            let chosen = self.chosen(key).map(str::to_owned).or_else(|| elsewhere(key));
            (key.to_owned(), chosen.unwrap_or_else(|| default.to_owned()))
        };
        defaults.map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_frames::page_alloc::MemoryMap;
    use mmscale_mm::upkeep::TickPolicy;

    #[test]
    fn an_arm_gives_a_memory_manager_each_policy_that_it_chose() {
        for mechanism in MECHANISMS {
            for policy in mechanism.policies {
                let mut arm = Arm::default();
                arm.choose(mechanism.key, policy.name);
                let mut mm = MmConfig::new(MemoryMap::single(1 << 16), TickPolicy::Stock);
                arm.configure(&mut mm);
                let of = format!("{}={}", mechanism.key, policy.name);
                assert_eq!(mechanism.chosen(&mm), policy, "{of}");
                assert_eq!(arm.is_stock(), policy == mechanism.default(), "{of}");
            }
        }
    }

    #[test]
    fn what_is_in_force_is_the_arms_choice_then_the_parameters_then_linux() {
        let own = [Choice { key: "bind", values: &["stay", "move"] }];
        let mut arm = Arm::default();
        arm.choose("lru", "freeze");
        let param = |key: &str| ["lru", "exit"].contains(&key).then(|| "lazy".to_owned());
        let keys = |on| arm.in_force(&own, on, param).into_keys().collect::<Vec<_>>();
        assert_eq!(keys(On::Sim), ["bind", "caches", "calls", "exit", "lru", "tick"]);
        assert_eq!(keys(On::Linux), ["bind"]);
        let of = arm.in_force(&own, On::Sim, param);
        let of = ["lru", "exit", "tick", "bind"].map(|key| of[key].as_str());
        assert_eq!(of, ["freeze", "lazy", "stock", "stay"]);
    }
}
