//! The CPUs of this computer: their groups, and pairs between which lines and locks are measured.

use mmscale_system::CpuPosition;
use mmscale_threads::calibrate::{Apart, Pair};

/// CPUs that this process may use, by the system's numbers, with their positions; empty if the
/// system does not say.
pub(super) type Cpus = Vec<(usize, CpuPosition)>;

/// Asks the system.
pub(super) fn cpus() -> Cpus {
    #[cfg(feature = "live")]
    return mmscale_linux::cpu_positions().unwrap_or_default();
    #[cfg(not(feature = "live"))]
    Vec::new()
}

/// Asks the system for the size of the last-level cache, in KiB.
pub(super) fn cache_kib() -> Option<u64> {
    #[cfg(feature = "live")]
    return mmscale_linux::last_level_cache_kib();
    #[cfg(not(feature = "live"))]
    None
}

/// Returns one pair for each way in which two CPUs part.
pub(super) fn pairs(cpus: &Cpus) -> Vec<Pair> {
    let one_cache_a_node = cpus.iter().all(|(_, one)| {
        cpus.iter().all(|(_, other)| one.node != other.node || one.cluster == other.cluster)
    });
    let apart = |one: CpuPosition, other: CpuPosition| {
        if one.node != other.node {
            Apart::Remote
        } else if one.core == other.core {
            Apart::Thread
        } else if one.cluster == other.cluster && !one_cache_a_node {
            Apart::Cluster
        } else {
            Apart::Node
        }
    };
    let mut pairs: Vec<Pair> = Vec::new();
    for (at, &(one, position)) in cpus.iter().enumerate() {
        for &(other, beside) in &cpus[at + 1..] {
            let apart = apart(position, beside);
            if pairs.iter().all(|pair| pair.apart != apart) {
                pairs.push(Pair { apart, cpus: [one, other] });
            }
        }
    }
    pairs.sort_by_key(|pair| pair.apart);
    pairs
}

/// The sizes of groups: hardware threads of a core, CPUs behind a last-level cache, and nodes.
pub(super) fn groups(cpus: &Cpus) -> [usize; 3] {
    let most = |of: fn(&CpuPosition) -> usize| {
        let count = |number| cpus.iter().filter(|(_, other)| of(other) == number).count();
        cpus.iter().map(|(_, cpu)| count(of(cpu))).max().unwrap_or(1)
    };
    let mut nodes: Vec<usize> = cpus.iter().map(|(_, cpu)| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    [most(|cpu| cpu.core), most(|cpu| cpu.cluster), nodes.len().max(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computer(threads: usize, cores: usize, clusters: usize, nodes: usize) -> Cpus {
        let all = threads * cores * clusters * nodes;
        let at = |cpu: usize| {
            let core = cpu / threads;
            CpuPosition { core, cluster: core / cores, node: core / cores / clusters }
        };
        (0..all).map(|cpu| (cpu + 3, at(cpu))).collect()
    }
    fn of(apart: Apart, cpus: [usize; 2]) -> Pair {
        Pair { apart, cpus }
    }

    #[test]
    fn there_is_one_pair_for_each_way_to_part() {
        assert_eq!(
            pairs(&computer(2, 2, 2, 2)),
            [
                of(Apart::Thread, [3, 4]),
                of(Apart::Cluster, [3, 5]),
                of(Apart::Node, [3, 7]),
                of(Apart::Remote, [3, 11])
            ]
        );
        assert_eq!(pairs(&computer(1, 4, 1, 1)), [of(Apart::Node, [3, 4])]);
        assert_eq!(pairs(&computer(1, 1, 1, 1)), []);
    }

    #[test]
    fn groups_are_counted() {
        assert_eq!(groups(&computer(2, 4, 2, 2)), [2, 8, 2]);
        assert_eq!(groups(&Vec::new()), [1, 1, 1]);
    }
}
