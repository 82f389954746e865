//! Machines with other numbers: one number moved to an end of its range, or all of them drawn from
//! their ranges.

use std::sync::Arc;

use mmscale_sim::profile::{Basis, Merged, Number, Profile, ProfileError};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::plan::{Plan, on_kernel};

/// The seed of the drawn machines: arbitrary, but fixed.
const SEED: u64 = 0x6d6d_7363_616c_6532;

/// A number that its range allows to move.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    section: &'static str,
    pub(super) key: String,
    pub(super) number: Number,
}

impl Moving {
    /// Returns the kind of the number's source.
    pub(super) fn basis(&self) -> &'static str {
        Basis::of(&self.number.source).map_or("unknown", Basis::name)
    }
    /// Returns a value at `share` of the range, 0 to 1. Ratios are equal for equal distances if the
    /// range has no 0, because costs are uncertain by factors.
    fn at(&self, share: f64) -> f64 {
        let [low, high] = self.number.range;
        let value =
            if low > 0.0 { low * (high / low).powf(share) } else { low + (high - low) * share };
        let whole = [low, high, self.number.value].iter().all(|x| x.fract() == 0.0);
        // Disturbances are in whole ns, costs are not.
        let costs = self.section != "noise";
        let timed = costs && (self.key.ends_with("_ns") || self.key.ends_with("_percent"));
        if whole && !timed { value.round() } else { value.clamp(low, high) }
    }
}

/// Returns the costs of a plan's profile that can move and that runs use.
pub(super) fn moving(plan: &Plan, profile: &Merged) -> Vec<Moving> {
    moving_of(&on_kernel(profile, plan.linux))
}

fn moving_of(profile: &Merged) -> Vec<Moving> {
    let can_move = |number: &Number| {
        number.range[0] < number.range[1] && Basis::of(&number.source) != Ok(Basis::Unused)
    };
    let costs = profile.file.costs().filter(|(.., number)| can_move(number));
    costs
        .map(|(section, key, number)| Moving {
            section,
            key: key.to_owned(),
            number: number.clone(),
        })
        .collect()
}

/// Returns the plan on a machine whose `number`s have other values.
pub(super) fn moved<'a>(
    plan: &Plan,
    profile: &Merged,
    values: impl IntoIterator<Item = (&'a Moving, f64)>,
) -> Result<Plan, ProfileError> {
    let mut other = on_kernel(profile, plan.linux);
    for (Moving { key, .. }, value) in values {
        other.file.cost_mut(key).expect("the number is of this profile").value = value;
    }
    let Profile { costs, swap, noise, clock, hash, .. } = other.resolve()?;
    let own = plan.profile.as_deref().expect("the plan is of a simulated machine");
    let machine = Profile { costs, swap, noise, clock, hash, ..own.clone() };
    Ok(Plan { profile: Some(Arc::new(machine)), ..plan.clone() })
}

/// Returns `machines` sets of values for all numbers, by a Latin hypercube: the range of each
/// number is split into as many parts as there are machines, and each machine has another part
/// (McKay, Beckman, Conover, "A comparison of three methods for selecting values of input
/// variables", 1979).
pub(super) fn drawn(numbers: &[Moving], machines: usize) -> Vec<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut sets = vec![Vec::with_capacity(numbers.len()); machines];
    for number in numbers {
        let mut parts: Vec<usize> = (0..machines).collect();
        for last in (1..machines).rev() {
            parts.swap(last, below(&mut rng, last + 1));
        }
        for (set, part) in sets.iter_mut().zip(parts) {
            let within = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            set.push(number.at((part as f64 + within) / machines as f64));
        }
    }
    sets
}

/// Returns a number below `n`, all equally likely but for one part in 2^64.
fn below(rng: &mut Xoshiro256PlusPlus, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_sim::profile::open;

    #[test]
    fn numbers_that_describe_the_machine_do_not_move() {
        let numbers = moving_of(&open("x86-512").unwrap());
        let has = |key: &str| numbers.iter().any(|number| number.key == key);
        assert!(has("handoff_fixed_ns") && has("clear_page_ns") && has("node_bytes_per_us"));
        assert!(!has("cpus") && !has("node_pages") && !has("hz"));
        assert!(has("lru_link_instructions") && has("hold_instruction_ns"));
    }

    #[test]
    fn a_profile_with_disturbances_can_be_drawn() {
        let mut profile = open("x86-16").unwrap();
        let numbers = moving_of(&profile);
        for set in drawn(&numbers, 3) {
            for (Moving { key, .. }, value) in numbers.iter().zip(set) {
                profile.file.cost_mut(key).unwrap().value = value;
            }
            profile.resolve().unwrap_or_else(|why| panic!("{why}"));
        }
    }

    #[test]
    fn each_part_of_a_range_is_drawn_once() {
        let numbers = moving_of(&open("x86-512").unwrap());
        let sets = drawn(&numbers, 8);
        for (at, number) in numbers.iter().enumerate() {
            let [low, high] = number.number.range;
            let mut values: Vec<f64> = sets.iter().map(|set| set[at]).collect();
            values.sort_by(f64::total_cmp);
            assert!(values[0] >= low && values[7] <= high, "{}", number.key);
            let whole = number.at(0.5).fract() == 0.0;
            for (part, value) in values.iter().enumerate().filter(|_| !whole) {
                let ends = [number.at(part as f64 / 8.0), number.at((part + 1) as f64 / 8.0)];
                assert!(ends[0] <= *value && *value <= ends[1], "{}: {values:?}", number.key);
            }
        }
        assert_eq!(sets, drawn(&numbers, 8), "the same machines each time");
    }
}
