//! A node: up to [`CAP`] entries in order, each a range of pages and a word.
//!
//! In a leaf an entry is a VMA, and its word is the value kept for it. Above the leaves an entry
//! summarises a child: its range extends from its first VMA's start to its last one's end, and its
//! word has the largest gap between two VMAs inside and the child's number. A change below alters
//! only the entries on the path to the root, and only up to the first sum that does not change.
//!
//! All fields are atomics because a page fault may read a node while it changes, see
//! [`super::VmaFinder`]. They are relaxed, order nothing, and cost as much as plain fields.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Entries of a node: measured, see the benchmark `vma` of `testing/peers`.
pub(super) const CAP: usize = 15;
/// The fewest entries of a node that is not the root.
pub(super) const MIN: usize = CAP / 3;
/// Two neighbours with at most this many entries together are merged.
pub(super) const MERGE: usize = CAP * 3 / 4;
/// Levels for as many nodes as an arena can have.
pub(super) const MAX_HEIGHT: usize = 13;
/// Bits of a word that hold a child's number; the other bits hold the gap.
const CHILD_BITS: u32 = crate::space::vma::NUMBER_BITS;

/// Start and end of an unused entry: after every page.
pub(super) const UNUSED: u64 = u64::MAX;

const _: () = assert!(MIN >= 2 && MERGE.div_ceil(2) >= MIN && MERGE <= CAP);
const _: () = assert!(2 * MIN.pow(MAX_HEIGHT as u32 - 1) > crate::space::vma::MAX_SLOTS as usize);
const _: () = assert!(crate::space::Vpn::USER_END.get() < 1 << (64 - CHILD_BITS));

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
        gap_of(self.word)
    }
    /// The entry for `child`.
    #[inline]
    pub(super) fn of_child(start: u64, end: u64, gap: u64, child: u32) -> Self {
        Self { start, end, word: word_of(gap, child) }
    }
}

/// The word above the leaves for `child` with a largest gap of `gap` pages.
#[inline]
pub(super) fn word_of(gap: u64, child: u32) -> u64 {
    gap << CHILD_BITS | u64::from(child)
}

/// The gap in a word above the leaves, in pages.
#[inline]
pub(super) fn gap_of(word: u64) -> u64 {
    word >> CHILD_BITS
}

#[inline]
fn child_of(word: u64) -> u32 {
    (word & ((1 << CHILD_BITS) - 1)) as u32
}

/// Elements of a node's arrays: one more than entries, so that a mask keeps every index inside.
const PLACES: usize = 16;
const MASK: usize = PLACES - 1;
const _: () = assert!(CAP == PLACES - 1 && PLACES.is_power_of_two());

/// The end of an entry and its word.
#[repr(C)]
struct Pair {
    end: AtomicU64,
    word: AtomicU64,
}

/// A node of either kind.
///
/// A search compares ends, then reads the word of the entry that it found. Four pairs are a cache
/// line and a quarter of the node: three lines are fetched in parallel, and in most cases the word
/// is in one of them. The last element is never an entry: its end and start are [`UNUSED`], its
/// word is the number of entries, or on the free list the link to the next node.
#[repr(C, align(128))]
pub(super) struct Node {
    pairs: [Pair; PLACES],
    starts: [AtomicU64; PLACES],
}

const _: () = assert!(size_of::<Node>() == 384);

impl Default for Node {
    fn default() -> Self {
        let unused = || Pair { end: AtomicU64::new(UNUSED), word: AtomicU64::new(0) };
        Self {
            pairs: core::array::from_fn(|_| unused()),
            starts: [const { AtomicU64::new(UNUSED) }; PLACES],
        }
    }
}

/// The number of elements for which `ahead` holds. It holds for a prefix of them, and never for the
/// last.
///
/// First finds the quarter, then the count inside it: without branches, which would be
/// unpredictable, and with the cache lines fetched in parallel.
#[inline]
fn count_ahead(ahead: impl Fn(usize) -> bool) -> usize {
    let three = |a, b, c| usize::from(ahead(a)) + usize::from(ahead(b)) + usize::from(ahead(c));
    let at = 4 * three(3, 7, 11);
    at + three(at, at + 1, at + 2)
}

