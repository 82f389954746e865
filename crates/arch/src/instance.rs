//! Names of single locks.

use crate::{LockClass, LockInstance};

/// A lock with its class, as in `zone 1`, `pcp of cpu3`, `lruvec of group 7 on node 0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NamedLock {
    /// Its class.
    pub class: LockClass,
    /// Which of them.
    pub instance: LockInstance,
}

impl core::fmt::Display for NamedLock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let class = self.class.name();
        match self.instance {
            LockInstance::Unnamed => write!(f, "{class}"),
            LockInstance::Numbered(number) => write!(f, "{class} {number}"),
            LockInstance::OfCpu(cpu) => write!(f, "{class} of {cpu}"),
            LockInstance::OfGroup(group, node) => {
                write!(f, "{class} of group {group} on node {}", node.index())
            }
        }
    }
}
