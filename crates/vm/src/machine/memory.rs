//! The memory of a machine as files that this process can read, also after QEMU has ended.

use super::topology::Topology;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The memory of a machine, a file for each node. They are in memory, and as large as what was
/// touched.
#[derive(Debug)]
pub(crate) struct GuestMemory {
    nodes: Vec<File>,
    node_bytes: u64,
}

impl GuestMemory {
    /// Makes the files.
    pub(crate) fn new(topology: &Topology) -> io::Result<Self> {
        let node_bytes = topology.node_bytes();
        let nodes = (0..topology.nodes()).map(|_| {
            let file = File::from(memfd_create("memory", MemfdFlags::CLOEXEC)?);
            ftruncate(&file, node_bytes)?;
            Ok(file)
        });
        Ok(Self { nodes: nodes.collect::<io::Result<_>>()?, node_bytes })
    }
    /// Returns the files, by node.
    pub(super) fn files(&self) -> &[File] {
        &self.nodes
    }
    #[cfg(test)]
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let at = Topology::place_of(address).expect("there is memory");
        let node = &self.nodes[(at / self.node_bytes) as usize];
        node.write_all_at(bytes, at % self.node_bytes).expect("there is memory");
    }
    /// Reads memory at a physical address. Returns whether there is any.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let Some(at) = Topology::place_of(address) else { return false };
        let Some(node) = self.nodes.get((at / self.node_bytes) as usize) else { return false };
        // An object does not lie across nodes.
        node.read_exact_at(to, at % self.node_bytes).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_addresses_are_in_the_files_of_nodes() {
        const GIB: u64 = 1 << 30;
        let topology = Topology::new(4, 2, Topology::DISTANCE, 4 * GIB).unwrap();
        let memory = GuestMemory::new(&topology).unwrap();
        // 1 GiB is below 4 GiB, and 3 GiB of two nodes are above.
        memory.write(GIB - 4, b"low");
        memory.nodes[0].write_all_at(b"own", GIB).unwrap();
        memory.nodes[1].write_all_at(b"far", 0).unwrap();
        let read = |address| {
            let mut bytes = [0; 3];
            memory.read(address, &mut bytes).then_some(bytes)
        };
        assert_eq!(read(GIB - 4), Some(*b"low"));
        assert_eq!(read(4 * GIB), Some(*b"own"));
        assert_eq!(read(5 * GIB), Some(*b"far"));
        assert_eq!([read(GIB), read(7 * GIB)], [None, None]);
    }
}
