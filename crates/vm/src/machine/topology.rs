//! CPUs, nodes and memory of a machine.

use thiserror::Error;

/// The largest number of CPUs: more need interrupt numbers beyond 255, which was not tried.
const MAX_CPUS: usize = 255;
/// The smallest memory: with less, kernel and this program do not fit.
const MIN_BYTES: u64 = 256 << 20;
const MIB: u64 = 1 << 20;
/// Bytes of memory below 4 GiB, and where the rest begins.
const LOW_BYTES: u64 = 1 << 30;
const HIGH: u64 = 4 << 30;
/// The distance of a node from itself, and the smallest and largest between two.
const OWN_DISTANCE: u32 = 10;

/// The CPUs and the memory of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: usize,
    nodes: usize,
    distance: u32,
    memory_bytes: u64,
}

/// A machine that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TopologyError(String);

impl Topology {
    /// The distance between two nodes of most machines with two.
    pub const DISTANCE: u32 = 21;
    /// The memory of a machine. Below 3 GiB it would have no zone Normal; what it does not touch
    /// costs nothing.
    pub const MEMORY_BYTES: u64 = 4 << 30;

    /// Creates a topology: CPUs are divided equally among nodes, and so is memory. `distance` is
    /// the one between any two nodes, as the firmware gives it (10 is a node itself).
    ///
    /// # Errors
    /// The numbers do not fit together.
    pub fn new(
        cpus: usize,
        nodes: usize,
        distance: u32,
        memory_bytes: u64,
    ) -> Result<Self, TopologyError> {
        let wrong = |what: String| Err(TopologyError(what));
        if cpus == 0 || cpus > MAX_CPUS {
            return wrong(format!("--cpus {cpus}: a virtual machine has 1 to {MAX_CPUS}"));
        }
        if nodes == 0 || !cpus.is_multiple_of(nodes) {
            return wrong(format!("--nodes {nodes}: {cpus} CPUs are not divided equally by it"));
        }
        if !(OWN_DISTANCE + 1..=254).contains(&distance) {
            return wrong(format!("--distance {distance}: between two nodes it is 11 to 254"));
        }
        if memory_bytes < MIN_BYTES * nodes as u64 {
            let (has, needs) = (memory_bytes / MIB, MIN_BYTES / MIB);
            let least = needs * nodes as u64;
            return wrong(format!(
                "--memory: {has} MiB; each node needs {needs} MiB at least, such as --memory \
                 {least}MiB"
            ));
        }
        Ok(Self { cpus, nodes, distance, memory_bytes })
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// The number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The bytes of memory of a node.
    pub(super) fn node_bytes(&self) -> u64 {
        self.memory_bytes / self.nodes as u64 / MIB * MIB
    }

    /// Returns the place of a physical address in the memory of all nodes.
    pub(super) fn place_of(address: u64) -> Option<u64> {
        match address {
            0..LOW_BYTES => Some(address),
            HIGH.. => Some(address - HIGH + LOW_BYTES),
            _ => None,
        }
    }

    /// The options of QEMU. `files` are those of the memory of nodes, if it is to be in files.
    pub(super) fn options(&self, files: Option<&[String]>) -> Vec<String> {
        let Self { cpus, nodes, distance, .. } = *self;
        // Memory below 1 GiB only: the rest is above 4 GiB, in zone Normal.
        let backend = if nodes == 1 && files.is_some() { ",memory-backend=m0" } else { "" };
        let machine = format!("q35,max-ram-below-4g=1G{backend}");
        let mut options = ["-machine", &machine, "-m"].map(str::to_owned).to_vec();
        let node_bytes = self.node_bytes();
        options.push(format!("{}M", node_bytes / MIB * nodes as u64));
        let smp = format!("cpus={cpus},sockets={nodes},cores={},threads=1", cpus / nodes);
        options.extend(["-smp".to_owned(), smp]);
        for node in 0..nodes {
            let size = format!("id=m{node},size={}M", node_bytes / MIB);
            let memory = match files {
                Some(files) => {
                    format!("memory-backend-file,{size},share=on,mem-path={}", files[node])
                }
                None if nodes == 1 => break,
                None => format!("memory-backend-ram,{size},reserve=off"),
            };
            options.extend(["-object".to_owned(), memory]);
        }
        if nodes == 1 {
            return options;
        }
        for node in 0..nodes {
            let (first, last) = (node * cpus / nodes, (node + 1) * cpus / nodes - 1);
            let numa = format!("node,nodeid={node},cpus={first}-{last},memdev=m{node}");
            options.extend(["-numa".to_owned(), numa]);
        }
        for from in 0..nodes {
            for to in 0..nodes {
                let value = if from == to { OWN_DISTANCE } else { distance };
                options.push("-numa".to_owned());
                options.push(format!("dist,src={from},dst={to},val={value}"));
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: usize, nodes: usize) -> Result<Topology, TopologyError> {
        Topology::new(cpus, nodes, Topology::DISTANCE, Topology::MEMORY_BYTES)
    }

    #[test]
    fn nodes_divide_cpus_and_memory() {
        let options = machine(8, 2).unwrap().options(None).join(" ");
        assert!(options.contains("-smp cpus=8,sockets=2,cores=4,threads=1"), "{options}");
        assert!(options.contains("nodeid=1,cpus=4-7,memdev=m1"), "{options}");
        assert!(options.contains("id=m0,size=2048M"), "{options}");
        assert!(options.contains("dist,src=0,dst=1,val=21"), "{options}");
        assert!(options.contains("dist,src=1,dst=1,val=10"), "{options}");
        assert!(!machine(8, 1).unwrap().options(None).join(" ").contains("numa"));
    }

    #[test]
    fn memory_may_be_in_files() {
        let files = ["/a", "/b"].map(str::to_owned);
        let two = machine(8, 2).unwrap().options(Some(&files)).join(" ");
        assert!(two.contains("id=m1,size=2048M,share=on,mem-path=/b"), "{two}");
        assert!(two.contains("nodeid=1,cpus=4-7,memdev=m1") && !two.contains("memory-backend="));
        let one = machine(8, 1).unwrap().options(Some(&files[..1])).join(" ");
        assert!(one.contains("memory-backend=m0 ") && one.contains("size=4096M,share=on"), "{one}");
    }

    #[test]
    fn machines_that_cannot_be_are_refused() {
        for (cpus, nodes) in [(0, 1), (256, 1), (8, 0), (8, 3), (2, 4)] {
            assert!(machine(cpus, nodes).is_err(), "{cpus} {nodes}");
        }
        assert!(Topology::new(4, 1, 10, 4 << 30).is_err());
        let why = Topology::new(4, 2, 21, 256 << 20).unwrap_err().to_string();
        assert!(why.contains("each node needs 256 MiB"), "{why}");
    }
}
