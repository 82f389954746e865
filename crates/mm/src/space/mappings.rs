//! The trees of the VMAs that map a file (`i_mmap`), and their locks (`i_mmap_rwsem`).
//!
//! Stock has one tree and one lock for a file. The other policies split the tree by the CPU that
//! links a VMA: by its node, or by groups of cores. A VMA remembers its tree, since another CPU may
//! unlink it, and its parts stay in that tree. A walk of all VMAs would take all locks.
//!
//! The reverse map finds VMAs by number, so a tree is the number of its VMAs here. Its nodes are
//! lines: a link or unlink passes the nodes from the root to a leaf. A node is the VMA that it
//! belongs to, which lives as long as its process, and a CPU passes the upper nodes many times in
//! that time. So the upper half of the path is taken to be in the CPU's cache. The lower half
//! comes from the CPU that has changed the tree last.

use super::vma::{FileId, TreeId};
use alloc::boxed::Box;
use alloc::vec;
use mmscale_arch::sync::{RwSem, RwsemPolicy};
use mmscale_arch::{Access, CpuId, Line, LockClass, Machine, Op};

mmscale_arch::policies! {
    /// How the VMAs that map a file are split into trees and locks.
    pub enum ImapPolicy: "imap", "trees of the VMAs that map a file, and their locks (i_mmap)" {
        /// Has one tree and one lock for each file.
        Stock = "stock",
        /// Has a tree for each node, and one lock for all trees of a file.
        Trees = "trees",
        /// Has a tree with its own lock for each node.
        Node = "node",
        /// Has a tree with its own lock for each sixteen cores.
        CoresSixteen = "cores-sixteen",
        /// Has a tree with its own lock for each four cores.
        CoresFour = "cores-four",
    }
}

impl ImapPolicy {
    /// The tree for VMAs that `cpu` links.
    fn tree_of<A: Machine>(self, cpu: CpuId) -> TreeId {
        TreeId::new(match self {
            Self::Stock => 0,
            Self::Trees | Self::Node => A::node_of(cpu).index(),
            Self::CoresSixteen => A::core_of(cpu) / 16,
            Self::CoresFour => A::core_of(cpu) / 4,
        })
    }
    /// The number of trees of a file.
    fn trees<A: Machine>(self) -> usize {
        let last = |cpu| self.tree_of::<A>(CpuId::new(cpu)).index();
        if self == Self::Stock {
            1
        } else {
            (0..A::cpus_possible()).map(last).max().unwrap_or(0) + 1
        }
    }
}

/// The most nodes of a path that another CPU may have changed.
const CHANGED_MAX: u32 = 16;

/// The VMAs that map a file.
pub(super) struct Mappings<A: Machine> {
    policy: ImapPolicy,
    trees: usize,
    /// Each lock, with the numbers of VMAs in its trees.
    locks: Box<[RwSem<A, Box<[u32]>>]>,
}

impl<A: Machine> Mappings<A> {
    pub(super) fn new(policy: ImapPolicy, rwsem: RwsemPolicy) -> Self {
        let trees = policy.trees::<A>();
        let locks = if policy == ImapPolicy::Trees { 1 } else { trees };
        let lock = |_| {
            let counts = vec![0; trees / locks].into_boxed_slice();
            RwSem::with_policy(rwsem, LockClass::IMmap, counts)
        };
        Self { policy, trees, locks: (0..locks).map(lock).collect() }
    }
    /// The tree for VMAs that the calling CPU links.
    pub(super) fn tree_here(&self) -> TreeId {
        self.policy.tree_of::<A>(A::cpu())
    }
    /// Links or unlinks `links` VMAs of a tree, after which `more` of them are in it, under the
    /// tree's lock.
    pub(super) fn change(&self, file: FileId, tree: TreeId, links: u32, more: i32) {
        let (lock, at) = match &*self.locks {
            [only] => (only, tree.index()),
            locks => (&locks[tree.index()], 0),
        };
        let mut counts = lock.write();
        A::work(Op::RmapLink, links);
        let number = (file.index() * self.trees + tree.index()) as u32;
        let path = counts[at].max(1).ilog2() + 1;
        for node in 0..path.div_ceil(2).min(CHANGED_MAX) {
            A::touch(Line::RmapTree(number * CHANGED_MAX + node), Access::Write);
        }
        counts[at] = counts[at].wrapping_add_signed(more);
    }
    /// The number of VMAs of each tree: for checks.
    pub(super) fn counts(&self) -> impl Iterator<Item = (TreeId, u32)> + '_ {
        let of = |lock: &RwSem<A, Box<[u32]>>| lock.read().to_vec();
        let counts = self.locks.iter().flat_map(of).enumerate();
        counts.map(|(tree, count)| (TreeId::new(tree), count))
    }
}
