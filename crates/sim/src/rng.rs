//! Random numbers and hashes of the engine: splitmix64 and its finalizer, fixed for good.

/// Sebastiano Vigna's splitmix64: eight bytes of state, one multiply-xor chain per number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// A number below `bound`, by multiplication: the bias is below `bound / 2^64`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
    /// True `share` times in 1024; draws nothing when `share` is zero.
    pub(crate) fn chance_1024(&mut self, share: u32) -> bool {
        share != 0 && self.below(1024) < u64::from(share)
    }
    /// Anything from half of `mean` to one and a half of it, at least 1.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        (mean / 2 + self.below(mean.max(1))).max(1)
    }
    pub(crate) const fn state(&self) -> u64 {
        self.0
    }
}

/// The finalizer of splitmix64: a bijection in which each input bit reaches each output bit.
#[inline]
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The jitter of work: the factors that are drawn, in 1/1024.
#[derive(Clone, Copy)]
pub(crate) struct Jitter {
    /// The least factor.
    least: u64,
    /// How many factors there are; 1 without jitter: then none is drawn.
    span: u64,
}

impl Jitter {
    /// Work takes up to `share_1024` longer or shorter.
    pub(crate) fn new(share_1024: u32) -> Self {
        let share = u64::from(share_1024.min(1024));
        Self { least: 1024 - share, span: 2 * share + 1 }
    }
    /// Draws a factor.
    #[inline]
    pub(crate) fn factor_1024(self, rng: &mut SplitMix64) -> u64 {
        self.least + if self.span == 1 { 0 } else { rng.below(self.span) }
    }
}

/// A running hash of 64-bit words, in order: each step is splitmix64's finalizer.
pub(crate) struct Mix64(u64);

impl Mix64 {
    pub(crate) const fn new() -> Self {
        Self(0x6d6d_7363_616c_6531)
    }
    pub(crate) fn word(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    pub(crate) fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        for part in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.word(u64::from_le_bytes(word));
        }
    }
    pub(crate) const fn finish(&self) -> u64 {
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_sequence() {
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn hash_depends_on_order_and_on_length() {
        let hash = |words: &[u64]| {
            let mut mix = Mix64::new();
            words.iter().for_each(|&word| mix.word(word));
            mix.finish()
        };
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[0]), hash(&[0, 0]));
    }

    #[test]
    fn around_stays_within_half_and_one_and_a_half() {
        let mut rng = SplitMix64::new(7);
        assert!((0..10_000).all(|_| (50..150).contains(&rng.around(100))));
    }
}
