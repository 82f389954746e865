//! Wilcoxon's signed-rank statistic: the distribution of its values if no pair changed, and the
//! averages of pairs of values (Walsh averages) that its interval consists of.

use statrs::distribution::{ContinuousCDF, Normal};

/// Largest number of values for which the distribution is computed exactly. Above, the normal
/// distribution is closer to it than the digits that are shown.
const EXACT: usize = 50;

/// The distribution of the sum of the ranks of positive values among `n` values, if each sign is
/// positive with probability 1/2: over all `2^n` ways to flip signs.
pub(crate) struct SignedRank {
    n: usize,
    /// Probabilities of sums from 0; empty if `n` is above [`EXACT`].
    exact: Vec<f64>,
}

impl SignedRank {
    pub(crate) fn new(n: usize) -> Self {
        let sums = if n <= EXACT { n * (n + 1) / 2 + 1 } else { 0 };
        let mut exact = vec![0.0; sums];
        if let Some(zero) = exact.first_mut() {
            *zero = 1.0;
            for rank in 1..=n {
                // The rank is added or not; from above, so that each rank is added once.
                for sum in (0..sums).rev() {
                    let without = if sum >= rank { exact[sum - rank] } else { 0.0 };
                    exact[sum] = 0.5 * (exact[sum] + without);
                }
            }
        }
        Self { n, exact }
    }

    /// Returns the probability of a sum of at most `sum`.
    pub(crate) fn at_most(&self, sum: usize) -> f64 {
        if !self.exact.is_empty() {
            return self.exact.iter().take(sum + 1).sum();
        }
        let n = self.n as f64;
        let mean = n * (n + 1.0) / 4.0;
        let deviation = (mean * (2.0 * n + 1.0) / 6.0).sqrt();
        Normal::standard().cdf((sum as f64 + 0.5 - mean) / deviation)
    }

    /// Returns k so that the interval from the k-th smallest to the k-th largest Walsh average has
    /// a coverage of at least 95 %. `None` with fewer than six values.
    pub(crate) fn rank_of_ends(&self) -> Option<usize> {
        let mut ranks = 0..=self.n * (self.n + 1) / 4;
        ranks.find(|&sum| self.at_most(sum) > 0.025).filter(|&rank| rank > 0)
    }
}

/// The averages of all pairs of values, each value with itself included.
pub(crate) struct Walsh {
    sorted: Vec<f64>,
}

impl Walsh {
    pub(crate) fn new(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }

    /// Returns the number of averages.
    pub(crate) fn len(&self) -> usize {
        self.sorted.len() * (self.sorted.len() + 1) / 2
    }

    /// Returns the number of averages of which `below` is true, which must be so for the smallest
    /// ones.
    pub(crate) fn count(&self, below: impl Fn(f64) -> bool) -> usize {
        let (mut end, mut count) = (self.sorted.len(), 0);
        for (start, low) in self.sorted.iter().enumerate() {
            while end > start && !below((low + self.sorted[end - 1]) / 2.0) {
                end -= 1;
            }
            count += end.saturating_sub(start);
        }
        count
    }

    /// Returns the average that is at place `rank` by size, the smallest at 1. It is searched by
    /// halving the range of the numbers, so that the averages need not be stored.
    pub(crate) fn nth(&self, rank: usize) -> f64 {
        let (mut low, mut high) = (place(f64::NEG_INFINITY), place(f64::INFINITY));
        while low < high {
            let middle = low + (high.abs_diff(low) / 2) as i64;
            if self.count(|average| place(average) <= middle) >= rank {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        number(low)
    }

    /// Returns the median of the averages: the Hodges-Lehmann estimate of the centre.
    pub(crate) fn median(&self) -> f64 {
        let n = self.len();
        (self.nth(n.div_ceil(2)) + self.nth(n / 2 + 1)) / 2.0
    }
}

/// Returns the place of a number in the order of all numbers.
fn place(x: f64) -> i64 {
    // Without -0, which would have a place of its own.
    let bits = (x + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Returns the number at a place.
fn number(place: i64) -> f64 {
    f64::from_bits((place ^ (((place >> 63) as u64) >> 1) as i64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_that_of_all_flips_of_signs() {
        for n in 1..=10_u32 {
            let distribution = SignedRank::new(n as usize);
            let sum = |signs: u32| (0..n).filter(|i| signs >> i & 1 == 1).map(|i| i + 1).sum();
            let sums: Vec<u32> = (0..1 << n).map(sum).collect();
            for most in 0..=n * (n + 1) / 2 {
                let share =
                    sums.iter().filter(|&&sum| sum <= most).count() as f64 / f64::from(1_u32 << n);
                assert!((distribution.at_most(most as usize) - share).abs() < 1e-12, "{n}: {most}");
            }
        }
    }

    #[test]
    fn many_values_have_nearly_the_distribution_of_one_fewer() {
        let [exact, normal] = [EXACT, EXACT + 1].map(SignedRank::new);
        let (inside, outside) = (exact.rank_of_ends().unwrap(), normal.rank_of_ends().unwrap());
        // numpy, for n of 50 and 51, both exact: c = np.zeros(n * (n + 1) // 2 + 1); c[0] = 1;
        // for r in range(1, n + 1): d = c.copy(); d[r:] += c[:-r]; c = d / 2
        // (np.cumsum(c) <= 0.025).sum()
        assert_eq!((inside, outside), (435, 454));
    }

    #[test]
    fn ends_are_the_tabulated_ones() {
        // scipy.stats.wilcoxon has the same distribution; the numbers are in any table.
        let ends: Vec<_> = (1..=12).map(|n| SignedRank::new(n).rank_of_ends()).collect();
        let table = [1, 3, 4, 6, 9, 11, 14].map(Some);
        assert_eq!((&ends[..5], &ends[5..]), (&[None; 5][..], &table[..]));
    }

    #[test]
    fn averages_are_found_without_storing_them() {
        let values = [3.0, -1.5, 0.0, -0.0, 7.25, 3.0, 1e-300, -4e9, 0.1];
        let walsh = Walsh::new(&values);
        let mut all = Vec::new();
        for (i, x) in values.iter().enumerate() {
            all.extend(values[i..].iter().map(|y| (x + y) / 2.0));
        }
        all.sort_by(f64::total_cmp);
        assert_eq!(walsh.len(), all.len());
        for (at, &average) in all.iter().enumerate() {
            assert_eq!(walsh.nth(at + 1), average);
        }
        assert_eq!(walsh.count(|x| x < 0.0), all.iter().filter(|x| **x < 0.0).count());
        assert_eq!(walsh.median(), all[all.len() / 2]);
    }
}
