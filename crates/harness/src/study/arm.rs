//! Arms: the policies of the memory manager that a run uses, by name.

use super::guest;
use crate::names::UnknownName;
use mmscale_document::Target;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::policy::{MECHANISMS, Mechanism};
use std::collections::BTreeMap;

/// A variant of a study's workload that an arm may choose.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The key in an arm.
    pub key: &'static str,
    /// The values; the first one applies to arms without the key.
    pub values: &'static [&'static str],
}

/// The choices of an arm: the policies of some mechanisms, and variants of the workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arm(BTreeMap<&'static str, &'static str>);

/// Returns the keys of an arm in a study with the choices `own`.
pub(crate) fn keys(own: &[Choice]) -> impl Iterator<Item = &'static str> + Clone {
    MECHANISMS.iter().map(|of| of.key).chain(own.iter().map(|of| of.key))
}

/// Returns the declared name of a value of `key`.
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
    /// Chooses a value. Key and value must come from [`keys`] and [`value`], or be a guest's.
    pub fn choose(&mut self, key: &'static str, value: &'static str) {
        self.0.insert(key, value);
    }

    /// Returns the chosen value of a key. `None` if the arm does not choose one.
    pub fn chosen(&self, key: &str) -> Option<&'static str> {
        self.0.get(key).copied()
    }

    /// Applies the chosen policies to the configuration of a memory manager. Other policies stay
    /// unchanged, so the study's parameters must be applied before.
    pub(crate) fn configure(&self, mm: &mut MmConfig) {
        for mechanism in MECHANISMS {
            let chosen = self.chosen(mechanism.key).and_then(|name| mechanism.policy(name));
            if let Some(policy) = chosen {
                mechanism.choose(mm, policy);
            }
        }
        if let Some(file) = self.chosen(guest::KEY).and_then(guest::file_of) {
            let loaded = guest::load(file);
            mm.alloc.guest = Some(loaded.unwrap_or_else(|why| panic!("a guest allocator: {why}")));
        }
    }

    /// Returns the effective choices in a run of the arm, by key: the arm's own choice, else that
    /// of `elsewhere` (the study's parameters), else the default. For a live kernel, which has its
    /// own mechanisms, only the workload variants.
    pub fn in_force(
        &self,
        own: &[Choice],
        on: Target,
        elsewhere: impl Fn(&str) -> Option<String>,
    ) -> BTreeMap<String, String> {
        let mechanisms = if on == Target::Live { &[] } else { MECHANISMS };
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
    use mmscale_mm::vmstat_work::TickPolicy;

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
        let mut known: Vec<_> = MECHANISMS.iter().map(|of| of.key).chain(["bind"]).collect();
        known.sort_unstable();
        assert_eq!(keys(Target::Sim), known);
        assert_eq!(keys(Target::Live), ["bind"]);
        let of = arm.in_force(&own, Target::Sim, param);
        let of = ["lru", "exit", "tick", "bind"].map(|key| of[key].as_str());
        assert_eq!(of, ["freeze", "lazy", "stock", "stay"]);
    }
}
