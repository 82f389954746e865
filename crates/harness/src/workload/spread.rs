//! A distribution of times in memory of fixed size, which processes of the live kernel can share.

use mmscale_document::Histogram;

/// Buckets per power of two: a percentile is too large by at most 1/32.
const PARTS: u32 = 32;
const SHIFT: u32 = PARTS.ilog2();
const BUCKETS: usize = (64 - SHIFT as usize + 1) * PARTS as usize;

/// Counts of times in ns, by size.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    counts: [u32; BUCKETS],
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

mmscale_system::plain!(Spread { counts, count, total_ns, max_ns });

impl Default for Spread {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], count: 0, total_ns: 0, max_ns: 0 }
    }
}

/// Returns the bucket of `ns`: the value itself if small, else determined by its highest bits.
fn bucket(ns: u64) -> usize {
    let high = (64 - ns.leading_zeros()).saturating_sub(SHIFT + 1);
    high as usize * PARTS as usize + (ns >> high) as usize
}

/// Returns the largest time of a bucket.
fn top(bucket: usize) -> u64 {
    let high = (bucket / PARTS as usize).saturating_sub(1);
    let rest = (bucket - high * PARTS as usize) as u64;
    ((u128::from(rest) + 1) << high).saturating_sub(1).min(u128::from(u64::MAX)) as u64
}

impl Spread {
    /// Counts a time of `ns`.
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }
    /// Adds the counts of another distribution.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Returns the sum, in ns.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }
    /// Returns the mean, in ns; 0 if empty.
    pub fn mean(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }
    /// Returns the longest time, in ns.
    pub fn max(&self) -> u64 {
        self.max_ns
    }
    /// Returns a time that is not exceeded by `percent` of 100 times, in ns; 0 if empty.
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let reaches = |count: &u32| {
            seen += u64::from(*count);
            seen >= rank
        };
        match self.counts.iter().position(reaches) {
            Some(found) if self.count > 0 => top(found).min(self.max_ns),
            _ => 0,
        }
    }
    /// Returns counts by powers of two.
    pub fn histogram(&self) -> Histogram {
        let mut sums = [0_u64; 64];
        for (at, &count) in self.counts.iter().enumerate() {
            sums[top(at).max(1).ilog2() as usize] += u64::from(count);
        }
        powers_of_two(&sums)
    }
}

/// Creates a histogram of times in ns from counts. The n-th count is for times from `2^n` ns to
/// less than `2^(n+1)` ns; the first one starts at 0. Empty buckets are left out.
pub fn powers_of_two(counts: &[u64]) -> Histogram {
    let low = |bucket: usize| if bucket == 0 { 0 } else { 1 << bucket };
    let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let buckets = filled.map(|(at, &count)| [low(at), 2 << at, count]).collect();
    Histogram { unit: "ns".to_owned(), buckets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two_and_none_is_empty() {
        assert_eq!(powers_of_two(&[3, 0, 5]).buckets, [[0, 2, 3], [4, 8, 5]]);
    }

    #[test]
    fn every_time_has_a_bucket_that_is_not_much_larger() {
        let times = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, 3 << bit >> 1]);
        for ns in times.chain([u64::MAX, 0, 5, 31, 32, 33, 1_000_000_007]) {
            let top = top(bucket(ns));
            assert!(top >= ns && top - ns <= ns / u64::from(PARTS), "{ns}: {top}");
        }
    }

    #[test]
    fn percentiles_and_sums_are_those_of_the_times() {
        let mut spread = Spread::default();
        (1..=1000).for_each(|ns| spread.add(ns * 1000));
        let near = |percent, ns: u64| {
            let found = spread.percentile(percent);
            assert!((ns..ns + ns / 31).contains(&found), "{percent}: {found}");
        };
        near(50, 500_000);
        near(99, 990_000);
        assert_eq!((spread.percentile(100), spread.max()), (1_000_000, 1_000_000));
        assert!((spread.mean() - 500_500.0).abs() < 1.0);
        let mut other = Spread::default();
        assert_eq!(other.percentile(99), 0);
        other.add(3);
        other.merge(&spread);
        assert_eq!((other.count(), other.percentile(1)), (1001, top(bucket(10_000))));
        let counts = other.histogram().buckets;
        assert_eq!((counts[0], counts.iter().map(|row| row[2]).sum::<u64>()), ([2, 4, 1], 1001));
    }
}
