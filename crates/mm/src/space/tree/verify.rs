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

#[cfg(test)]
mod tests {
    use super::super::node::{UNUSED, word_of};
    use super::*;
    use crate::space::VmaRange;
    use core::sync::atomic::Ordering::Relaxed;

    /// Asserts that `verify` reports the defect that `plant` makes in a sound tree of two levels.
    /// `plant` takes the tree and the number of its first leaf.
    #[track_caller]
    fn caught(plant: impl FnOnce(&mut VmaTree<u64>, u32) -> TreeDefect) {
        let mut tree = VmaTree::new();
        for at in 0..2 * CAP as u64 {
            tree.insert(VmaRange::raw(10 + 10 * at, 15 + 10 * at), at).expect("it fits");
        }
        let audit = tree.verify().expect("the tree is sound");
        assert_eq!((audit.vmas, audit.pages, audit.height), (2 * CAP, 10 * CAP as u64, 2));
        let leaf = tree.node(tree.root).child(0);
        let expected = plant(&mut tree, leaf);
        assert_eq!(tree.verify(), Err(expected));
    }

    #[test]
    fn an_unused_entry_that_is_not_marked() {
        // Its start or its end.
        for (start, end) in [(7, UNUSED), (UNUSED, 7)] {
            caught(|tree, node| {
                let leaf = tree.node(node);
                assert!(leaf.len() < CAP);
                leaf.set_span(CAP - 1, start, end);
                TreeDefect::Tail { node }
            });
        }
    }

    #[test]
    fn entries_that_overlap_or_are_empty() {
        // The second begins at 20, and the first ends there at the latest.
        for (start, end, at) in [(10, 21, 20), (10, 10, 10), (12, 11, 12)] {
            caught(|tree, node| {
                tree.node(node).set_span(0, start, end);
                TreeDefect::Order { at: Vpn::new(at) }
            });
        }
    }

    #[test]
    fn a_sum_that_is_not_what_the_child_is() {
        caught(|tree, node| {
            tree.node(tree.root).set_word(0, word_of(6, node));
            TreeDefect::Sum { node }
        });
        caught(|tree, node| {
            tree.node(tree.root).set_span(0, 9, tree.node(tree.root).end(0));
            TreeDefect::Sum { node }
        });
    }

    #[test]
    fn a_node_with_too_few_entries() {
        caught(|tree, node| {
            while tree.node(node).len() >= MIN {
                tree.node(node).remove(1);
            }
            TreeDefect::Fill { node, entries: MIN - 1 }
        });
    }

    #[test]
    fn a_child_that_was_never_made() {
        caught(|tree, _| {
            let node = tree.made;
            tree.node(tree.root).set_word(0, word_of(5, node));
            TreeDefect::Missing { node }
        });
    }

    #[test]
    fn wrong_counts_and_a_root_that_finders_do_not_see() {
        caught(|tree, _| {
            tree.len += 1;
            TreeDefect::Count
        });
        caught(|tree, _| {
            tree.shared.root.fetch_add(1, Relaxed);
            TreeDefect::Count
        });
        caught(|tree, _| {
            tree.free_count += 1;
            TreeDefect::FreeList
        });
    }
}
