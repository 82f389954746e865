//! Iterating over the VMAs, from either end.

use super::node::{Item, UNUSED};
use super::{Path, TreeWord, VmaEntry, VmaTree};
use crate::space::VmaRange;

/// The VMAs that have a page of a range, lowest first; highest first from the back.
pub struct Iter<'a, V> {
    tree: &'a VmaTree<V>,
    /// Pages below `low` are done from the front, pages from `high` on from the back.
    low: u64,
    high: u64,
    front: Option<Path>,
    back: Option<Path>,
}

impl<'a, V: TreeWord> Iter<'a, V> {
    pub(super) fn new(tree: &'a VmaTree<V>, range: VmaRange) -> Self {
        let (low, high) = (range.start().get(), range.end().get());
        Self { tree, low, high, front: None, back: None }
    }
    /// The next VMA from the front, whether or not it is still in the range.
    fn step(&mut self) -> Option<Item> {
        let tree = self.tree;
        if tree.height == 0 {
            return None;
        }
        let path = match &mut self.front {
            None => self.front.insert(tree.path_to(self.low)?),
            Some(path) => {
                path.steps[0].1 += 1;
                path
            }
        };
        if path.at(0) >= tree.node(path.node(0)).len() && !tree.next_leaf(path) {
            return None;
        }
        Some(tree.node(path.node(0)).item(path.at(0)))
    }
    /// The next VMA from the back.
    fn step_back(&mut self) -> Option<Item> {
        let tree = self.tree;
        if tree.height == 0 {
            return None;
        }
        let path = match &mut self.back {
            None => self.back.insert(tree.path_before(self.high)?),
            Some(path) if path.at(0) > 0 => {
                path.steps[0].1 -= 1;
                path
            }
            Some(path) => {
                if !tree.previous_leaf(path) {
                    return None;
                }
                path
            }
        };
        Some(tree.node(path.node(0)).item(path.at(0)))
    }
}

impl<V: TreeWord> Iterator for Iter<'_, V> {
    type Item = VmaEntry<V>;
    fn next(&mut self) -> Option<VmaEntry<V>> {
        if self.low >= self.high {
            return None;
        }
        let item = self.step().filter(|item| item.start < self.high);
        self.low = item.map_or(self.high, |item| item.end);
        item.map(VmaEntry::of)
    }
}

impl<V: TreeWord> DoubleEndedIterator for Iter<'_, V> {
    fn next_back(&mut self) -> Option<VmaEntry<V>> {
        if self.low >= self.high {
            return None;
        }
        let item = self.step_back().filter(|item| item.end > self.low);
        self.high = item.map_or(self.low, |item| item.start);
        item.map(VmaEntry::of)
    }
}

impl<V: TreeWord> core::iter::FusedIterator for Iter<'_, V> {}

impl<V: TreeWord> VmaTree<V> {
    /// The path to the first VMA that ends after `page`. There is a root.
    fn path_to(&self, page: u64) -> Option<Path> {
        let mut path = Path::NONE;
        let mut index = self.root;
        for level in (0..self.height).rev() {
            let at = self.node(index).first_ending_after(page);
            if self.node(index).end(at) == UNUSED {
                return None;
            }
            path.steps[level] = (index, at as u32);
            index = self.node(index).child(at);
        }
        Some(path)
    }
    /// The path to the last VMA that starts before `page`. There is a root.
    fn path_before(&self, page: u64) -> Option<Path> {
        let mut path = Path::NONE;
        let mut index = self.root;
        for level in (0..self.height).rev() {
            let at = self.node(index).starting_before(page).checked_sub(1)?;
            path.steps[level] = (index, at as u32);
            index = self.node(index).child(at);
        }
        Some(path)
    }
    /// Moves a path to the first VMA of the next leaf; returns whether there is one.
    fn next_leaf(&self, path: &mut Path) -> bool {
        let room = |&level: &usize| path.at(level) + 1 < self.node(path.node(level)).len();
        let Some(top) = (1..self.height).find(room) else { return false };
        path.steps[top].1 += 1;
        for level in (0..top).rev() {
            let above = self.node(path.node(level + 1));
            path.steps[level] = (above.child(path.at(level + 1)), 0);
        }
        true
    }
    /// Moves a path to the last VMA of the previous leaf; returns whether there is one.
    fn previous_leaf(&self, path: &mut Path) -> bool {
        let Some(top) = (1..self.height).find(|&level| path.at(level) > 0) else { return false };
        path.steps[top].1 -= 1;
        for level in (0..top).rev() {
            let below = self.node(path.node(level + 1)).child(path.at(level + 1));
            path.steps[level] = (below, self.node(below).len() as u32 - 1);
        }
        true
    }
}
