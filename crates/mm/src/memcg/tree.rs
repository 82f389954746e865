//! The hierarchy of memory groups.
//!
//! Groups that programs use are leaves, and siblings. Above them is a chain of inner groups up to
//! the root, as slices and services of a system are above containers: `depth` levels below the
//! root, the leaves included. The root also has folios of its own.
//!
//! ```text
//! slot      0 --- count --- count + 1 --- 1, 2, .. count - 1
//! level     root  inner     inner         leaves                  (depth 3)
//! ```

use super::GroupId;

/// The parents of all groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tree {
    /// The root and the leaves.
    count: usize,
    inner: usize,
}

impl Tree {
    /// Creates a tree of `count` groups, the root and its leaves. Leaves are `depth` levels below
    /// the root, at least one.
    pub(super) fn new(count: usize, depth: usize) -> Self {
        let count = count.max(1);
        Self { count, inner: if count == 1 { 0 } else { depth.max(1) - 1 } }
    }
    /// The number of groups: numbers of root and leaves are those of [`GroupId`], inner groups
    /// follow, the topmost first.
    pub(super) const fn slots(&self) -> usize {
        self.count + self.inner
    }
    #[inline]
    pub(super) const fn is_leaf(&self, slot: usize) -> bool {
        0 < slot && slot < self.count
    }
    #[inline]
    pub(super) const fn parent(&self, slot: usize) -> Option<usize> {
        match slot {
            0 => None,
            _ if self.inner == 0 || slot == self.count => Some(0),
            _ if slot < self.count => Some(self.count + self.inner - 1),
            _ => Some(slot - 1),
        }
    }
    /// The groups from `slot` up to the root.
    pub(super) fn up(self, slot: usize) -> impl Iterator<Item = usize> {
        core::iter::successors(Some(slot), move |&slot| self.parent(slot))
    }
    pub(super) fn leaves(&self) -> core::ops::Range<usize> {
        1..self.count
    }
    /// The inner groups and the root, child before parent.
    pub(super) fn inner(&self) -> impl Iterator<Item = usize> + use<> {
        (self.count..self.slots()).rev().chain([0])
    }
    /// The group of a slot; the root for an inner group.
    pub(super) const fn named(&self, slot: usize) -> GroupId {
        GroupId::new(if slot < self.count { slot } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_leaf_is_as_deep_as_asked_for() {
        for depth in [1, 2, 3, 5] {
            let tree = Tree::new(4, depth);
            for leaf in tree.leaves() {
                let up: Vec<_> = tree.up(leaf).collect();
                assert_eq!((up.len(), up.last()), (depth + 1, Some(&0)), "{up:?}");
                // The same chain, child before parent.
                assert_eq!(up[1..], tree.inner().collect::<Vec<_>>()[..]);
            }
            assert_eq!(tree.slots(), 4 + depth - 1);
        }
        let alone = Tree::new(1, 3);
        assert_eq!((alone.slots(), alone.leaves().len()), (1, 0));
        assert_eq!(alone.inner().collect::<Vec<_>>(), [0]);
    }
}
