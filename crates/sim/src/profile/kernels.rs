//! Instructions of operations, by version of Linux.
//!
//! The numbers of `machines/kernels/` were counted on unmodified images
//! (`mmscale kernel instructions`). They are the last base of every profile: a profile that has an
//! operation's time, or its own number of instructions, keeps it.

use super::{Section, parse};
use mmscale_arch::Op;

/// A version of Linux as two numbers.
pub(super) type Version = (u16, u16);

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
pub(super) fn kernel(version: Version) -> (&'static str, Section) {
    let found = KERNELS.iter().rev().find(|(_, of, _)| *of <= version);
    let (name, _, text) = found.unwrap_or(&KERNELS[0]);
    (name, parse(name, text).expect("a table of this program").instructions)
}

/// Returns the kernel of a profile for which no version is chosen.
pub(super) fn usual() -> (&'static str, Section) {
    kernel(USUAL)
}

/// Whether an operation is executed under a spin lock, where few lines are used again and again.
const fn is_in_hold(op: Op) -> bool {
    matches!(
        op,
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
            | Op::StatUpdate
    )
}

/// Returns the key of the time of an instruction of an operation, in the section `costs`.
pub(super) const fn time_key(op: Op) -> &'static str {
    if is_in_hold(op) { "hold_instruction_ns" } else { "instruction_ns" }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
}
