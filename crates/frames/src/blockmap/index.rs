//! A set of blocks: a bitmap with summaries, changed without a lock.
//!
//! Level 0 has a bit for each block. Each upper level has a bit for each word of the level below.
//! An upper bit is set if the word below may have a set bit, so a search skips empty words.
//!
//! ```text
//! level 2  [ word 0                 ]     one word
//! level 1  [ word 0 ][ word 1 ]...        bit i: word i of level 0 may have a bit
//! level 0  [ word 0 ][ word 1 ][ word 2 ] bit i: block i is in the set
//! ```
//!
//! # Races between levels
//!
//! Two words cannot change in one step. `set` changes the lower level first and raises the summary
//! only if the word was empty. `clear` clears the summary only if the word has become empty, and
//! then checks the word again. All operations are `SeqCst`:
//!
//! ```text
//! clear                               set
//! (1) word &= !bit; it is empty now   (a) word |= bit; it was empty
//! (2) summary &= !bit                 (b) summary |= bit
//! (3) read word
//!     not empty: summary |= bit
//! ```
//!
//! If (b) comes after (2), the summary bit is set in the end. If (b) comes before (2), so does (a);
//! then (3) finds the word not empty and sets the summary bit again. Without (3) the bit of (b)
//! would be lost, and a block with free frames could not be found until the word became empty and
//! was set again.
//!
//! The guarantee is: a summary bit may be set spuriously. It is missing for a word with bits only
//! while a CPU is between (a) and (b), or between (2) and (3). Another CPU that sets a bit in the
//! same word meanwhile does not wait for that, so a search can miss blocks for a moment. Before an
//! allocation below a pageblock's order fails, it reads all heads.

use crate::place::{Place, Table};
use core::ops::Range;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::{Atomic, Cpu};

/// Blocks of a word of level 0.
pub(super) const BITS: usize = u64::BITS as usize;

/// Words of level 0 without a common bit after which a search in two sets gives up: it looks for
/// the best block, which is not worth more.
const PATIENCE: usize = 32;

/// A set of block numbers below a fixed length.
///
/// Most sets are hints: the head of a block says whether it belongs into the set. The set of whole
/// blocks without owner is different: the CPU that clears a block's bit may take the block.
pub(super) struct Index<A: Cpu> {
    /// The words of all levels, level 0 first, so that a bit of level 0 is found in one step.
    words: Table<A::AtomicU64>,
    /// The ranges of the upper levels in `words`, level 1 first.
    upper: Table<Range<usize>>,
}

