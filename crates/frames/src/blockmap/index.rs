//! Which blocks are worth a visit: a bitmap with summaries, changed without a lock.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::{Atomic, Cpu, planted};

/// How many of the set lie in a word.
pub(super) const BITS: usize = u64::BITS as usize;

/// How many words of level 0 a search among two sets looks at in vain: what it is for, the best
/// of what there is, is not worth more.
const PATIENCE: usize = 32;

/// A set of block numbers below a fixed length. Hints: a block in the set is worth looking at;
/// what holds of it its head says. Only of the whole ones that nobody owns it is the set that says
/// who may have them: whoever takes one out.
///
/// Level 0 has a bit for each block, each further level a bit for each word of the level below
/// that may have a bit set; the last level is one word. A bit of an upper level may be set for
/// nothing, never missing for longer than the one who sets it takes.
pub(super) struct Index<A: Cpu> {
    /// All levels, one after the other: who wants a bit of level 0 finds it in one step.
    words: Box<[A::AtomicU64]>,
    /// Where the upper levels are among them, level 1 first.
    upper: Box<[Range<usize>]>,
}

impl<A: Cpu> Index<A> {
    /// For blocks `0..len`, of which those are in it that `holds` names.
    pub(super) fn new(len: usize, holds: impl Fn(usize) -> bool) -> Self {
        let mut bits: Vec<u64> = Vec::new();
        for word in 0..len.div_ceil(BITS).max(1) {
            let of = |bit: usize| word * BITS + bit < len && holds(word * BITS + bit);
            bits.push((0..BITS).fold(0, |bits, bit| bits | u64::from(of(bit)) << bit));
        }
        let (mut words, mut upper) = (bits.clone(), Vec::new());
        while bits.len() > 1 {
            let any = |words: &[u64]| {
                words.iter().enumerate().fold(0, |up, (bit, &w)| up | u64::from(w != 0) << bit)
            };
            bits = bits.chunks(BITS).map(any).collect();
            upper.push(words.len()..words.len() + bits.len());
            words.extend(&bits);
        }
        Self { words: words.into_iter().map(A::AtomicU64::new).collect(), upper: upper.into() }
    }
    /// Words of level 0.
    fn bottom(&self) -> usize {
        self.upper.first().map_or(self.words.len(), |level| level.start)
    }
    /// Levels, level 0 among them.
    fn levels(&self) -> usize {
        1 + self.upper.len()
    }
    /// A word of a level; `None`: the level has fewer.
    #[inline]
    fn word(&self, level: usize, at: usize) -> Option<&A::AtomicU64> {
        match level.checked_sub(1) {
            None => self.words[..self.bottom()].get(at),
            Some(level) => self.words[self.upper[level].clone()].get(at),
        }
    }
    /// What a word says; nothing, if there is none.
    #[inline]
    fn load(&self, level: usize, at: usize) -> u64 {
        self.word(level, at).map_or(0, |word| word.load(SeqCst))
    }
    /// Bytes of its bitmaps, where an atomic is as large as what it holds.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }
    /// Puts `at` in.
    #[inline]
    pub(super) fn set(&self, at: usize) {
        // Whoever takes the bit out looks at the block's head after that, and the caller changed
        // the head before this: so a bit that is there already will do.
        if !self.contains(at) {
            self.set_some(at, 1);
        }
    }
    /// Says at `level`, an upper one, and above that the word `at` of the one below has something.
    fn raise(&self, level: usize, mut at: usize) {
        for level in &self.upper[level - 1..] {
            let word = &self.words[level.start + at / BITS];
            if word.fetch_or(1 << (at % BITS), SeqCst) != 0 {
                return;
            }
            at /= BITS;
        }
    }
    /// Takes `at` out; whether it was in.
    #[inline]
    pub(super) fn clear(&self, at: usize) -> bool {
        let bit = 1 << (at % BITS);
        let before = self.words[at / BITS].fetch_and(!bit, SeqCst);
        if before == bit {
            self.lower(at / BITS);
        }
        before & bit != 0
    }
    /// Takes out up to `most` of those that follow one another from `from` on, closely enough that
    /// one step does it: the first one that it may be, and a bit for each from there on. `None`:
    /// there is nothing from `from` on.
    pub(super) fn take_some(&self, from: usize, most: u32) -> Option<(usize, u64)> {
        let first = self.next(from)?;
        let word = &self.words[first / BITS];
        let there = word.load(SeqCst) >> (first % BITS);
        let wanted = lowest(there, most);
        let before = word.fetch_and(!(wanted << (first % BITS)), SeqCst);
        let taken = before >> (first % BITS) & wanted;
        if before == taken << (first % BITS) && taken != 0 {
            self.lower(first / BITS);
        }
        Some((first, taken))
    }
    /// Puts those in whose bits are set, where `first` has the lowest; all are of one word.
    pub(super) fn set_some(&self, first: usize, some: u64) {
        let bits = some << (first % BITS);
        if self.words[first / BITS].fetch_or(bits, SeqCst) == 0 && self.levels() > 1 {
            self.raise(1, first / BITS);
        }
    }
    /// The word `at` of level 0 has become empty.
    fn lower(&self, mut at: usize) {
        for level in 1..self.levels() {
            let bit = 1 << (at % BITS);
            let word = self.upper[level - 1].start + at / BITS;
            let before = self.words[word].fetch_and(!bit, SeqCst);
            if !planted!(BlockmapSummaryLost) && self.load(level - 1, at) != 0 {
                // Somebody set a bit below meanwhile, and may have seen this one still set.
                return self.raise(level, at);
            }
            if before != bit {
                return;
            }
            at /= BITS;
        }
    }
    /// The first one in it from `from` on.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        self.search(from, usize::MAX, |level, at| self.load(level, at))
    }
    /// The first one from `from` on by what `load` says of the words of each level.
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
                    // The summary was out of date, or of two words of which each has others: go on
                    // behind it.
                    patience = patience.checked_sub(1)?;
                    from = (found + 1) * BITS.pow(level as u32 + 1);
                    continue 'search;
                }
                found = found * BITS + bits.trailing_zeros() as usize;
            }
            return Some(found);
        }
    }
    /// Whether there are at least `least` in it. Looks at the word of `near` first, then at those
    /// that have any, until it knows.
    pub(super) fn has(&self, least: usize, near: usize) -> bool {
        if self.words[near / BITS].load(SeqCst).count_ones() as usize >= least {
            return true;
        }
        let (mut count, mut from) = (0, 0);
        while count < least
            && let Some(at) = self.next(from)
        {
            let word = at / BITS;
            count += self.words[word].load(SeqCst).count_ones() as usize;
            from = (word + 1) * BITS;
        }
        count >= least
    }
    /// All in it, beginning at `home` and going round once.
    pub(super) fn from(&self, start: usize) -> impl Iterator<Item = usize> + '_ {
        round(start, |from| self.next(from))
    }
    /// Those in it, in `also`, and not in `without`, both as long, in the same way; not those that
    /// are hard to find.
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
                // Above, a bit says that there is one, not that there are all.
                Some(without) if level == 0 => bits & !without.words[at].load(SeqCst),
                _ => bits,
            }
        };
        let empty = load(self.upper.len(), 0) == 0;
        round(start, move |from| if empty { None } else { self.search(from, PATIENCE, load) })
    }
    /// Whether there is nothing in it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.words[self.words.len() - 1].load(SeqCst) == 0
    }
    /// Whether `at`, one of its blocks, is in.
    pub(super) fn contains(&self, at: usize) -> bool {
        self.words[at / BITS].load(SeqCst) & 1 << (at % BITS) != 0
    }
}

/// All that `next` finds, beginning at `home` and going round once.
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

/// The lowest `most` bits that are set, or all.
#[inline]
fn lowest(bits: u64, most: u32) -> u64 {
    // Mostly nothing lies between them.
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
    use alloc::collections::BTreeSet;
    use mmscale_stepped::Stepped;

    #[test]
    fn it_holds_what_a_set_holds_and_finds_it_in_order() {
        for len in [1, 64, 65, 4096, 4097, 300_000] {
            let index = Index::<Stepped>::new(len, |at| at % 1000 == 7);
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
    fn what_two_sets_share_and_a_third_has_not_is_found_in_order() {
        let by = |step: usize| Index::<Stepped>::new(2000, |at| at % step == 0);
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
        // Each word has some of both sets, and no bit in common but the last: given up on the way.
        let (odd, last) = (8001, 7998);
        let left = Index::<Stepped>::new(odd, |at| at % 2 == 0);
        let right = Index::<Stepped>::new(odd, |at| at % 2 == 1 || at == last);
        assert_eq!(left.common(Some(&right), None, 0).next(), None);
        assert_eq!(left.common(Some(&right), None, 7000).next(), Some(last));
    }
}
