//! Changes, with their memory in hand.

use super::node::{CAP, Item, MERGE, MIN, Node};
use super::{Overlap, Path, TreeWord, VmaEntry, VmaTree};
use crate::space::{VmaRange, Vpn};
use core::ops::Deref;

/// Leave to change the tree, with nodes for as many added VMAs as were asked for.
///
/// It reads like the tree itself. Every change either happens or says why not and leaves all as
/// it was. Adding more VMAs than were asked for is a bug of the caller and panics.
pub struct Edit<'a, V> {
    tree: &'a mut VmaTree<V>,
    grows: usize,
}

impl<V> Deref for Edit<'_, V> {
    type Target = VmaTree<V>;
    fn deref(&self) -> &VmaTree<V> {
        self.tree
    }
}

impl<'a, V: TreeWord> Edit<'a, V> {
    #[inline]
    pub(super) fn new(tree: &'a mut VmaTree<V>, grows: usize) -> Self {
        Self { tree, grows }
    }
    /// How many VMAs it may still add.
    pub const fn grows_left(&self) -> usize {
        self.grows
    }
    #[inline]
    fn grow(&mut self) {
        assert!(self.grows > 0, "an edit adds no more VMAs than it was made for");
        self.grows -= 1;
    }
    /// Adds a VMA, unless another one has some of its pages. O(log n). Adds one.
    pub fn insert(&mut self, range: VmaRange, value: V) -> Result<(), Overlap> {
        let (start, end) = (range.start().get(), range.end().get());
        let item = Item { start, end, word: value.to_word() };
        if self.tree.height == 0 {
            self.grow();
            let root = self.tree.take_node();
            self.tree.node(root).insert(0, item);
            self.tree.set_root(root, 1);
            self.tree.len = 1;
            return Ok(());
        }
        let path = self.tree.path_to(start);
        let (leaf, at) = (self.tree.node(path.node(0)), path.at(0));
        if at < leaf.len() && leaf.start(at) < end {
            return Err(Overlap);
        }
        self.grow();
        self.tree.insert_at(&path, at, item);
        Ok(())
    }
    /// Removes the VMA that holds `page`, and says what it was. O(log n).
    pub fn remove(&mut self, page: Vpn) -> Option<VmaEntry<V>> {
        let path = self.tree.path_holding(page)?;
        let removed = self.tree.node(path.node(0)).item(path.at(0));
        self.tree.remove_at(&path);
        Some(VmaEntry::of(removed))
    }
    /// Puts another value to the VMA that holds `page`; gives the old one. O(log n).
    pub fn replace(&mut self, page: Vpn, value: V) -> Option<V> {
        let path = self.tree.path_holding(page)?;
        let (leaf, at) = (self.tree.node(path.node(0)), path.at(0));
        let old = leaf.word(at);
        leaf.set_word(at, value.to_word());
        Some(V::from_word(old))
    }
    /// Moves the ends of the VMA that holds `page` to those of `to`, as long as it keeps its place
    /// between its neighbours. Gives the old range; `None` where no VMA holds `page`. O(log n).
    pub fn resize(&mut self, page: Vpn, to: VmaRange) -> Option<Result<VmaRange, Overlap>> {
        let path = self.tree.path_holding(page)?;
        let (leaf, at) = (self.tree.node(path.node(0)), path.at(0));
        let old = leaf.item(at);
        let (start, end) = (to.start().get(), to.end().get());
        let (before, after) = self.tree.room_around(&path, old);
        if start < before || end > after {
            return Some(Err(Overlap));
        }
        leaf.set_span(at, start, end);
        self.tree.refresh(&path, 0);
        Some(Ok(VmaRange::raw(old.start, old.end)))
    }
    /// Cuts the VMA that reaches across `at` in two. The lower part keeps its value, the upper one
    /// gets what `upper` makes of it. Gives the two parts; `None`, and `upper` is not called, where
    /// no VMA has pages on both sides. O(log n). Adds one.
    pub fn split(
        &mut self,
        at: Vpn,
        upper: impl FnOnce(V) -> V,
    ) -> Option<(VmaEntry<V>, VmaEntry<V>)> {
        let path = self.tree.path_holding(at)?;
        let leaf = self.tree.node(path.node(0));
        let old = leaf.item(path.at(0));
        if old.start == at.get() {
            return None;
        }
        self.grow();
        let leaf = self.tree.node(path.node(0));
        let low = Item { end: at.get(), ..old };
        let word = upper(V::from_word(old.word)).to_word();
        let high = Item { start: at.get(), end: old.end, word };
        leaf.set(path.at(0), low);
        self.tree.insert_at(&path, path.at(0) + 1, high);
        Some((VmaEntry::of(low), VmaEntry::of(high)))
    }
    /// Makes one of the VMA that ends at `at` and the one that starts there. It keeps the lower
    /// one's value; gives it, and the upper one's value. `None` where no two VMAs meet. O(log n).
    pub fn merge(&mut self, at: Vpn) -> Option<(VmaEntry<V>, V)> {
        let low = self.tree.find_before(at).filter(|low| low.range.end() == at)?;
        let high = self.tree.find(at).filter(|high| high.range.start() == at)?;
        let whole = VmaRange::raw(low.range.start().get(), high.range.end().get());
        self.remove(at);
        let path = self.tree.path_holding(low.range.start())?;
        self.tree.node(path.node(0)).set_span(path.at(0), whole.start().get(), whole.end().get());
        self.tree.refresh(&path, 0);
        Some((VmaEntry { range: whole, value: low.value }, high.value))
    }
}

