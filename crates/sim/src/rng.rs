//! Random numbers and hashes of the engine: splitmix64 and its finalizer, fixed for good.

/// Quantiles of a log-normal distribution with a median of 1 and a 99th percentile of 5, in 1/1024,
/// at i / 64; the ends are at 1 / 256 and 255 / 256. By a table: a host's exponential may differ
/// from another host's.
const LONG_TAIL_1024: [u32; 65] = [
    163, 231, 282, 321, 354, 384, 411, 437, 462, 486, 509, 532, 554, 576, 598, 620, 642, 664, 686,
    708, 730, 753, 775, 798, 821, 845, 869, 893, 918, 944, 970, 997, 1024, 1052, 1081, 1111, 1142,
    1174, 1207, 1241, 1277, 1314, 1353, 1393, 1436, 1481, 1529, 1579, 1633, 1690, 1752, 1819, 1892,
    1971, 2059, 2158, 2270, 2398, 2549, 2731, 2960, 3265, 3715, 4544, 6450,
];

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
    /// Returns true `share` times in 1024; draws nothing if `share` is zero.
    pub(crate) fn chance_1024(&mut self, share: u32) -> bool {
        share != 0 && self.below(1024) < u64::from(share)
    }
    /// Returns a number between half of `mean` and one and a half of it, at least 1.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        (mean / 2 + self.below(mean.max(1))).max(1)
    }
    /// Returns an exponentially distributed number with mean `mean`, at least 1. By integers only:
    /// a host's logarithm may differ from another host's.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        /// The natural logarithm of 2, times 2^32.
        const LN_2: u128 = 2_977_044_472;
        let bits = (64 << 32) - log2(self.next() | 1);
        // bits / 2^32 is -log2 of a number between 0 and 1.
        let times = (u128::from(bits) * LN_2) >> 32;
        ((times * u128::from(mean)) >> 32).max(1) as u64
    }
    /// Returns a number of at least `least`, which exceeds each doubling with the chance
    /// `doubles_1024`; drawn again above `most`.
    pub(crate) fn tail(&mut self, least: u64, most: u64, doubles_1024: u32) -> u64 {
        const ATTEMPTS: usize = 64;
        for _ in 0..ATTEMPTS {
            let mut low = least.max(1);
            while low < most && self.chance_1024(doubles_1024) {
                low *= 2;
            }
            let drawn = low + self.below(low);
            if drawn <= most {
                return drawn;
            }
        }
        most
    }
    /// Returns a factor in 1/1024 for a time whose median is known: log-normal with a median of 1
    /// and a 99th percentile of 5 if `spread_1024` is 1024; 1 if it is 0, and then draws nothing.
    pub(crate) fn long_tail_1024(&mut self, spread_1024: u32) -> u64 {
        if spread_1024 == 0 {
            return 1024;
        }
        let parts = LONG_TAIL_1024.len() as u64 - 1;
        let drawn = self.below(parts << 10);
        let (at, part) = ((drawn >> 10) as usize, (drawn & 1023) as i64);
        let [low, high] = [LONG_TAIL_1024[at], LONG_TAIL_1024[at + 1]].map(i64::from);
        let factor = low + (((high - low) * part) >> 10);
        (1024 + (((factor - 1024) * i64::from(spread_1024)) >> 10)).max(1) as u64
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

/// Returns the logarithm of `x` to base 2, times 2^32; `x` is not 0.
fn log2(x: u64) -> u64 {
    let whole = x.ilog2();
    let mut rest = u128::from(x) << (63 - whole);
    let mut bits = u64::from(whole);
    for _ in 0..32 {
        rest = (rest * rest) >> 63;
        let one = rest >> 64;
        rest >>= one;
        bits = bits << 1 | one as u64;
    }
    bits
}

/// The jitter of work: the factors that are drawn, in 1/1024.
#[derive(Clone, Copy)]
pub(crate) struct Jitter {
    /// The least factor.
    least: u64,
    /// The number of factors; 1 without jitter, and then none is drawn.
    span: u64,
}

impl Jitter {
    /// Makes work take up to `share_1024` longer or shorter.
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
    fn long_tails_have_their_median_and_their_99th_percentile() {
        let mut rng = SplitMix64::new(1);
        let mut drawn: Vec<u64> = (0..10_000).map(|_| rng.long_tail_1024(1024)).collect();
        drawn.sort_unstable();
        assert!((985..1065).contains(&drawn[5_000]), "{}", drawn[5_000]);
        assert!((4_600..5_600).contains(&drawn[9_900]), "{}", drawn[9_900]);
        let state = rng.state();
        assert_eq!((rng.long_tail_1024(0), rng.state()), (1024, state), "nothing is drawn");
        let half = rng.long_tail_1024(512);
        assert!((512..3_300).contains(&half), "half of the way from 1: {half}");
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
    fn logarithms_are_right_to_nine_digits() {
        for x in [1, 2, 3, 10, 1 << 40, u64::MAX] {
            let exact = (x as f64).log2();
            assert!((log2(x) as f64 / 4_294_967_296.0 - exact).abs() < 1e-9, "{x}");
        }
    }

    #[test]
    fn exponential_gaps_have_their_mean_and_their_tail() {
        let mut rng = SplitMix64::new(7);
        let drawn: Vec<u64> = (0..100_000).map(|_| rng.exponential(1_000_000)).collect();
        let mean = drawn.iter().sum::<u64>() / 100_000;
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
        let above = drawn.iter().filter(|&&x| x > 3_000_000).count();
        assert!((4_700..5_250).contains(&above), "{above}: e^-3 of them are above three means");
    }

    #[test]
    fn a_tail_doubles_with_its_chance_and_ends_where_it_is_cut() {
        let mut rng = SplitMix64::new(7);
        let drawn: Vec<u64> = (0..100_000).map(|_| rng.tail(1_000, 1_000_000, 512)).collect();
        assert!(drawn.iter().all(|x| (1_000..=1_000_000).contains(x)));
        for doublings in 1..6 {
            let above = drawn.iter().filter(|&&x| x >= 1_000 << doublings).count();
            let wanted = 100_000 >> doublings;
            assert!(above.abs_diff(wanted) < wanted / 10 + 100, "{doublings}: {above}");
        }
        assert_eq!(rng.tail(1_000, 1_500, 1024), 1_500, "a law that never ends is cut");
    }

    #[test]
    fn around_stays_within_half_and_one_and_a_half() {
        let mut rng = SplitMix64::new(7);
        assert!((0..10_000).all(|_| (50..150).contains(&rng.around(100))));
    }
}