impl<A: Cpu> Index<A> {
    /// Creates a set of blocks `0..len`, with those for which `holds` returns true.
    pub(super) fn new(place: &mut Place, len: usize, holds: impl Fn(usize) -> bool) -> Self {
        let bottom = len.div_ceil(BITS).max(1);
        let above = |&words: &usize| (words > 1).then(|| words.div_ceil(BITS));
        let levels = || core::iter::successors(Some(bottom), above);
        let mut start = bottom;
        let mut uppers = levels().skip(1);
        let upper = place.table(levels().count() - 1, |_| {
            let end = start + uppers.next().unwrap_or(0);
            core::mem::replace(&mut start, end)..end
        });
        // A bit of a level is for 64 times as many blocks as one of the level below.
        let word = |level: usize, at: usize| {
            let each = BITS.pow(level as u32);
            let any = |bit: usize| {
                let first = (at * BITS + bit) * each;
                (first..(first + each).min(len)).any(&holds)
            };
            (0..BITS).fold(0, |bits, bit| bits | u64::from(any(bit)) << bit)
        };
        let mut places =
            levels().enumerate().flat_map(|(level, words)| (0..words).map(move |at| (level, at)));
        let words = place.table(levels().sum(), |_| {
            let (level, at) = places.next().expect("the sum of all levels");
            A::AtomicU64::new(word(level, at))
        });
        Self { words, upper }
    }
    /// The number of words of level 0.
    fn bottom(&self) -> usize {
        self.upper.first().map_or(self.words.len(), |level| level.start)
    }
    /// The number of levels, level 0 included.
    fn levels(&self) -> usize {
        1 + self.upper.len()
    }
    /// A word of a level; `None` past its end.
    #[inline]
    fn word(&self, level: usize, at: usize) -> Option<&A::AtomicU64> {
        match level.checked_sub(1) {
            None => self.words[..self.bottom()].get(at),
            Some(level) => self.words[self.upper[level].clone()].get(at),
        }
    }
    /// Loads a word of a level; 0 past its end.
    #[inline]
    fn load(&self, level: usize, at: usize) -> u64 {
        // Pairs with `set_some`, `clear`, `take_some`, `raise` and `lower` on other CPUs. In
        // `lower` it is (3): SeqCst keeps it after (2).
        self.word(level, at).map_or(0, |word| word.load(SeqCst))
    }
    /// The size of all levels in bytes, if an atomic has the size of its value.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }
    /// Adds `at`.
    ///
    /// The caller has changed the block's head before, and the CPU that clears the bit reads the
    /// head afterwards. All these operations are `SeqCst`: if this load finds the bit set, it
    /// precedes the clear, and the other CPU sees the new head. So a bit that is set already needs
    /// no write.
    #[inline]
    pub(super) fn set(&self, at: usize) {
        if !self.contains(at) {
            self.set_some(at, 1);
        }
    }
    /// Sets the summary bit of word `at` of the level below `level`, and those above it: (b).
    fn raise(&self, level: usize, mut at: usize) {
        for level in &self.upper[level - 1..] {
            let word = &self.words[level.start + at / BITS];
            // (b): pairs with (2) in `lower`.
            if word.fetch_or(1 << (at % BITS), SeqCst) != 0 {
                return;
            }
            at /= BITS;
        }
    }
    /// Removes `at`; returns whether it was in the set.
    #[inline]
    pub(super) fn clear(&self, at: usize) -> bool {
        let bit = 1 << (at % BITS);
        // (1). Pairs with (a), and with the load in `set`: this CPU sees the head that the CPU that
        // set the bit wrote before.
        let before = self.words[at / BITS].fetch_and(!bit, SeqCst);
        if before == bit {
            self.lower(at / BITS);
        }
        before & bit != 0
    }
    /// Removes up to `most` blocks of one word with one atomic operation: those of the first word
    /// with a block that is not below `from`. Returns a block number, and a bit for each removed
    /// block, counted from there. The bits are 0 if other CPUs were faster. Returns `None` if the
    /// set has no block from `from` up.
    pub(super) fn take_some(&self, from: usize, most: u32) -> Option<(usize, u64)> {
        let first = self.next(from)?;
        let word = &self.words[first / BITS];
        // The load is a hint. The exchange is (1), as in `clear`.
        let there = word.load(SeqCst) >> (first % BITS);
        let wanted = lowest(there, most);
        let before = word.fetch_and(!(wanted << (first % BITS)), SeqCst);
        let taken = before >> (first % BITS) & wanted;
        if before == taken << (first % BITS) && taken != 0 {
            self.lower(first / BITS);
        }
        Some((first, taken))
    }
    /// Adds the blocks whose bits are set in `some`, counted from `first`; all are of one word.
    pub(super) fn set_some(&self, first: usize, some: u64) {
        let bits = some << (first % BITS);
        // (a). Pairs with `clear` and `take_some`: the CPU that clears the bit sees the block's
        // head.
        if self.words[first / BITS].fetch_or(bits, SeqCst) == 0 && self.levels() > 1 {
            self.raise(1, first / BITS);
        }
    }
    /// Clears the summary bits of word `at` of level 0, which has become empty: (2) and (3).
    fn lower(&self, mut at: usize) {
        for level in 1..self.levels() {
            let bit = 1 << (at % BITS);
            let word = self.upper[level - 1].start + at / BITS;
            // (2): pairs with (b) in `raise`, and precedes (3).
            let before = self.words[word].fetch_and(!bit, SeqCst);
            if self.load(level - 1, at) != 0 {
                // Another CPU set a bit below meanwhile, perhaps before this summary was cleared.
                return self.raise(level, at);
            }
            if before != bit {
                return;
            }
            at /= BITS;
        }
    }
    /// Finds the first block that is not below `from`.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        self.search(from, usize::MAX, |level, at| self.load(level, at))
    }
    /// Finds the first block that is not below `from`, with the words of each level as `load`
    /// returns them. Gives up after `patience` words of level 0 without a bit.
    #[inline]
    fn search(
        &self,
        mut from: usize,
        mut patience: usize,
        load: impl Fn(usize, usize) -> u64,
    ) -> Option<usize> {
        'search: loop {
            let (mut level, mut at) = (0, from);
            let mut found = loop {
                let bits = load(level, at / BITS) & !0 << (at % BITS);
                if bits != 0 {
                    break at / BITS * BITS + bits.trailing_zeros() as usize;
                }
                level += 1;
                if level == self.levels() {
                    return None;
                }
                at = at / BITS + 1;
            };
            while level > 0 {
                level -= 1;
                let bits = load(level, found);
                if bits == 0 {
                    // The summary bit is spurious, or two sets have different bits of this word:
                    // continue after the word.
                    patience = patience.checked_sub(1)?;
                    from = (found + 1) * BITS.pow(level as u32 + 1);
                    continue 'search;
                }
                found = found * BITS + bits.trailing_zeros() as usize;
            }
            return Some(found);
        }
    }
    /// Whether the set has at least `least` blocks. Reads the word of `near` first, then all words
    /// with blocks until there are enough.
    pub(super) fn has(&self, least: usize, near: usize) -> bool {
        // Pairs with `clear` and `take_some` on other CPUs: of two CPUs that clear a bit and then
        // count, one sees the other's.
        if self.words[near / BITS].load(SeqCst).count_ones() as usize >= least {
            return true;
        }
        let (mut count, mut from) = (0, 0);
        while count < least
            && let Some(at) = self.next(from)
        {
            let word = at / BITS;
            // Pairs like the load above.
            count += self.words[word].load(SeqCst).count_ones() as usize;
            from = (word + 1) * BITS;
        }
        count >= least
    }
    /// Iterates over the set once, from `home` to the end and then from 0.
    pub(super) fn from(&self, start: usize) -> impl Iterator<Item = usize> + '_ {
        round(start, |from| self.next(from))
    }
    /// Iterates likewise over the blocks that are in this set and in `also`, and not in `without`;
    /// the sets have the same length. May omit blocks that would take a long search.
    pub(super) fn common<'a>(
        &'a self,
        also: Option<&'a Self>,
        without: Option<&'a Self>,
        start: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let load = move |level: usize, at: usize| {
            let bits = self.load(level, at);
            if bits == 0 {
                return 0;
            }
            let bits = also.map_or(bits, |also| bits & also.load(level, at));
            match without {
                // In upper levels a bit means that some block is in `without`, not that all are.
                // Pairs like the load in `load`.
                Some(without) if level == 0 => bits & !without.words[at].load(SeqCst),
                _ => bits,
            }
        };
        let empty = load(self.upper.len(), 0) == 0;
        round(start, move |from| if empty { None } else { self.search(from, PATIENCE, load) })
    }
    /// Whether the set is empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // A hint. Pairs with `raise` and `lower`.
        self.words[self.words.len() - 1].load(SeqCst) == 0
    }
    /// Whether the set has `at`, which is below its length.
    pub(super) fn contains(&self, at: usize) -> bool {
        // Pairs with `clear` and `take_some`: see `set`.
        self.words[at / BITS].load(SeqCst) & 1 << (at % BITS) != 0
    }
}

