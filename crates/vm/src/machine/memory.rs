//! The memory of a machine as files that this process can read, also after QEMU has ended.

use super::carried::path_of;
use super::topology::Topology;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
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
    /// The paths by which QEMU opens them.
    pub(super) fn paths(&self) -> Vec<String> {
        self.nodes.iter().map(path_of).collect()
    }
    pub(super) fn inherited(&self) -> impl Iterator<Item = RawFd> {
        self.nodes.iter().map(AsRawFd::as_raw_fd)
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
        // Below 1 GiB, and the rest from 4 GiB on: 3 GiB of two nodes are there.
        memory.nodes[0].write_all_at(b"low", GIB - 4).unwrap();
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
