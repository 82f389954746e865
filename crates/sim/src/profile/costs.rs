//! The numbers of a profile that are costs, and another value for one of them.

use super::error::{nearest, replaced};
use super::{Merged, Number, ProfileError, ProfileFile, instructions_key, op_key};
use mmscale_arch::Op;

/// Sections whose numbers are costs. Those of other sections describe the machine that was asked
/// for.
const SECTIONS: [&str; 6] = ["costs", "ops", "instructions", "swap", "noise", "clock"];
/// Costs in a section of other numbers.
const OF_MEMORY: [&str; 3] = ["node_bytes_per_us", "write_traffic", "cluster_cache_kib"];

fn is_cost(section: &str, key: &str) -> bool {
    SECTIONS.contains(&section) || section == "memory" && OF_MEMORY.contains(&key)
}

impl ProfileFile {
    /// Returns the costs, each with its section and key.
    pub fn costs(&self) -> impl Iterator<Item = (&'static str, &str, &Number)> {
        self.sections().flat_map(|(section, numbers)| {
            let costs = numbers.iter().filter(move |(key, _)| is_cost(section, key));
            costs.map(move |(key, number)| (section, key.as_str(), number))
        })
    }

    /// Returns the cost of a key. Keys differ between sections.
    pub fn cost_mut(&mut self, key: &str) -> Option<&mut Number> {
        let mut sections = self.sections_mut();
        sections.find_map(
            |(section, numbers)| {
                if is_cost(section, key) { numbers.get_mut(key) } else { None }
            },
        )
    }
}

impl Merged {
    /// Returns the profile with another value of one cost.
    ///
    /// # Errors
    /// A key of no cost, or a value outside the cost's range.
    pub fn with_cost(&self, key: &str, value: f64) -> Result<Self, ProfileError> {
        let mut other = self.in_time(key).unwrap_or_else(|| self.clone());
        let Some(number) = other.file.cost_mut(key) else {
            if let Some(now) = replaced(key) {
                let (file, key) = (self.name.clone(), format!("--cost {key}"));
                return Err(ProfileError::OldKey { file, key, now });
            }
            let profile = self.name.clone();
            let nearest = nearest(key, self.file.costs().map(|(_, key, _)| key));
            return Err(ProfileError::UnknownCost { profile, key: key.to_owned(), nearest });
        };
        let [low, high] = number.range;
        // NaN is in no range.
        if !(low <= value && value <= high) {
            return Err(ProfileError::CostRange {
                profile: self.name.clone(),
                key: key.to_owned(),
                value,
                low,
                high,
                usual: number.value,
            });
        }
        number.value = value;
        Ok(other)
    }

    /// Returns the profile with the time of an operation in place of its instructions, if `key` is
    /// that of its time.
    fn in_time(&self, key: &str) -> Option<Self> {
        let op = Op::ALL.into_iter().find(|&op| op_key(op) == key)?;
        let mut other = self.clone();
        other.file.instructions.remove(&instructions_key(op))?;
        other.file.ops.insert(key.to_owned(), self.op(op)?);
        Some(other)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{builtin_names, open};

    #[test]
    fn every_cost_has_a_key_of_its_own() {
        for name in builtin_names() {
            let profile = open(name).unwrap();
            let mut keys = BTreeSet::new();
            for (section, key, _) in profile.file.costs() {
                assert!(keys.insert(key), "{name}: `{section}.{key}` is in two sections");
            }
            assert!(
                keys.contains("handoff_fixed_ns") && keys.contains("node_bytes_per_us"),
                "{name}"
            );
            assert!(!keys.contains("cpus") && !keys.contains("node_pages"), "{name}");
        }
    }

    #[test]
    fn another_cost_is_another_machine() {
        let profile = open("x86-512").unwrap();
        let other = profile.with_cost("handoff_fixed_ns", 110.0).unwrap().resolve().unwrap();
        let own = profile.resolve().unwrap();
        assert_eq!(other.costs.handoff_fixed_ps, 110_000);
        assert_ne!(other.hash, own.hash);
        assert_eq!(profile.with_cost("handoff_fixed_ns", 40.0).unwrap().resolve().unwrap(), own);
    }

    #[test]
    fn a_wrong_cost_is_refused_with_what_is_allowed() {
        let profile = open("x86-512").unwrap();
        let why = |key, value| profile.with_cost(key, value).unwrap_err().to_string();
        let range = why("handoff_fixed_ns", 5.0);
        assert!(range.contains("handoff_fixed_ns=5") && range.contains("10 to 120"), "{range}");
        assert!(why("handoff_fixed_ns", f64::NAN).contains("10 to 120"));
        assert!(why("handoff_ns", 110.0).contains("is now `handoff_fixed_ns` and"));
        assert!(why("handof_fixed_ns", 110.0).contains("did you mean `handoff_fixed_ns`?"));
        assert!(why("cpus", 8.0).contains("no cost named `cpus`"));
    }
}
