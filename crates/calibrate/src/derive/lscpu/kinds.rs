//! Cores of several kinds: small, middle and large ones, as in a phone.

use std::collections::BTreeMap;

/// A kind of cores.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Kind {
    /// The number of CPUs.
    pub(in super::super) cpus: usize,
    /// The speed next to that of the largest kind, in percent.
    pub(in super::super) percent: f64,
    /// Whether the speed is the kernel's capacity, and not the clock alone.
    pub(in super::super) capacity: bool,
}

/// Kinds whose speeds differ by less than this factor are one: cores of one kind have clocks of
/// their own, too.
const GAP: f64 = 1.1;

/// The most kinds of a profile.
const MOST: usize = 3;

/// Divides CPUs by speed, the slowest first. Returns the kind of each CPU; one kind is none.
/// `speeds` are capacities or clocks of the CPUs by number.
pub(super) fn kinds(
    speeds: &BTreeMap<u64, f64>,
    capacity: bool,
) -> Result<(Vec<Kind>, BTreeMap<u64, usize>), String> {
    let mut sorted: Vec<(u64, f64)> = speeds.iter().map(|(cpu, speed)| (*cpu, *speed)).collect();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let top = sorted.last().map_or(1.0, |(_, speed)| *speed);
    let mut groups: Vec<Vec<(u64, f64)>> = Vec::new();
    for (cpu, speed) in sorted {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| speed < last.1 * GAP) => {
                group.push((cpu, speed));
            }
            _ => groups.push(vec![(cpu, speed)]),
        }
    }
    if groups.len() > MOST {
        return Err(format!(
            "its cores are of {} kinds, and a profile has up to {MOST} (`small_cpus` and \
             `middle_cpus` of [clock]); give --cpus and --cluster, and write the kinds into the \
             profile",
            groups.len()
        ));
    }
    if groups.len() < 2 {
        return Ok((Vec::new(), BTreeMap::new()));
    }
    let of = groups.iter().enumerate();
    let of = of.flat_map(|(kind, group)| group.iter().map(move |(cpu, _)| (*cpu, kind))).collect();
    let kind = |group: &Vec<(u64, f64)>| {
        let mean = group.iter().map(|(_, speed)| speed).sum::<f64>() / group.len() as f64;
        let percent = (1000.0 * mean / top).round() / 10.0;
        Kind { cpus: group.len(), percent, capacity }
    };
    Ok((groups.iter().map(kind).collect(), of))
}
