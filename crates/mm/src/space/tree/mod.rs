//! The VMAs of an address space in order: a B-tree of page ranges that knows its gaps.
//!
//! Every entry above the leaves has the range of its subtree and the largest gap in it, so that the
//! lowest or highest gap of a size is found in one descent. Nodes are in the tree's own arena and
//! refer to each other by number.
//!
//! Memory comes first: [`VmaTree::edit`] takes as many nodes as its changes can need at worst, or
//! fails with nothing changed. Changes through the [`Edit`] cannot run out of memory, so an
//! operation of several steps never stops half-way.

mod edit;
mod finder;
mod gap;
mod iter;
mod node;
mod verify;

pub use edit::{Edit, VmaCursor};
pub use finder::VmaFinder;
pub use gap::GapRequest;
pub use iter::Iter;
pub use verify::{TreeAudit, TreeDefect};

use super::vma::Arena;
use super::{NoMemory, VmaId, VmaRange, Vpn};
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use node::{Item, MAX_HEIGHT, Node, UNUSED};

/// A value that fits a word of a leaf. A [`VmaFinder`] may read a word that is no value, so every
/// word must convert to some value.
pub trait TreeWord: Copy {
    /// The value as a word.
    fn to_word(self) -> u64;
    /// The value of a word.
    fn from_word(word: u64) -> Self;
}

impl TreeWord for VmaId {
    #[inline]
    fn to_word(self) -> u64 {
        Self::to_word(self)
    }
    #[inline]
    fn from_word(word: u64) -> Self {
        Self::from_word(word)
    }
}

impl TreeWord for u64 {
    #[inline]
    fn to_word(self) -> u64 {
        self
    }
    #[inline]
    fn from_word(word: u64) -> Self {
        word
    }
}

/// A VMA in the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaEntry<V> {
    /// Its pages.
    pub range: VmaRange,
    /// The value kept for it.
    pub value: V,
}

impl<V: TreeWord> VmaEntry<V> {
    #[inline]
    fn of(item: Item) -> Self {
        Self { range: VmaRange::raw(item.start, item.end), value: V::from_word(item.word) }
    }
}

/// Another VMA overlaps: nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlap;

/// Why [`VmaTree::insert`] changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertError {
    /// There is no memory for a node.
    NoMemory,
    /// Another VMA has some of the pages.
    Overlap,
}

/// The part of the tree that a [`VmaFinder`] reads too.
struct Shared {
    nodes: Arena<Node>,
    /// The root's number above 8 bits of height. At height 0 there is no root.
    root: AtomicU64,
}

impl Shared {
    #[inline]
    fn node(&self, index: u32) -> &Node {
        self.nodes.get(index).expect("a node of the tree was made")
    }
}

/// The VMAs of an address space.
///
/// `V` is kept for each VMA: in the kernel a [`VmaId`]. The costs below are for n VMAs.
pub struct VmaTree<V> {
    shared: Arc<Shared>,
    root: u32,
    /// Levels; leaves are level 0, the root is level `height - 1`.
    height: usize,
    len: usize,
    /// The first free node plus 1.
    free: u32,
    free_count: u32,
    /// Nodes that exist: in the tree or on the free list.
    made: u32,
    /// The leaf and index of the last insertion.
    newest: (u32, usize),
    /// The path of the current change. It is kept here: on the stack it would be copied.
    path: Path,
    values: PhantomData<fn(V) -> V>,
}

/// A path from the root to an entry: at each level the node and the index in it.
struct Path {
    steps: [(u32, u32); MAX_HEIGHT],
}

impl Path {
    const NONE: Self = Self { steps: [(0, 0); MAX_HEIGHT] };
    #[inline]
    fn node(&self, level: usize) -> u32 {
        self.steps[level].0
    }
    #[inline]
    fn at(&self, level: usize) -> usize {
        self.steps[level].1 as usize
    }
}

impl<V: TreeWord> Default for VmaTree<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> VmaTree<V> {
    #[inline]
    fn node(&self, index: u32) -> &Node {
        self.shared.node(index)
    }
}

