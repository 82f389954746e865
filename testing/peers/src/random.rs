//! Random numbers, identical for every allocator.

/// splitmix64.
pub(crate) struct Random(u64);

impl Random {
    /// Makes a generator whose numbers depend on `seed` only.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
    /// Returns an order from 0 to 3.
    pub(crate) fn small_order(&mut self) -> u8 {
        (self.next() >> 62) as u8
    }
    /// Puts `items` in a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut items: Vec<usize> = (0..1000).collect();
        Random::new(1).shuffle(&mut items);
        let fixed = items.iter().enumerate().filter(|(at, item)| at == *item).count();
        assert!(fixed < 10, "{fixed} of 1000 are where they were");
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
    }
}
