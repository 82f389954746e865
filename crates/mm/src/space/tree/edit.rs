//! Changes of the tree, with their memory reserved.

use super::node::{CAP, Item, MERGE, MIN, Node, UNUSED, gap_of, word_of};
use super::{Overlap, TreeWord, VmaEntry, VmaTree};
use crate::space::{VmaRange, Vpn};
use core::ops::Deref;

/// Permission to change the tree, with nodes for the requested number of added VMAs.
///
/// It can be read like the tree itself. A change either succeeds or returns an error and leaves the
/// tree unchanged. Adding more VMAs than requested is a caller's bug and panics.
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
    /// The number of VMAs that it may still add.
    pub const fn grows_left(&self) -> usize {
        self.grows
    }
    #[inline]
    fn grow(&mut self) {
        assert!(self.grows > 0, "an edit adds no more VMAs than requested");
        self.grows -= 1;
    }
    /// Adds a VMA. Fails if another VMA has some of its pages. O(log n). Adds one VMA.
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
        self.tree.go_to(start);
        let path = &self.tree.path;
        let (leaf, at) = (self.tree.node(path.node(0)), path.at(0));
        if leaf.start(at) < end {
            return Err(Overlap);
        }
        let filled = leaf.gap_before(at);
        self.grow();
        self.tree.insert_at(at, item, filled);
        Ok(())
    }
    /// Finds the VMA that holds `page`, to change it. O(log n).
    #[inline]
    pub fn at(&mut self, page: Vpn) -> Option<VmaCursor<'_, 'a, V>> {
        self.at_first_in(VmaRange::with_pages(page, 1)?)
    }
    /// Finds the first VMA that has a page of `range`, to change it. O(log n).
    #[inline]
    pub fn at_first_in(&mut self, range: VmaRange) -> Option<VmaCursor<'_, 'a, V>> {
        if self.tree.height == 0 {
            return None;
        }
        self.tree.go_to(range.start().get());
        let (leaf, at) = self.tree.place();
        let item = leaf.item(at);
        (item.start < range.end().get()).then_some(VmaCursor { edit: self, item })
    }
    /// Removes the VMA that holds `page`, and returns it. O(log n).
    pub fn remove(&mut self, page: Vpn) -> Option<VmaEntry<V>> {
        Some(self.at(page)?.remove())
    }
    /// Replaces the value of the VMA that holds `page`; returns the old value. O(log n).
    pub fn replace(&mut self, page: Vpn, value: V) -> Option<V> {
        Some(self.at(page)?.replace(value))
    }
    /// Moves the ends of the VMA that holds `page` to those of `to`, which must not reach its
    /// neighbours. Returns the old range; `None` if no VMA holds `page`. O(log n).
    pub fn resize(&mut self, page: Vpn, to: VmaRange) -> Option<Result<VmaRange, Overlap>> {
        Some(self.at(page)?.resize(to))
    }
    /// Splits the VMA that extends across `at`. The lower part keeps its value, the upper part gets
    /// `upper(value)`. Returns both parts. Returns `None`, without a call of `upper`, if no VMA has
    /// pages on both sides. O(log n). Adds one VMA.
    pub fn split(
        &mut self,
        at: Vpn,
        upper: impl FnOnce(V) -> V,
    ) -> Option<(VmaEntry<V>, VmaEntry<V>)> {
        self.at(at)?.split(at, upper)
    }
    /// Merges the VMA that ends at `at` with the one that starts there. The merged VMA keeps the
    /// lower value; returns it and the upper value. `None` if no two VMAs meet. O(log n).
    pub fn merge(&mut self, at: Vpn) -> Option<(VmaEntry<V>, V)> {
        let low = self.tree.find_before(at).filter(|low| low.range.end() == at)?;
        let high = self.tree.find(at).filter(|high| high.range.start() == at)?;
        let whole = VmaRange::raw(low.range.start().get(), high.range.end().get());
        self.remove(at)?;
        let found = self.at(low.range.start())?;
        found.edit.tree.set_span(whole.start().get(), whole.end().get());
        Some((VmaEntry { range: whole, value: low.value }, high.value))
    }
}

/// A VMA with the path to it: changing it needs no further search.
pub struct VmaCursor<'e, 'a, V> {
    edit: &'e mut Edit<'a, V>,
    item: Item,
}

