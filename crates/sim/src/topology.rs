//! Distances between CPUs.

use crate::profile::{LineCosts, Topology};
use mmscale_arch::MAX_NODES;
use mmscale_document::Doing;

/// No CPU, in a CPU number of 16 bits.
pub(crate) const NO_CPU: u16 = u16::MAX;

/// Position of a CPU in the topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(8))]
struct Position {
    core: u16,
    cluster: u16,
    node: u16,
}

/// Positions of all CPUs, and the costs of moving a line between two.
pub(crate) struct Distances {
    distances: Vec<Position>,
    line: LineCosts,
    /// The cost of moving a line between two CPUs, in ps, indexed by where they differ: cluster
    /// (1), node (2), core (4). A table, because hosts cannot predict the branches.
    apart_ps: [u64; 8],
    nodes: usize,
}

/// Returns the topology of a machine with `cpus` CPUs after the pattern of `of`. Fewer CPUs are the
/// first ones; more CPUs are more nodes of the same size (larger ones beyond `MAX_NODES`).
pub fn scaled(of: &Topology, cpus: usize) -> Topology {
    let per_node = of.cpus.div_ceil(of.nodes.max(1)).max(1);
    let per_node = per_node.max(cpus.div_ceil(MAX_NODES));
    let nodes = cpus.div_ceil(per_node).max(1);
    Topology { cpus, smt: of.smt.max(1), cluster: of.cluster.clamp(1, per_node), nodes }
}

impl Distances {
    pub(crate) fn new(of: &Topology, cpus: usize, line: LineCosts) -> Self {
        let per_node = of.cpus.div_ceil(of.nodes.max(1)).max(1).max(cpus.div_ceil(MAX_NODES));
        let topology = scaled(of, cpus);
        let distances = (0..cpus)
            .map(|cpu| Position {
                core: (cpu / topology.smt) as u16,
                cluster: (cpu / topology.cluster) as u16,
                node: (cpu / per_node) as u16,
            })
            .collect();
        let LineCosts { smt_ps, cluster_ps, node_ps, remote_ps, .. } = line;
        let apart_ps = [smt_ps, smt_ps, smt_ps, smt_ps, cluster_ps, node_ps, remote_ps, remote_ps];
        Self { distances, line, apart_ps, nodes: topology.nodes }
    }
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }
    pub(crate) fn clusters(&self) -> usize {
        self.distances.last().map_or(1, |last| usize::from(last.cluster) + 1)
    }
    #[inline]
    pub(crate) fn node_of(&self, cpu: usize) -> usize {
        self.distances[cpu].node as usize
    }
    pub(crate) fn core_of(&self, cpu: usize) -> usize {
        self.distances[cpu].core as usize
    }
    pub(crate) fn cluster_of(&self, cpu: usize) -> usize {
        self.distances[cpu].cluster as usize
    }
    /// Returns the cost of moving a line from `from` (`NO_CPU`: from memory) to `to`, in ps.
    #[inline]
    pub(crate) fn transfer_ps(&self, from: u16, to: usize) -> u64 {
        if usize::from(from) == to {
            return self.line.own_ps;
        }
        if from == NO_CPU {
            return self.line.memory_ps;
        }
        let (a, b) = (self.distances[usize::from(from)], self.distances[to]);
        let cluster = usize::from(a.cluster != b.cluster);
        let node = usize::from(a.node != b.node);
        let core = usize::from(a.core != b.core);
        self.apart_ps[cluster | node << 1 | core << 2]
    }
    /// Returns the way of `to` to a line that is in no CPU's cache, but in the interconnect of the
    /// node of `from`, which used it last.
    pub(crate) fn far_ps(&self, from: u16, to: usize) -> u64 {
        let way_ps = if from == NO_CPU { 0 } else { self.transfer_ps(from, to) };
        way_ps.max(self.line.node_ps)
    }
    /// Returns where a line comes from that `to` does not have, and `from` has.
    pub(crate) fn miss(&self, from: u16, to: usize) -> Doing {
        let Some(a) = self.distances.get(usize::from(from)) else { return Doing::MissMemory };
        let b = self.distances[to];
        if a.core == b.core {
            Doing::MissCore
        } else if a.node != b.node {
            Doing::MissRemote
        } else if a.cluster == b.cluster {
            Doing::MissCluster
        } else {
            Doing::MissNode
        }
    }
    /// Returns the cost of moving a line between two cores of a cluster.
    pub(crate) fn cluster_ps(&self) -> u64 {
        self.line.cluster_ps
    }
    pub(crate) fn memory_ps(&self) -> u64 {
        self.line.memory_ps
    }
    pub(crate) fn own_ps(&self) -> u64 {
        self.line.own_ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: LineCosts =
        LineCosts { own_ps: 1, smt_ps: 2, cluster_ps: 3, node_ps: 4, remote_ps: 5, memory_ps: 6 };

    #[test]
    fn distance_follows_thread_cluster_node_and_memory() {
        let distances =
            Distances::new(&Topology { cpus: 16, smt: 2, cluster: 4, nodes: 2 }, 16, LINE);
        let costs: Vec<_> = [0, 1, 2, 4, 8].map(|from| distances.transfer_ps(from, 0)).into();
        assert_eq!(costs, [1, 2, 3, 4, 5]);
        assert_eq!(distances.transfer_ps(NO_CPU, 3), 6);
        let misses: Vec<_> = [1, 2, 4, 8, NO_CPU].map(|from| distances.miss(from, 0)).into();
        use Doing::{MissCluster, MissCore, MissMemory, MissNode, MissRemote};
        assert_eq!(misses, [MissCore, MissCluster, MissNode, MissRemote, MissMemory]);
    }

    #[test]
    fn a_scaled_machine_keeps_the_size_of_its_nodes() {
        let of = Topology { cpus: 72, smt: 1, cluster: 72, nodes: 1 };
        assert_eq!(scaled(&of, 8).nodes, 1);
        assert_eq!(scaled(&of, 144).nodes, 2);
        assert_eq!(Distances::new(&of, 144, LINE).node_of(72), 1);
        assert!(scaled(&Topology { cpus: 8, nodes: 1, ..of }, 4096).nodes <= MAX_NODES);
    }
}
