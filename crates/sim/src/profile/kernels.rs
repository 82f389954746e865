//! Instructions of operations, by version of Linux, and their time on a machine.
//!
//! A machine's profile has the time of an instruction, a kernel the number of instructions of an
//! operation. The numbers of `machines/kernels/` were counted on unmodified images
//! (`mmscale kernel instructions`). They are the last base of every profile: a profile that has an
//! operation's time, or its own number of instructions, keeps it.

use super::{Basis, Merged, Number, Section, instructions_key, op_key, parse};
use crate::speed::Pace;
use mmscale_arch::Op;

/// A version of Linux as two numbers.
type Version = (u16, u16);

/// The kernels, oldest first: name, version, text of the file.
const KERNELS: [(&str, Version, &str); 3] = [
    ("linux-6.1", (6, 1), include_str!("../../machines/kernels/linux-6.1.toml")),
    ("linux-6.12", (6, 12), include_str!("../../machines/kernels/linux-6.12.toml")),
    ("linux-7.3", (7, 3), include_str!("../../machines/kernels/linux-7.3.toml")),
];

/// The version that policies without another one have.
const USUAL: Version = (6, 18);

/// Returns the name and the numbers of the last kernel at or before a version; the oldest for those
/// before it.
fn kernel(version: Version) -> (&'static str, Section) {
    let found = KERNELS.iter().rev().find(|(_, of, _)| *of <= version);
    let (name, _, text) = found.unwrap_or(&KERNELS[0]);
    (name, parse(name, text).expect("a table of this program").instructions)
}

/// Returns the kernel of a profile for which no version is chosen.
pub(super) fn usual() -> (&'static str, Section) {
    kernel(USUAL)
}

/// How fast the instructions of an operation are executed: under a spin lock, few lines are used
/// again and again.
const fn pace(op: Op) -> Pace {
    match op {
        Op::PcpTake
        | Op::PcpPut
        | Op::RefillPage
        | Op::DrainPage
        | Op::BuddyTake
        | Op::BuddyPut
        | Op::BuddyStep
        | Op::LruLink
        | Op::LruDetach
        | Op::MapPage
        | Op::UnmapPage
        | Op::StatUpdate => Pace::InHold,
        _ => Pace::Usual,
    }
}

/// Returns the key of the time of an instruction of an operation, in the section `costs`.
pub(super) const fn time_key(op: Op) -> &'static str {
    match pace(op) {
        Pace::InHold => "hold_instruction_ns",
        Pace::Usual => "instruction_ns",
    }
}

/// Returns the key of the same operation in the section `ops` or `instructions` where this is one
/// of the other.
pub(super) fn other_key(section: &str, key: &str) -> Option<(&'static str, String)> {
    match section {
        "ops" => {
            let name = key.strip_suffix("_ns")?;
            Some(("instructions", format!("{name}_instructions")))
        }
        "instructions" => {
            let name = key.strip_suffix("_instructions")?;
            Some(("ops", format!("{name}_ns")))
        }
        _ => None,
    }
}

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
            value: count.value * time.value,
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
    use std::collections::BTreeSet;

    fn ps(profile: &Merged, op: Op) -> u64 {
        profile.resolve().unwrap().costs.op_ps[op as usize]
    }

    #[test]
    fn every_kernel_has_the_same_operations() {
        let keys = |(name, version, _): &(&str, Version, &str)| {
            let (of, numbers) = kernel(*version);
            assert_eq!(of, *name);
            assert!(numbers.values().all(|number| number.problem().is_none()), "{name}");
            numbers.into_keys().collect::<BTreeSet<_>>()
        };
        let all: Vec<_> = KERNELS.iter().map(keys).collect();
        assert!(all[0].len() > 15 && all.iter().all(|keys| *keys == all[0]));
        let [before, between, usual] = [(5, 0), (6, 11), USUAL].map(|version| kernel(version).0);
        assert_eq!([before, between, usual], ["linux-6.1", "linux-6.1", "linux-6.12"]);
    }

    #[test]
    fn an_operation_takes_the_time_of_its_instructions_on_the_chosen_version() {
        let profile = open("x86-512").unwrap();
        for (version, name) in [((5, 10), 0), ((6, 18), 1), ((7, 3), 2)] {
            let counts = kernel(KERNELS[name].1).1;
            let of = profile.on_linux(version.0, version.1);
            let [link, edit] = [Op::LruLink, Op::VmaEdit]
                .map(|op| (ps(&of, op), counts[&instructions_key(op)].value));
            assert_eq!(link.0, (link.1 * 200.0).round() as u64, "under a lock");
            assert_eq!(edit.0, (edit.1 * 350.0).round() as u64);
            assert_eq!(of.bases.last().unwrap(), KERNELS[name].0);
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
                    buddy_take_instructions = { value = 100, range = [1, 200], source = \"assumption: x\" }\n";
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
        assert!(why.contains("lru_link_ns=10000") && why.contains("usual"), "{why}");
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