impl Node {
    /// The number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.word(CAP) as usize
    }
    #[inline]
    fn set_len(&self, len: usize) {
        self.set_word(CAP, len as u64);
    }
    /// The next node on the free list plus 1.
    #[inline]
    pub(super) fn link(&self) -> u32 {
        self.word(CAP) as u32
    }
    /// Links a free node to the next one.
    #[inline]
    pub(super) fn set_link(&self, next: u32) {
        self.set_word(CAP, next.into());
    }
    /// Removes all entries.
    pub(super) fn clear(&self) {
        (0..CAP).for_each(|at| self.set_span(at, UNUSED, UNUSED));
        self.set_len(0);
    }
    #[inline]
    pub(super) fn start(&self, at: usize) -> u64 {
        self.starts[at & MASK].load(Relaxed)
    }
    #[inline]
    pub(super) fn end(&self, at: usize) -> u64 {
        self.pairs[at & MASK].end.load(Relaxed)
    }
    #[inline]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.pairs[at & MASK].word.load(Relaxed)
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
        self.set_span(at, item.start, item.end);
        self.set_word(at, item.word);
    }
    #[inline]
    pub(super) fn set_word(&self, at: usize, word: u64) {
        self.pairs[at & MASK].word.store(word, Relaxed);
    }
    #[inline]
    pub(super) fn set_span(&self, at: usize, start: u64, end: u64) {
        self.starts[at & MASK].store(start, Relaxed);
        self.pairs[at & MASK].end.store(end, Relaxed);
    }
    /// Prefetches the lines with the starts, which a search for an end does not read: a search in a
    /// leaf needs one of them next.
    #[inline]
    pub(super) fn fetch_starts(&self) {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse"))]
        for start in [&self.starts[0], &self.starts[PLACES / 2]] {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: SSE is available; a prefetch hint reads nothing and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(start).cast()) };
        }
    }
    /// The first entry that ends after `page`; the first unused element if there is none.
    #[inline]
    pub(super) fn first_ending_after(&self, page: u64) -> usize {
        count_ahead(|at| self.end(at) <= page)
    }
    /// The number of entries that start before `page`.
    #[inline]
    pub(super) fn starting_before(&self, page: u64) -> usize {
        count_ahead(|at| self.start(at) < page)
    }
    /// Inserts an entry at `at`, and moves that one and the following ones up. There is room.
    #[inline]
    pub(super) fn insert(&self, at: usize, item: Item) {
        let len = self.len();
        for two in self.starts[at..=len].windows(2).rev() {
            two[1].store(two[0].load(Relaxed), Relaxed);
        }
        for two in self.pairs[at..=len].windows(2).rev() {
            two[1].end.store(two[0].end.load(Relaxed), Relaxed);
            two[1].word.store(two[0].word.load(Relaxed), Relaxed);
        }
        self.set(at, item);
        self.set_len(len + 1);
    }
    /// Removes the entry at `at`.
    #[inline]
    pub(super) fn remove(&self, at: usize) {
        let len = self.len();
        for two in self.starts[at..len].windows(2) {
            two[0].store(two[1].load(Relaxed), Relaxed);
        }
        for two in self.pairs[at..len].windows(2) {
            two[0].end.store(two[1].end.load(Relaxed), Relaxed);
            two[0].word.store(two[1].word.load(Relaxed), Relaxed);
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
    /// The gap in pages before the entry at `at`; 0 before the first and after the last.
    #[inline]
    pub(super) fn gap_before(&self, at: usize) -> u64 {
        let start = self.start(at);
        if at == 0 || start == UNUSED { 0 } else { start - self.end(at - 1) }
    }
    /// The largest gap in pages before, in or after the entry at `at`.
    #[inline]
    pub(super) fn gap_at(&self, at: usize, leaf: bool) -> u64 {
        let inside = if leaf { 0 } else { self.item(at).gap() };
        inside.max(self.gap_before(at)).max(self.gap_before(at + 1))
    }
    /// The largest gap between VMAs in or below this node, in pages. It has entries.
    #[inline]
    pub(super) fn largest_gap(&self, leaf: bool) -> u64 {
        let len = self.len();
        let before = self.pairs[..len - 1].iter().map(|pair| pair.end.load(Relaxed));
        let starts = self.starts[1..len].iter().map(|start| start.load(Relaxed));
        let between = starts.zip(before).map(|(start, end)| start - end).fold(0, u64::max);
        if leaf {
            return between;
        }
        let words = self.pairs[..len].iter().map(|pair| pair.word.load(Relaxed));
        between.max(gap_of(words.fold(0, u64::max)))
    }
    /// The entry that summarises this node, for its parent.
    pub(super) fn summary(&self, index: u32, leaf: bool) -> Item {
        Item::of_child(self.start(0), self.end(self.len() - 1), self.largest_gap(leaf), index)
    }
    /// Whether all elements from `len` on are marked unused.
    pub(super) fn tail_is_unused(&self) -> bool {
        (self.len()..PLACES).all(|at| self.start(at) == UNUSED && self.end(at) == UNUSED)
    }
}