impl<V: TreeWord> VmaTree<V> {
    /// Where the neighbours of the VMA at `path` end and start.
    fn room_around(&self, path: &Path, item: Item) -> (u64, u64) {
        let page = Vpn::new(item.start);
        let before = self.find_before(page).map_or(0, |entry| entry.range.end().get());
        let (leaf, next) = (self.node(path.node(0)), path.at(0) + 1);
        let after = if next < leaf.len() {
            leaf.start(next)
        } else {
            let after = self.find(Vpn::new(item.end));
            after.map_or(Vpn::USER_END.get(), |entry| entry.range.start().get())
        };
        (before, after)
    }
    /// Sets the sums above the node at `level`, as far up as they differ.
    #[inline]
    fn refresh(&self, path: &Path, level: usize) {
        for level in level..self.height - 1 {
            let index = path.node(level);
            let sum = self.node(index).summary(index, level == 0);
            let (parent, at) = (self.node(path.node(level + 1)), path.at(level + 1));
            if parent.item(at) == sum {
                return;
            }
            parent.set(at, sum);
        }
    }
    /// Puts `item` at `at` in the leaf of `path`, and splits full nodes on the way up.
    fn insert_at(&mut self, path: &Path, at: usize, item: Item) {
        self.len += 1;
        let (mut at, mut item) = (at, item);
        for level in 0..self.height {
            let index = path.node(level);
            if self.node(index).len() < CAP {
                self.node(index).insert(at, item);
                self.refresh(path, level);
                return;
            }
            let right = self.take_node();
            split_full(self.node(index), self.node(right), at, item);
            let low = self.node(index).summary(index, level == 0);
            let high = self.node(right).summary(right, level == 0);
            if level + 1 == self.height {
                let root = self.take_node();
                self.node(root).insert(0, low);
                self.node(root).insert(1, high);
                self.set_root(root, level + 2);
                return;
            }
            self.node(path.node(level + 1)).set(path.at(level + 1), low);
            (at, item) = (path.at(level + 1) + 1, high);
        }
    }
    /// Takes the entry at `path` out, and fills or merges nodes that have too few on the way up.
    fn remove_at(&mut self, path: &Path) {
        self.len -= 1;
        self.node(path.node(0)).remove(path.at(0));
        let mut level = 0;
        while level + 1 < self.height {
            if self.node(path.node(level)).len() >= MIN {
                self.refresh(path, level);
                return;
            }
            let above = self.node(path.node(level + 1));
            let at = path.at(level + 1);
            let low_at = if at + 1 < above.len() { at } else { at - 1 };
            let (low, high) = (above.child(low_at), above.child(low_at + 1));
            let merged = level_out(self.node(low), self.node(high));
            above.set(low_at, self.node(low).summary(low, level == 0));
            if !merged {
                above.set(low_at + 1, self.node(high).summary(high, level == 0));
                self.refresh(path, level + 1);
                return;
            }
            above.remove(low_at + 1);
            self.give_node(high);
            level += 1;
        }
        self.lower_root();
    }
    /// A root with no entries goes; one with a single child makes way for it.
    fn lower_root(&mut self) {
        let (root, height) = (self.root, self.height);
        let node = self.node(root);
        let (len, child) = (node.len(), node.child(0));
        if len == 0 {
            self.set_root(0, 0);
            self.give_node(root);
        } else if len == 1 && height > 1 {
            self.set_root(child, height - 1);
            self.give_node(root);
        }
    }
}

/// Shares the entries of a full node and one more with an empty node to its right. Adding at an
/// end leaves the nodes behind fuller: addresses are often handed out in one direction.
fn split_full(node: &Node, right: &Node, at: usize, item: Item) {
    let keep = match at {
        0 => MIN - 1,
        CAP => CAP + 1 - MIN,
        _ => CAP / 2,
    };
    node.move_tail(keep, right);
    if at <= keep {
        node.insert(at, item);
    } else {
        right.insert(at - keep, item);
    }
}

/// Moves entries between neighbours of which one has too few: all to the left if they leave room
/// there, otherwise half each. Says whether the right one is empty now.
fn level_out(left: &Node, right: &Node) -> bool {
    let total = left.len() + right.len();
    if total <= MERGE {
        left.move_head(right, right.len());
        return true;
    }
    let half = total / 2;
    if left.len() < half {
        left.move_head(right, half - left.len());
    } else {
        left.move_tail(half, right);
    }
    false
}
