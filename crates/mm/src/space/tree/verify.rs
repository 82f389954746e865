//! Consistency checks of the tree.

use super::node::{CAP, Item, MIN, Node};
use super::{TreeWord, VmaTree};
use crate::space::Vpn;

/// Sums over a whole tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeAudit {
    /// VMAs.
    pub vmas: usize,
    /// Pages in them.
    pub pages: u64,
    /// Nodes in the tree, without the reserve.
    pub nodes: usize,
    /// The number of levels.
    pub height: usize,
}

/// An inconsistency of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeDefect {
    /// A node has too few entries or too many.
    Fill {
        /// The node.
        node: u32,
        /// Its entries.
        entries: usize,
    },
    /// Entries from this page on are empty, out of order, or overlap.
    Order {
        /// The start of the second one.
        at: Vpn,
    },
    /// An unused entry of a node is not marked so.
    Tail {
        /// The node.
        node: u32,
    },
    /// A parent's sum differs from its child.
    Sum {
        /// The child.
        node: u32,
    },
    /// A node's number leads nowhere.
    Missing {
        /// The number.
        node: u32,
    },
    /// Nodes in the tree and on the free list are not all nodes, or the list's length is not its
    /// count.
    FreeList,
    /// The number of VMAs is not the tree's count, or the root is not what finders read.
    Count,
}

impl<V: TreeWord> VmaTree<V> {
    /// Checks the whole tree and its free list. O(n).
    pub fn verify(&self) -> Result<TreeAudit, TreeDefect> {
        let mut audit = TreeAudit { vmas: 0, pages: 0, nodes: 0, height: self.height };
        let seen = self.shared.root.load(core::sync::atomic::Ordering::Relaxed);
        if seen != super::finder::root_word(self.root, self.height) {
            return Err(TreeDefect::Count);
        }
        if self.height > 0 {
            self.check_node(self.root, self.height - 1, 0, &mut audit)?;
        }
        let (mut listed, mut next) = (0, self.free);
        while listed <= self.made && next != 0 {
            listed += 1;
            next = self.checked_node(next - 1)?.link();
        }
        let all = audit.nodes + listed as usize == self.made as usize;
        if !all || next != 0 || listed != self.free_count {
            return Err(TreeDefect::FreeList);
        }
        if audit.vmas == self.len { Ok(audit) } else { Err(TreeDefect::Count) }
    }
    fn checked_node(&self, index: u32) -> Result<&Node, TreeDefect> {
        self.shared.nodes.get(index).ok_or(TreeDefect::Missing { node: index })
    }
    /// Checks the subtree at `index`, which must not start below `from`.
    fn check_node(
        &self,
        index: u32,
        level: usize,
        from: u64,
        audit: &mut TreeAudit,
    ) -> Result<(), TreeDefect> {
        let node = self.checked_node(index)?;
        let root = level + 1 == self.height;
        let least = match (root, level) {
            (false, _) => MIN,
            (true, 0) => 1,
            (true, _) => 2,
        };
        if node.len() < least || node.len() > CAP {
            return Err(TreeDefect::Fill { node: index, entries: node.len() });
        }
        if !node.tail_is_unused() {
            return Err(TreeDefect::Tail { node: index });
        }
        audit.nodes += 1;
        let mut from = from;
        for at in 0..node.len() {
            let item = node.item(at);
            if item.start < from || item.start >= item.end {
                return Err(TreeDefect::Order { at: Vpn::new(item.start) });
            }
            if level == 0 {
                audit.vmas += 1;
                audit.pages += item.end - item.start;
            } else {
                self.check_node(item.child(), level - 1, from, audit)?;
                self.check_sum(item, level - 1)?;
            }
            from = item.end;
        }
        if from > Vpn::USER_END.get() {
            return Err(TreeDefect::Order { at: Vpn::new(from) });
        }
        Ok(())
    }
    /// Checks the entry of a child whose subtree is in order.
    fn check_sum(&self, item: Item, level: usize) -> Result<(), TreeDefect> {
        let child = item.child();
        let sum = self.checked_node(child)?.summary(child, level == 0);
        if sum == item { Ok(()) } else { Err(TreeDefect::Sum { node: child }) }
    }
}