impl<V: TreeWord> VmaCursor<'_, '_, V> {
    /// The VMA.
    #[inline]
    pub fn entry(&self) -> VmaEntry<V> {
        VmaEntry::of(self.item)
    }
    /// Removes the VMA.
    #[inline]
    pub fn remove(self) -> VmaEntry<V> {
        self.edit.tree.remove_at();
        VmaEntry::of(self.item)
    }
    /// As [`Edit::replace`].
    pub fn replace(self, value: V) -> V {
        let (leaf, at) = self.edit.tree.place();
        leaf.set_word(at, value.to_word());
        V::from_word(self.item.word)
    }
    /// As [`Edit::resize`].
    pub fn resize(self, to: VmaRange) -> Result<VmaRange, Overlap> {
        let (start, end) = (to.start().get(), to.end().get());
        let tree = &*self.edit.tree;
        // The old range is free for it; outside the old range there may be a neighbour.
        let below = start < self.item.start && start < tree.end_before(self.item);
        let above = end > self.item.end && end > tree.start_after(self.item);
        if below || above {
            return Err(Overlap);
        }
        tree.set_span(start, end);
        Ok(VmaRange::raw(self.item.start, self.item.end))
    }
    /// As [`Edit::split`].
    pub fn split(self, at: Vpn, upper: impl FnOnce(V) -> V) -> Option<(VmaEntry<V>, VmaEntry<V>)> {
        let old = self.item;
        if at.get() <= old.start || at.get() >= old.end {
            return None;
        }
        self.edit.grow();
        let low = Item { end: at.get(), ..old };
        let word = upper(V::from_word(old.word)).to_word();
        let high = Item { start: at.get(), end: old.end, word };
        let (leaf, place) = self.edit.tree.place();
        leaf.set(place, low);
        self.edit.tree.insert_at(place + 1, high, 0);
        Some((VmaEntry::of(low), VmaEntry::of(high)))
    }
}

/// Where a node changed, and the largest gap there before and after.
#[derive(Clone, Copy)]
struct NodeChange {
    /// The entry that changed; the last entry if that one was removed.
    at: usize,
    was: u64,
    is: u64,
}

impl NodeChange {
    /// The largest gap in `node`, which was `old` pages; `None` if the whole node has to be
    /// scanned.
    #[inline]
    fn gap(self, old: u64) -> Option<u64> {
        if self.is >= old {
            Some(self.is)
        } else if self.was < old {
            Some(old)
        } else {
            None
        }
    }
    /// Whether `node` still begins and ends where it did.
    #[inline]
    fn is_inside(self, node: &Node) -> bool {
        self.at > 0 && node.end(self.at + 1) != UNUSED
    }
}

