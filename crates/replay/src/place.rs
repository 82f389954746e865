//! The recorded CPU that each CPU of a machine plays, and its copies of data.

use mmscale_arch::{Cpu, CpuId};
use mmscale_lift::{Recording, Share};
use mmscale_sim::Sim;

/// The CPUs of a recording, by their nodes. Nodes without CPUs are left out.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    nodes: Vec<Vec<usize>>,
}

impl Recorded {
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut nodes = vec![Vec::new(); recording.nodes()];
        for cpu in 0..recording.cpus.len() {
            let node = recording.origin.node_of_cpu.get(cpu).copied().unwrap_or(0);
            nodes[usize::from(node)].push(cpu);
        }
        nodes.retain(|cpus| !cpus.is_empty());
        Self { nodes }
    }
    /// Returns the place of CPU `index` of node `node`. `first_group` is the first group of the
    /// node.
    fn place(&self, node: usize, index: usize, first_group: usize) -> CpuPlace {
        let cpus = &self.nodes[node % self.nodes.len()];
        let group = first_group + index / cpus.len();
        let turn = index / cpus.len();
        CpuPlace { recorded: cpus[index % cpus.len()], node, group, turn, called: turn }
    }
    /// Returns the places of all CPUs of a machine, by the node of each CPU.
    fn places_on(&self, node_of: &[usize]) -> Places {
        let nodes = node_of.iter().max().map_or(1, |last| last + 1);
        let (mut places, mut groups) = (vec![CpuPlace::default(); node_of.len()], 0);
        for node in 0..nodes {
            let cpus = (0..node_of.len()).filter(|&cpu| node_of[cpu] == node);
            let first = groups;
            for (index, cpu) in cpus.enumerate() {
                places[cpu] = self.place(node, index, first);
                groups = places[cpu].group + 1;
            }
        }
        Places { cpus: places, nodes, groups }
    }
    /// Returns the places of all CPUs of the running machine.
    pub(crate) fn places(&self) -> Places {
        let cpus = (0..Sim::cpus_possible()).map(CpuId::new);
        self.places_on(&cpus.map(|cpu| Sim::node_of(cpu).index()).collect::<Vec<_>>())
    }
}

/// The place of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct CpuPlace {
    /// The recorded CPU that it plays.
    pub(crate) recorded: usize,
    /// Its node.
    pub(crate) node: usize,
    /// Its group: as many CPUs of a node as were recorded of one. Numbers differ between nodes.
    pub(crate) group: usize,
    /// The number of its group among those of its node. CPUs of all nodes with one number are as
    /// many as were recorded.
    pub(crate) turn: usize,
    /// That of the CPUs that it calls, or its own.
    pub(crate) called: usize,
}

impl CpuPlace {
    /// Returns which copy of data the CPU uses.
    pub(crate) fn copy(&self, share: Share) -> usize {
        match share {
            Share::Few => self.group,
            Share::Node => self.node,
            Share::Private | Share::All => 0,
        }
    }
}

/// The places of all CPUs of a machine.
pub(crate) struct Places {
    pub(crate) cpus: Vec<CpuPlace>,
    nodes: usize,
    groups: usize,
}

impl Places {
    /// Returns the place of a CPU that uses data of other CPUs, `by` groups further.
    /// With `by_called` it is data of its own for CPUs that it calls there.
    pub(crate) fn further(&self, place: CpuPlace, by: usize, by_called: bool) -> CpuPlace {
        let turn = (place.turn + by) % self.turns();
        let first = place.group - place.turn;
        match by_called {
            true => CpuPlace { called: turn, ..place },
            false => CpuPlace { turn, group: (first + turn) % self.groups.max(1), ..place },
        }
    }
    /// Returns the most groups of a node.
    pub(crate) fn turns(&self) -> usize {
        self.cpus.iter().map(|place| place.turn + 1).max().unwrap_or(1)
    }
    /// Returns the number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }
    /// Returns how many copies the machine has of data. Data of one CPU need none: no other CPU
    /// ever uses them.
    pub(crate) fn copies(&self, share: Share) -> usize {
        match share {
            Share::Private => 0,
            Share::Few => self.groups,
            Share::Node => self.nodes,
            Share::All => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_lift::{Operation, Origin};

    fn recorded(node_of_cpu: &[u8]) -> Recorded {
        let origin = Origin { node_of_cpu: node_of_cpu.to_vec(), ..Origin::default() };
        let cpus = vec![vec![Operation::default()]; node_of_cpu.len()];
        Recorded::of(&Recording { origin, cpus, ..Recording::default() })
    }

    fn all(places: &Places, of: impl Fn(&CpuPlace) -> usize) -> Vec<usize> {
        places.cpus.iter().map(of).collect()
    }

    #[test]
    fn a_node_plays_the_cpus_of_a_recorded_node_in_groups() {
        let places = recorded(&[0, 0, 1, 1]).places_on(&[0, 0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(all(&places, |place| place.recorded), [0, 1, 0, 2, 3, 2, 0, 1, 0]);
        assert_eq!(all(&places, |place| place.group), [0, 0, 1, 2, 2, 3, 4, 4, 5]);
        assert_eq!(all(&places, |place| place.copy(Share::Node)), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        let copies = [Share::Private, Share::Few, Share::Node, Share::All];
        assert_eq!(copies.map(|share| places.copies(share)), [0, 6, 3, 1]);
    }

    #[test]
    fn nodes_may_have_different_numbers_of_cpus() {
        let places = recorded(&[0, 2, 2, 2]).places_on(&[0, 0, 1, 1, 1, 1]);
        assert_eq!(all(&places, |place| place.recorded), [0, 0, 1, 2, 3, 1]);
        assert_eq!(all(&places, |place| place.group), [0, 1, 2, 2, 2, 3]);
    }
}
