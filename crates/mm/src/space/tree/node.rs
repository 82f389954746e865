//! A node: up to [`CAP`] entries in order, each a span of pages and a word.
//!
//! In a leaf an entry is a VMA, and its word is the value kept for it. Above, an entry sums up a
//! child: from its first VMA's start to its last one's end, and in the word the largest gap
//! between two VMAs inside, with the child's number. So a change below alters nothing but the
//! entries on the way up to the root, and only as long as the sum differs.
//!
//! All fields are atomics because a page fault may read a node while it changes, see
//! [`super::VmaFinder`]. They order nothing and cost what plain fields do.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Entries of a node: measured, see `cargo bench -p mmscale-peers --bench vma`.
pub(super) const CAP: usize = 16;
/// The fewest entries of a node that is not the root.
pub(super) const MIN: usize = CAP / 3;
/// Two neighbours that have no more entries than this together become one.
pub(super) const MERGE: usize = CAP * 3 / 4;
/// Enough for as many nodes as an arena can have.
pub(super) const MAX_HEIGHT: usize = 13;
/// Bits of a word that hold a child's number; the gap has the others.
const CHILD_BITS: u32 = 28;

/// Where an unused entry starts and ends: after every page.
pub(super) const UNUSED: u64 = u64::MAX;

const _: () = assert!(MIN >= 2 && MERGE.div_ceil(2) >= MIN && MERGE <= CAP);
const _: () = assert!(2 * MIN.pow(MAX_HEIGHT as u32 - 1) > crate::space::arena::MAX_SLOTS);
const _: () = assert!(crate::space::Vpn::USER_END.get() < 1 << (64 - CHILD_BITS));
const _: () = assert!(crate::space::arena::MAX_SLOTS < 1 << CHILD_BITS);

/// An entry by value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) word: u64,
}

impl Item {
    /// The child, above the leaves.
    #[inline]
    pub(super) fn child(self) -> u32 {
        child_of(self.word)
    }
    /// The largest gap inside the child, in pages, above the leaves.
    #[inline]
    pub(super) fn gap(self) -> u64 {
        self.word >> CHILD_BITS
    }
    /// The entry for `child`.
    #[inline]
    pub(super) fn of_child(start: u64, end: u64, gap: u64, child: u32) -> Self {
        Self { start, end, word: gap << CHILD_BITS | u64::from(child) }
    }
}

#[inline]
fn child_of(word: u64) -> u32 {
    (word & ((1 << CHILD_BITS) - 1)) as u32
}

/// A node of either kind. Nodes on the free list are linked by `len`.
#[repr(C, align(64))]
pub(super) struct Node {
    ends: [AtomicU64; CAP],
    starts: [AtomicU64; CAP],
    words: [AtomicU64; CAP],
    len: AtomicU32,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            ends: [const { AtomicU64::new(UNUSED) }; CAP],
            starts: [const { AtomicU64::new(UNUSED) }; CAP],
            words: [const { AtomicU64::new(0) }; CAP],
            len: AtomicU32::new(0),
        }
    }
}