impl<V: TreeWord> VmaTree<V> {
    /// The leaf that the path leads to, and the index in it.
    #[inline]
    fn place(&self) -> (&Node, usize) {
        (self.node(self.path.node(0)), self.path.at(0))
    }
    /// The end of the VMA before the one that the path leads to; 0 if there is none.
    fn end_before(&self, item: Item) -> u64 {
        let (leaf, at) = self.place();
        if at > 0 {
            return leaf.end(at - 1);
        }
        self.find_before(Vpn::new(item.start)).map_or(0, |entry| entry.range.end().get())
    }
    /// The start of the VMA after the one that the path leads to; the address space's end if there
    /// is none.
    fn start_after(&self, item: Item) -> u64 {
        let (leaf, at) = self.place();
        let next = leaf.start(at + 1);
        if next != UNUSED {
            return next;
        }
        let next = self.find(Vpn::new(item.end));
        next.map_or(Vpn::USER_END.get(), |entry| entry.range.start().get())
    }
    /// Moves the ends of the VMA that the path leads to. Its position stays.
    fn set_span(&self, start: u64, end: u64) {
        let (leaf, at) = self.place();
        let was = leaf.gap_at(at, true);
        leaf.set_span(at, start, end);
        self.refresh_leaf(leaf, NodeChange { at, was, is: leaf.gap_at(at, true) });
    }
    /// Updates the sums above the leaf that the path leads to. Stops here if the change is in the
    /// middle of the leaf and does not affect the largest gap.
    #[inline]
    fn refresh_leaf(&self, leaf: &Node, change: NodeChange) {
        if self.height > 1 && change.is_inside(leaf) {
            let old = gap_of(self.node(self.path.node(1)).word(self.path.at(1)));
            if change.gap(old) == Some(old) {
                return;
            }
        }
        self.refresh(0, Some(change));
    }
    /// Updates the sums above the node at `level`, up to the first that does not change. With the
    /// position of the change, most sums need no scan of the node.
    fn refresh(&self, level: usize, change: Option<NodeChange>) {
        let (path, mut change) = (&self.path, change);
        for level in level..self.height - 1 {
            let index = path.node(level);
            let node = self.node(index);
            let (above, at) = (self.node(path.node(level + 1)), path.at(level + 1));
            let old_gap = gap_of(above.word(at));
            let gap = change.and_then(|change| change.gap(old_gap));
            let gap = gap.unwrap_or_else(|| node.largest_gap(level == 0));
            if change.is_some_and(|change| change.is_inside(node)) {
                if gap == old_gap {
                    return;
                }
                above.set_word(at, word_of(gap, index));
                change = Some(NodeChange { at, was: old_gap, is: gap });
                continue;
            }
            let new = Item::of_child(node.start(0), node.end(node.len() - 1), gap, index);
            if new == above.item(at) {
                return;
            }
            let was = above.gap_at(at, false);
            above.set(at, new);
            change = Some(NodeChange { at, was, is: above.gap_at(at, false) });
        }
    }
    /// Inserts `item` at `at` in the leaf that the path leads to, into a gap of `filled` pages.
    fn insert_at(&mut self, at: usize, item: Item, filled: u64) {
        self.len += 1;
        let leaf = self.path.node(0);
        // Addresses that are handed out in one direction: each is inserted next to the last one.
        let row = self.newest == (leaf, at) || self.newest == (leaf, at.wrapping_sub(1));
        self.newest = (leaf, at);
        let leaf = self.node(leaf);
        if leaf.len() == CAP {
            self.insert_and_split(at, item, row);
            return;
        }
        leaf.insert(at, item);
        self.refresh_leaf(leaf, NodeChange { at, was: filled, is: leaf.gap_at(at, true) });
    }
    /// Inserts into a full leaf: splits full nodes on the way up.
    fn insert_and_split(&mut self, at: usize, item: Item, row: bool) {
        let (mut at, mut item) = (at, item);
        for level in 0..self.height {
            let index = self.path.node(level);
            if self.node(index).len() < CAP {
                self.node(index).insert(at, item);
                self.refresh(level, None);
                return;
            }
            let right = self.take_node();
            split_full(self.node(index), self.node(right), at, item, row);
            let low = self.node(index).summary(index, level == 0);
            let high = self.node(right).summary(right, level == 0);
            if level + 1 == self.height {
                let root = self.take_node();
                self.node(root).insert(0, low);
                self.node(root).insert(1, high);
                self.set_root(root, level + 2);
                return;
            }
            let above = self.path.at(level + 1);
            self.node(self.path.node(level + 1)).set(above, low);
            (at, item) = (above + 1, high);
        }
    }
    /// Removes the VMA that the path leads to.
    fn remove_at(&mut self) {
        self.len -= 1;
        let (leaf, at) = self.place();
        let was = leaf.gap_at(at, true);
        leaf.remove(at);
        if leaf.len() < MIN {
            self.merge_up();
            return;
        }
        let is = leaf.gap_before(at);
        self.refresh_leaf(leaf, NodeChange { at: at.min(leaf.len() - 1), was, is });
    }
    /// Refills or merges nodes with too few entries, from the leaf upwards.
    fn merge_up(&mut self) {
        for level in 0..self.height - 1 {
            if self.node(self.path.node(level)).len() >= MIN {
                self.refresh(level, None);
                return;
            }
            let (above, at) = (self.node(self.path.node(level + 1)), self.path.at(level + 1));
            let low_at = if at + 1 < above.len() { at } else { at - 1 };
            let (low, high) = (above.child(low_at), above.child(low_at + 1));
            let merged = level_out(self.node(low), self.node(high));
            above.set(low_at, self.node(low).summary(low, level == 0));
            if !merged {
                above.set(low_at + 1, self.node(high).summary(high, level == 0));
                self.refresh(level + 1, None);
                return;
            }
            above.remove(low_at + 1);
            self.give_node(high);
        }
        self.lower_root();
    }
    /// Removes an empty root; replaces a root with one child by the child.
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

/// Moves a part of a full node and one new entry to the empty node on its right: half of them, or,
/// for insertions in a row, all after the new entry, so that the node left behind stays as full as
/// it is.
fn split_full(node: &Node, right: &Node, at: usize, item: Item, row: bool) {
    let keep = if row { at.clamp(MIN - 1, CAP - MIN) } else { CAP / 2 };
    node.move_tail(keep, right);
    if at <= keep {
        node.insert(at, item);
    } else {
        right.insert(at - keep, item);
    }
}

/// Moves entries between two neighbours, one of which has too few: all to the left if they fit,
/// otherwise half each. Returns whether the right node is empty now.
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
