//! The random numbers of a case, which depend on its seed, its target and its number alone.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The stream of one case.
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Returns the stream of case `number` of a target.
    pub(crate) fn of(target: &str, seed: u64, number: u64) -> Self {
        let name = target.bytes().fold(0, |sum: u64, byte| sum * 31 + u64::from(byte));
        // Neighbours in any of the three have unrelated streams: the generator mixes its seed.
        let mut first = Xoshiro256PlusPlus::seed_from_u64(seed ^ name.rotate_left(32));
        Self(Xoshiro256PlusPlus::seed_from_u64(first.next_u64() ^ number))
    }
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// Returns a number below `end`, or 0 if that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.bits() % end.max(1) as u64) as usize
    }
    /// Returns a number below `end`; small ones are far more likely.
    pub(crate) fn few(&mut self, end: usize) -> usize {
        let end = 1 + self.below(end);
        self.below(end)
    }
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
    pub(crate) fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
    /// Returns a range within `0..length`, mostly a short one.
    pub(crate) fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let from = self.below(length + 1);
        let most = if self.percent(20) { 400 } else { 12 };
        from..(from + self.below(most)).min(length)
    }
}