impl<V: TreeWord> VmaTree<V> {
    /// Creates a tree without VMAs and nodes.
    pub fn new() -> Self {
        let shared = Shared { nodes: Arena::new(), root: AtomicU64::new(0) };
        Self {
            shared: Arc::new(shared),
            root: 0,
            height: 0,
            len: 0,
            free: 0,
            free_count: 0,
            made: 0,
            newest: (0, 0),
            path: Path::NONE,
            values: PhantomData,
        }
    }
    /// Returns a reader for page faults, which needs no mmap_lock.
    pub fn finder(&self) -> VmaFinder<V> {
        VmaFinder::new(Arc::clone(&self.shared))
    }
    /// The number of VMAs.
    pub const fn len(&self) -> usize {
        self.len
    }
    /// Whether there is no VMA.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Nodes in the tree or in reserve. They are kept until the tree is dropped.
    pub const fn nodes(&self) -> usize {
        self.made as usize
    }
    /// Returns the VMA that holds `page`. O(log n).
    #[inline]
    pub fn get(&self, page: Vpn) -> Option<VmaEntry<V>> {
        self.find(page).filter(|entry| entry.range.start() <= page)
    }
    /// Returns the VMA that holds `page`, or else the first one after it. O(log n).
    #[inline]
    pub fn find(&self, page: Vpn) -> Option<VmaEntry<V>> {
        if self.height == 0 {
            return None;
        }
        let mut node = self.node(self.root);
        let mut at = node.first_ending_after(page.get());
        // Only the root can end too early: below it, the parent's entry excludes that.
        if node.end(at) == UNUSED {
            return None;
        }
        for _ in 1..self.height {
            node = self.node(node.child(at));
            node.fetch_starts();
            at = node.first_ending_after(page.get());
        }
        Some(VmaEntry::of(node.item(at)))
    }
    /// Returns the last VMA that starts before `page`: the one that holds the page before it, or
    /// else the nearest below. O(log n).
    #[inline]
    pub fn find_before(&self, page: Vpn) -> Option<VmaEntry<V>> {
        if self.height == 0 {
            return None;
        }
        let mut node = self.node(self.root);
        let mut at = node.starting_before(page.get()).checked_sub(1)?;
        for _ in 1..self.height {
            node = self.node(node.child(at));
            at = node.starting_before(page.get()) - 1;
        }
        Some(VmaEntry::of(node.item(at)))
    }
    /// Returns the first VMA that has a page of `range`. O(log n).
    #[inline]
    pub fn first_in(&self, range: VmaRange) -> Option<VmaEntry<V>> {
        self.find(range.start()).filter(|entry| entry.range.start() < range.end())
    }
    /// All VMAs, from either end.
    pub fn iter(&self) -> Iter<'_, V> {
        self.range(VmaRange::USER)
    }
    /// The VMAs that have a page of `range`, whole, from either end. O(log n) for the first of each
    /// end, O(1) for the following ones.
    pub fn range(&self, range: VmaRange) -> Iter<'_, V> {
        Iter::new(self, range)
    }
    /// Reserves memory for `grows` changes that add a VMA (insert or split). Changes that add none
    /// need no memory. O(1) unless nodes must be made.
    pub fn edit(&mut self, grows: usize) -> Result<Edit<'_, V>, NoMemory> {
        self.edit_with(grows, || Ok(()))
    }
    /// Like [`VmaTree::edit`], but calls `grant` before each node that is made: to charge it, or to
    /// refuse. Nodes that were granted before a refusal stay in reserve.
    pub fn edit_with(
        &mut self,
        grows: usize,
        grant: impl FnMut() -> Result<(), NoMemory>,
    ) -> Result<Edit<'_, V>, NoMemory> {
        self.reserve(grows, grant)?;
        Ok(Edit::new(self, grows))
    }
    /// Does [`Edit::insert`] as a single change.
    pub fn insert(&mut self, range: VmaRange, value: V) -> Result<(), InsertError> {
        let mut edit = self.edit(1).map_err(|NoMemory| InsertError::NoMemory)?;
        edit.insert(range, value).map_err(|Overlap| InsertError::Overlap)
    }
    /// Does [`Edit::remove`] as a single change.
    pub fn remove(&mut self, page: Vpn) -> Option<VmaEntry<V>> {
        Edit::new(self, 0).remove(page)
    }

    /// Reserves free nodes for `grows` times a split of every level and a new root; the root may
    /// rise in between.
    #[inline]
    fn reserve(
        &mut self,
        grows: usize,
        mut grant: impl FnMut() -> Result<(), NoMemory>,
    ) -> Result<(), NoMemory> {
        let each = self.height + 1 + usize::from(grows > 1);
        let need = grows.checked_mul(each).ok_or(NoMemory)?;
        while (self.free_count as usize) < need {
            grant()?;
            let index = self.shared.nodes.ensure(self.made)?;
            self.made += 1;
            self.give_node(index);
        }
        Ok(())
    }
    /// Takes an empty node from the reserve.
    fn take_node(&mut self) -> u32 {
        assert!(self.free != 0, "an edit adds no more VMAs than requested");
        let index = self.free - 1;
        let node = self.node(index);
        let next = node.link();
        node.clear();
        self.free = next;
        self.free_count -= 1;
        index
    }
    /// Returns a node that left the tree to the reserve.
    fn give_node(&mut self, index: u32) {
        self.node(index).set_link(self.free);
        self.free = index + 1;
        self.free_count += 1;
    }
    /// Sets the root, for finders too.
    fn set_root(&mut self, root: u32, height: usize) {
        (self.root, self.height) = (root, height);
        self.shared.root.store(finder::root_word(root, height), Relaxed);
    }
    /// Sets the path to the first VMA that ends after `page`, or else to the position after the
    /// last one. There is a root.
    #[inline]
    fn go_to(&mut self, page: u64) {
        let nodes = &*self.shared;
        let mut index = self.root;
        let mut node = nodes.node(index);
        let mut at = node.first_ending_after(page);
        if node.end(at) == UNUSED {
            self.path = self.path_to_end();
            return;
        }
        // Below the root there is always one: the parent's entry guarantees it.
        for step in self.path.steps[..self.height].iter_mut().skip(1).rev() {
            *step = (index, at as u32);
            index = node.child(at);
            node = nodes.node(index);
            node.fetch_starts();
            at = node.first_ending_after(page);
        }
        self.path.steps[0] = (index, at as u32);
    }
    /// The path to the position after the last VMA. There is a root.
    fn path_to_end(&self) -> Path {
        let mut path = Path::NONE;
        let mut index = self.root;
        for level in (1..self.height).rev() {
            let last = self.node(index).len() - 1;
            path.steps[level] = (index, last as u32);
            index = self.node(index).child(last);
        }
        path.steps[0] = (index, self.node(index).len() as u32);
        path
    }
}