/// Iterates over all that `next` finds, from `home` to the end and then from 0.
fn round(start: usize, next: impl Fn(usize) -> Option<usize>) -> impl Iterator<Item = usize> {
    let (mut at, mut wrapped) = (start, false);
    core::iter::from_fn(move || {
        loop {
            match next(at) {
                Some(found) if !wrapped || found < start => {
                    at = found + 1;
                    return Some(found);
                }
                _ if wrapped || start == 0 => return None,
                _ => (at, wrapped) = (0, true),
            }
        }
    })
}

/// The lowest `most` set bits, or all.
#[inline]
fn lowest(bits: u64, most: u32) -> u64 {
    // In most cases the lowest bits are contiguous.
    let run = !(!0_u64).checked_shl(most).unwrap_or(0);
    if bits & run == run {
        return run;
    }
    let left = (0..most).fold(bits, |left, _| left & left.wrapping_sub(1));
    bits ^ left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::placed;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use mmscale_stepped::Stepped;

    #[test]
    fn an_index_agrees_with_a_set_and_is_searched_in_order() {
        for len in [1, 64, 65, 4096, 4097, 300_000] {
            let index = placed(|place| Index::<Stepped>::new(place, len, |at| at % 1000 == 7));
            let mut model: BTreeSet<usize> = (0..len).filter(|at| at % 1000 == 7).collect();
            let mut random = 1_u64;
            for _ in 0..4000 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
                let at = (random >> 33) as usize % len;
                match random >> 30 & 3 {
                    0 => assert_eq!(index.clear(at), model.remove(&at)),
                    1 => {
                        let near = index.next(at);
                        assert_eq!(near, model.range(at..).next().copied());
                        near.into_iter().for_each(|at| {
                            assert!(index.clear(at) && model.remove(&at));
                        });
                    }
                    _ => {
                        index.set(at);
                        model.insert(at);
                    }
                }
                assert_eq!(index.contains(at), model.contains(&at));
            }
            let count = model.len();
            for near in [0, len / 2, len - 1] {
                assert!(index.has(count, near) && !index.has(count + 1, near), "{len}");
            }
            let start = len / 3;
            let round: Vec<usize> = index.from(start).collect();
            let expected = model.range(start..).chain(model.range(..start));
            assert!(round.iter().eq(expected), "{len}");
        }
    }

    #[test]
    fn blocks_of_two_sets_and_not_of_a_third_are_found_in_order() {
        let by =
            |step: usize| placed(|place| Index::<Stepped>::new(place, 2000, |at| at % step == 0));
        let (twos, threes, fives) = (by(2), by(3), by(5));
        let found = |also, without, start| twos.common(also, without, start).collect::<Vec<_>>();
        let expected = |holds: fn(usize) -> bool| {
            (600..2000).chain(0..600).filter(|&at| at % 2 == 0 && holds(at)).collect::<Vec<_>>()
        };
        assert_eq!(found(Some(&threes), None, 600), expected(|at| at % 3 == 0));
        assert_eq!(found(None, Some(&fives), 600), expected(|at| at % 5 != 0));
        assert_eq!(
            found(Some(&threes), Some(&fives), 600),
            expected(|at| at % 3 == 0 && at % 5 != 0)
        );
        // Each word has bits of both sets, and only the last has a common one: the search gives up.
        let (odd, last) = (8001, 7998);
        let left = placed(|place| Index::<Stepped>::new(place, odd, |at| at % 2 == 0));
        let right =
            placed(|place| Index::<Stepped>::new(place, odd, |at| at % 2 == 1 || at == last));
        assert_eq!(left.common(Some(&right), None, 0).next(), None);
        assert_eq!(left.common(Some(&right), None, 7000).next(), Some(last));
    }
}
