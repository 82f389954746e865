//! Which CPUs use each line and each lock, and so what of them a CPU of a larger machine has.

use super::objects::is_device;
use super::raw::RawOperation;
use super::records::{Raw, Type};
use mmscale_lift::{Share, is_many};
use std::collections::HashMap;

/// Bytes of a line, as a shift.
const LINE_SHIFT: u32 = 6;
/// Share of the accesses to data by one CPU from which on the data is that CPU's, and others use it
/// at times: page caches, run queues.
const OWN: f64 = 0.6;
/// The most CPUs of a recording.
const MAX_CPUS: usize = 256;

/// Returns the number of the line at an address.
pub(super) const fn line_at(address: u64) -> u64 {
    address >> LINE_SHIFT
}

/// Returns the address of a line.
pub(super) const fn address_of(line: u64) -> u64 {
    line << LINE_SHIFT
}

/// The users of some data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Users {
    /// Accesses by CPU.
    by_cpu: Vec<u32>,
    writers: [u64; MAX_CPUS / 64],
}

impl Users {
    fn none(cpus: usize) -> Self {
        Self { by_cpu: vec![0; cpus], writers: [0; MAX_CPUS / 64] }
    }
    fn add(&mut self, cpu: usize, writes: bool) {
        self.by_cpu[cpu] = self.by_cpu[cpu].saturating_add(1);
        self.writers[cpu / 64] |= u64::from(writes) << (cpu % 64);
    }
    pub(super) fn users(&self) -> usize {
        self.by_cpu.iter().filter(|accesses| **accesses > 0).count()
    }
    pub(super) fn writers(&self) -> usize {
        self.writers.iter().map(|word| word.count_ones() as usize).sum()
    }
    /// Whether the CPUs that use the data can delay one another.
    pub(super) fn is_shared(&self) -> bool {
        self.users() > 1 && self.writers() > 0
    }
    /// Returns how the data is shared. `node_of_cpu` are the nodes of the recorded CPUs.
    pub(super) fn share(&self, node_of_cpu: &[u8]) -> Share {
        let users = self.users();
        if users < 2 {
            return Share::Private;
        }
        let all: u64 = self.by_cpu.iter().copied().map(u64::from).sum();
        let most = self.by_cpu.iter().copied().max().unwrap_or(0);
        let is_own = f64::from(most) >= OWN * all as f64;
        if is_own || !is_many(users, self.by_cpu.len()) {
            return Share::Few;
        }
        let mut nodes = self
            .by_cpu
            .iter()
            .zip(node_of_cpu)
            .filter(|(accesses, _)| **accesses > 0)
            .map(|(_, node)| *node);
        let first = nodes.next();
        let is_of_one = nodes.all(|node| Some(node) == first);
        let has_several = node_of_cpu.iter().any(|node| *node != 0);
        if is_of_one && has_several { Share::Node } else { Share::All }
    }
}

/// The users of all lines and all locks.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// By number of line.
    pub(super) lines: HashMap<u64, Users>,
    /// By address.
    pub(super) locks: HashMap<u64, Users>,
}

impl Usage {
    /// Looks at operations.
    pub(super) fn of<'a>(operations: impl Iterator<Item = &'a RawOperation>, cpus: usize) -> Self {
        let mut usage = Self::default();
        for operation in operations {
            let cpu = usize::from(operation.cpu);
            for Raw { what, address, writes, .. } in operation.records.iter() {
                let (users, writes) = match what {
                    _ if is_device(address) => continue,
                    Type::Access => (usage.lines.entry(line_at(address)), writes),
                    Type::Taken => (usage.locks.entry(address), true),
                    _ => continue,
                };
                users.or_insert_with(|| Users::none(cpus)).add(cpu, writes);
            }
            let interrupts = operation.answers.iter().chain(&operation.ticks);
            for answer in interrupts.filter(|of| usize::from(of.cpu) < cpus) {
                let is_access = |raw: &&Raw| raw.what == Type::Access && !is_device(raw.address);
                let of_memory = answer.records.iter().filter(is_access);
                for Raw { address, writes, .. } in of_memory {
                    let users = usage.lines.entry(line_at(*address));
                    let users = users.or_insert_with(|| Users::none(cpus));
                    users.add(answer.cpu.into(), *writes);
                }
            }
        }
        usage
    }
    /// Whether CPUs share the line at an address, and one writes it.
    pub(super) fn is_shared(&self, address: u64) -> bool {
        self.lines.get(&line_at(address)).is_some_and(Users::is_shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(accesses: &[u32], writers: u64, nodes: &[u8]) -> (bool, Share) {
        let users = Users { by_cpu: accesses.to_vec(), writers: [writers, 0, 0, 0] };
        (users.is_shared(), users.share(nodes))
    }

    #[test]
    fn users_decide_how_data_is_shared() {
        let nodes = [0, 0, 0, 0, 1, 1, 1, 1];
        let of = |accesses, writers| shared(accesses, writers, &nodes);
        assert_eq!(of(&[5, 0, 0, 0, 0, 0, 0, 0], 1), (false, Share::Private));
        assert!(!of(&[5, 5, 0, 0, 0, 0, 0, 0], 0).0);
        assert_eq!(of(&[5, 5, 0, 0, 0, 0, 0, 0], 1), (true, Share::Few));
        assert_eq!(of(&[5, 5, 5, 5, 0, 0, 0, 0], 1), (true, Share::Node));
        assert_eq!(of(&[5, 5, 5, 5, 5, 0, 0, 0], 1), (true, Share::All));
        // A page cache that others drain at times.
        assert_eq!(of(&[90, 5, 5, 5, 5, 0, 0, 0], 1), (true, Share::Few));
        // A machine of one node does not show what belongs to a node.
        assert_eq!(shared(&[5, 5, 5, 5], 1, &[0; 4]), (true, Share::All));
        assert_eq!(shared(&[5, 5], 1, &[0; 2]), (true, Share::All));
    }
}