impl Node {
    /// Entries in use.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }
    #[inline]
    fn set_len(&self, len: usize) {
        self.len.store(len as u32, Relaxed);
    }
    /// The next node on the free list plus 1.
    #[inline]
    pub(super) fn link(&self) -> u32 {
        self.len.load(Relaxed)
    }
    /// Links a free node to the next one.
    #[inline]
    pub(super) fn set_link(&self, next: u32) {
        self.len.store(next, Relaxed);
    }
    /// No entries.
    pub(super) fn clear(&self) {
        for at in 0..CAP {
            self.ends[at].store(UNUSED, Relaxed);
            self.starts[at].store(UNUSED, Relaxed);
        }
        self.set_len(0);
    }
    #[inline]
    pub(super) fn start(&self, at: usize) -> u64 {
        self.starts[at].load(Relaxed)
    }
    #[inline]
    pub(super) fn end(&self, at: usize) -> u64 {
        self.ends[at].load(Relaxed)
    }
    #[inline]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.words[at].load(Relaxed)
    }
    #[inline]
    pub(super) fn child(&self, at: usize) -> u32 {
        child_of(self.word(at))
    }
    #[inline]
    pub(super) fn item(&self, at: usize) -> Item {
        Item { start: self.start(at), end: self.end(at), word: self.word(at) }
    }
    #[inline]
    pub(super) fn set(&self, at: usize, item: Item) {
        self.starts[at].store(item.start, Relaxed);
        self.ends[at].store(item.end, Relaxed);
        self.words[at].store(item.word, Relaxed);
    }
    #[inline]
    pub(super) fn set_word(&self, at: usize, word: u64) {
        self.words[at].store(word, Relaxed);
    }
    #[inline]
    pub(super) fn set_span(&self, at: usize, start: u64, end: u64) {
        self.starts[at].store(start, Relaxed);
        self.ends[at].store(end, Relaxed);
    }
    /// The first entry that ends after `page`; [`CAP`] or an unused one if none does.
    #[inline]
    pub(super) fn first_ending_after(&self, page: u64) -> usize {
        self.ends.iter().map(|end| usize::from(end.load(Relaxed) <= page)).sum()
    }
    /// How many entries start before `page`.
    #[inline]
    pub(super) fn starting_before(&self, page: u64) -> usize {
        self.starts.iter().map(|start| usize::from(start.load(Relaxed) < page)).sum()
    }
    /// Puts an entry at `at`, before those that were there. There is room.
    #[inline]
    pub(super) fn insert(&self, at: usize, item: Item) {
        let len = self.len();
        for to in (at + 1..=len).rev() {
            self.set(to, self.item(to - 1));
        }
        self.set(at, item);
        self.set_len(len + 1);
    }
    /// Takes the entry at `at` out.
    #[inline]
    pub(super) fn remove(&self, at: usize) {
        let len = self.len();
        for to in at..len - 1 {
            self.set(to, self.item(to + 1));
        }
        self.set_span(len - 1, UNUSED, UNUSED);
        self.set_len(len - 1);
    }
    /// Moves the entries from `from` on to the front of `right`.
    pub(super) fn move_tail(&self, from: usize, right: &Self) {
        let (count, old) = (self.len() - from, right.len());
        for at in (0..old).rev() {
            right.set(at + count, right.item(at));
        }
        for at in 0..count {
            right.set(at, self.item(from + at));
            self.set_span(from + at, UNUSED, UNUSED);
        }
        self.set_len(from);
        right.set_len(old + count);
    }
    /// Moves the first `count` entries of `right` to the end.
    pub(super) fn move_head(&self, right: &Self, count: usize) {
        let (len, old) = (self.len(), right.len());
        for at in 0..count {
            self.set(len + at, right.item(at));
        }
        for at in count..old {
            right.set(at - count, right.item(at));
        }
        for at in old - count..old {
            right.set_span(at, UNUSED, UNUSED);
        }
        self.set_len(len + count);
        right.set_len(old - count);
    }
    /// The largest gap between two entries, in pages.
    #[inline]
    fn gap_between(&self, len: usize) -> u64 {
        (1..len).map(|at| self.start(at) - self.end(at - 1)).max().unwrap_or(0)
    }
    /// The entry that sums this node up, for its parent. It has entries.
    #[inline]
    pub(super) fn summary(&self, index: u32, leaf: bool) -> Item {
        let len = self.len();
        let between = self.gap_between(len);
        let gap = if leaf {
            between
        } else {
            (0..len).map(|at| self.word(at) >> CHILD_BITS).fold(between, u64::max)
        };
        Item::of_child(self.start(0), self.end(len - 1), gap, index)
    }
    /// Whether all entries from `len` on are marked unused.
    pub(super) fn tail_is_unused(&self) -> bool {
        (self.len()..CAP).all(|at| self.start(at) == UNUSED && self.end(at) == UNUSED)
    }
}
