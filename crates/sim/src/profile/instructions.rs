//! The time of operations whose instructions a profile has, on a version of Linux.
//!
//! A machine has the time of an instruction, a kernel the number of instructions of an operation.

use super::kernels::{kernel, time_key};
use super::{Basis, Merged, Number, instructions_key, op_key};
use mmscale_arch::Op;

impl Merged {
    /// Returns the profile with the instructions of a version of Linux: those of the last kernel at
    /// or before it. Numbers that its files have stay.
    pub fn on_linux(&self, major: u16, minor: u16) -> Self {
        let (name, numbers) = kernel((major, minor));
        self.with_kernel(name, &numbers)
    }

    /// Returns the time of an operation, with its range and source; that of its instructions if the
    /// profile has no time for it.
    pub fn op(&self, op: Op) -> Option<Number> {
        if let Some(number) = self.file.ops.get(&op_key(op)) {
            return Some(number.clone());
        }
        let count = self.file.instructions.get(&instructions_key(op))?;
        let time = self.file.costs.get(time_key(op))?;
        let ends = [0, 1].map(|end| count.range[end] * time.range[end]);
        let is_assumed = Basis::of(&time.source) == Ok(Basis::Assumed);
        let how = if is_assumed { "assumption:" } else { "derived from" };
        Some(Number {
            // A product of two decimal numbers has few digits.
            value: (count.value * time.value * 1e6).round() / 1e6,
            range: ends,
            source: format!(
                "{how} {} instructions ({}) of {} ns ({})",
                count.value,
                count.source,
                time.value,
                time_key(op)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ProfileError, Profiles, open, resolve};
    use super::*;

    fn ps(profile: &Merged, op: Op) -> u64 {
        profile.resolve().unwrap().costs.op_ps[op as usize]
    }

    #[test]
    fn an_operation_takes_the_time_of_its_instructions_on_the_chosen_version() {
        let profile = open("x86-512").unwrap();
        for version in [(5, 10), (6, 18), (7, 3)] {
            let (name, counts) = kernel(version);
            let of = profile.on_linux(version.0, version.1);
            let [link, edit] = [Op::LruLink, Op::VmaEdit]
                .map(|op| (ps(&of, op), counts[&instructions_key(op)].value));
            assert_eq!(link.0, (link.1 * 200.0).round() as u64, "under a lock");
            assert_eq!(edit.0, (edit.1 * 350.0).round() as u64);
            assert_eq!((of.kernel.as_str(), of.bases.len()), (name, 1));
        }
        let slow = profile.with_cost("hold_instruction_ns", 0.3).unwrap();
        assert_eq!(ps(&slow, Op::LruLink) * 2, ps(&profile, Op::LruLink) * 3);
        assert_eq!(ps(&slow, Op::VmaEdit), ps(&profile, Op::VmaEdit));
    }

    #[test]
    fn a_time_that_a_profile_has_is_kept_on_each_version() {
        let profile = open("x86-26").unwrap();
        let own = ps(&profile, Op::BuddyTake);
        assert_eq!(own, 2300);
        assert_eq!(ps(&profile.on_linux(7, 3), Op::BuddyTake), own);
        // The nearer file wins, also with the number of instructions.
        let text = "base = \"x86-26\"\ndescription = \"mine\"\n[instructions]\n\
                    buddy_take_instructions = \
                    { value = 100, range = [1, 200], source = \"assumption: x\" }\n";
        let profiles = Profiles::with(&[("mine", text)]);
        let mine = profiles.open("mine").unwrap();
        assert_eq!(ps(&mine, Op::BuddyTake), 20_000);
        assert_eq!(ps(&mine.on_linux(6, 1), Op::BuddyTake), 20_000);
    }

    #[test]
    fn a_call_may_set_the_time_of_an_operation_that_has_instructions() {
        let profile = open("x86-512").unwrap();
        let set = profile.with_cost("lru_link_ns", 40.0).unwrap();
        assert_eq!(ps(&set, Op::LruLink), 40_000);
        let why = profile.with_cost("lru_link_ns", 1e4).unwrap_err().to_string();
        assert!(why.contains("lru_link_ns=10000") && why.contains("16.1 to 145.25"), "{why}");
        let more = profile.with_cost("lru_link_instructions", 400.0).unwrap();
        assert_eq!(ps(&more, Op::LruLink), 80_000);
    }

    #[test]
    fn a_file_with_both_is_refused() {
        let mut file = open("x86-2").unwrap().file;
        let number = file.instructions["lru_link_instructions"].clone();
        file.ops.insert("lru_link_ns".to_owned(), number);
        let why = resolve("mine", &file).unwrap_err();
        assert!(matches!(why, ProfileError::Number { .. }), "{why}");
        assert!(why.to_string().contains("both stated; remove one"), "{why}");
    }
}
