//! Means and their confidence intervals.
//!
//! Intervals are computed by the bootstrap: values are drawn from the observed ones with
//! replacement, many times, and the distribution of the statistic over the draws shows its
//! uncertainty. The generator has a fixed seed, so that equal values have equal intervals.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF, Normal};

/// Draws per interval. With 10,000 draws, the ends vary by about 1 % of the interval's width
/// between generator seeds.
const RESAMPLES: usize = 10_000;

/// The generator's seed: arbitrary, but fixed.
const SEED: u64 = 0x6d6d_7363_616c_6531;

/// Returns the arithmetic mean. `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the sample standard deviation (n - 1). `None` with fewer than two values.
pub fn stddev(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let sum: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    Some((sum / (values.len() - 1) as f64).sqrt())
}

/// Returns the mean of a random sample with replacement, of the same size as `values`.
fn draw_mean(rng: &mut Xoshiro256PlusPlus, values: &[f64]) -> f64 {
    let n = values.len();
    let pick = |random: u64| values[((u128::from(random) * n as u128) >> 64) as usize];
    (0..n).map(|_| pick(rng.next_u64())).sum::<f64>() / n as f64
}

/// Returns the quantile `p` of sorted values, with linear interpolation.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = p.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

/// Returns the acceleration of the bias-corrected bootstrap, a measure of skewness, from the means
/// with one value left out each.
fn acceleration(values: &[f64], mean: f64) -> f64 {
    let n = values.len() as f64;
    let deviations = values.iter().map(|x| (x - mean) / (n - 1.0));
    let (squares, cubes) =
        deviations.fold((0.0, 0.0), |(s, c): (f64, f64), d| (s + d * d, c + d * d * d));
    if squares == 0.0 { 0.0 } else { cubes / (6.0 * squares.powf(1.5)) }
}

/// Returns the 95 % confidence interval of the mean, by the bias-corrected and accelerated
/// bootstrap (Efron, "Better bootstrap confidence intervals", 1987). `None` with fewer than two
/// values.
pub fn mean_ci95(values: &[f64]) -> Option<[f64; 2]> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    if values.iter().all(|&x| x == values[0]) {
        return Some([values[0]; 2]);
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| draw_mean(&mut rng, values)).collect();
    means.sort_by(f64::total_cmp);
    let below = means.partition_point(|&m| m < mean);
    let not_above = means.partition_point(|&m| m <= mean);
    let normal = Normal::standard();
    let bias = normal.inverse_cdf((below + not_above) as f64 / (2 * RESAMPLES) as f64);
    let lopsided = acceleration(values, mean);
    let end = |p: f64| {
        let z = bias + normal.inverse_cdf(p);
        quantile(&means, normal.cdf(bias + z / (1.0 - lopsided * z)))
    };
    Some([end(0.025), end(0.975)])
}

/// Returns the median. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| quantile(&sorted, 0.5))
}

/// Returns a confidence interval of the median with a coverage of at least 95 %: from the k-th
/// smallest to the k-th largest value. It holds for any distribution, because each value is below
/// or above the median with probability 1/2. `None` with fewer than six values: even the smallest
/// and largest of five contain the median between them in only 94 % of all cases.
pub fn median_ci95(values: &[f64]) -> Option<[f64; 2]> {
    let n = values.len();
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The probability of at most `k` heads in `n` coin tosses, summed term by term in logarithms.
    let (mut below, mut term_ln) = (0.0, -(n as f64) * std::f64::consts::LN_2);
    let mut k = 0;
    for heads in 0..n {
        below += term_ln.exp();
        if below > 0.025 {
            break;
        }
        k = heads + 1;
        term_ln += ((n - heads) as f64 / (heads + 1) as f64).ln();
    }
    (k > 0).then(|| [sorted[k - 1], sorted[n - k]])
}

/// The change of a mean against another, in percent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// The change of the means, in percent.
    pub percent: f64,
    /// The 95 % confidence interval of the change.
    pub ci95: Option<[f64; 2]>,
}

/// Returns the change from `base` to `values`, with a percentile bootstrap over both. `None` if
/// `base` has no mean or a mean of zero. The interval is missing with fewer than two values on
/// either side, or if a draw of `base` can have a mean of zero.
pub fn change(base: &[f64], values: &[f64]) -> Option<Change> {
    let from = mean(base).filter(|&m| m != 0.0)?;
    let percent = 100.0 * (mean(values)? - from) / from.abs();
    if base.len() < 2 || values.len() < 2 || base.contains(&0.0) {
        return Some(Change { percent, ci95: None });
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut changes: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let from = draw_mean(&mut rng, base);
            100.0 * (draw_mean(&mut rng, values) - from) / from.abs()
        })
        .collect();
    changes.sort_by(f64::total_cmp);
    let ci95 = Some([quantile(&changes, 0.025), quantile(&changes, 0.975)]);
    Some(Change { percent, ci95 })
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected numbers come from scipy 1.17, with enough resamples that the last digit shown
    // does not depend on the seed:
    //
    //   import numpy as np; from scipy import stats
    //   stats.bootstrap((x,), np.mean, n_resamples=2_000_000, batch=100_000, method='BCa',
    //                   rng=np.random.default_rng(1)).confidence_interval
    //   f = lambda x, y, axis=-1: 100 * (np.mean(y, axis=axis) / np.mean(x, axis=axis) - 1)
    //   stats.bootstrap((x, y), f, n_resamples=1_000_000, batch=100_000, method='percentile',
    //                   vectorized=True, rng=np.random.default_rng(1)).confidence_interval
    #[test]
    fn the_interval_of_the_median_follows_the_binomial_distribution() {
        // scipy.stats.binom.ppf(0.025, n, 0.5) is the index of the lower end.
        let of = |n: usize| median_ci95(&(1..=n).rev().map(|x| x as f64).collect::<Vec<_>>());
        assert_eq!(of(0), None);
        assert_eq!(of(5), None);
        assert_eq!(of(6), Some([1.0, 6.0]));
        assert_eq!(of(8), Some([1.0, 8.0]));
        assert_eq!(of(9), Some([2.0, 8.0]));
        assert_eq!(of(20), Some([6.0, 15.0]));
        assert_eq!(of(60), Some([22.0, 39.0]));
        assert_eq!(of(5000).map(|[low, _]| low), Some(2431.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    const MANY: [f64; 5] = [872.0, 901.0, 845.0, 930.0, 866.0];
    const FEW: [f64; 5] = [117.0, 130.0, 99.0, 125.0, 121.0];
    const SKEWED: [f64; 8] = [4.19, 3.2, 35.76, 2.1, 5.5, 3.9, 2.8, 4.4];

    /// Returns whether two intervals agree within 2 % of their width.
    fn close([lo, hi]: [f64; 2], [low, high]: [f64; 2]) -> bool {
        let slack = 0.02 * (high - low);
        (lo - low).abs() <= slack && (hi - high).abs() <= slack
    }

    #[test]
    fn intervals_of_the_mean_are_scipys() {
        for (values, expected) in [
            (&MANY[..], [860.0, 912.6]),
            (&FEW[..], [106.2, 125.4]),
            (&SKEWED[..], [3.461, 20.191]),
        ] {
            let ci95 = mean_ci95(values).unwrap();
            assert!(close(ci95, expected), "{ci95:?} is not {expected:?}");
        }
    }

    #[test]
    fn changes_are_scipys() {
        let fewer = change(&MANY, &FEW).unwrap();
        assert!((fewer.percent - -86.588).abs() < 0.001);
        assert!(close(fewer.ci95.unwrap(), [-87.789, -85.576]), "{fewer:?}");
        assert_eq!(change(&[0.0, 0.0], &FEW), None);
        assert_eq!(change(&[2.0], &[3.0]), Some(Change { percent: 50.0, ci95: None }));
    }

    #[test]
    fn means_and_deviations_are_numpys() {
        assert_eq!(mean(&MANY), Some(882.8));
        assert!((stddev(&MANY).unwrap() - 33.116_461).abs() < 1e-6);
        assert!((stddev(&SKEWED).unwrap() - 11.373_314).abs() < 1e-6);
        assert_eq!((mean(&[]), stddev(&[1.0])), (None, None));
    }

    #[test]
    fn little_data_makes_no_claims() {
        assert_eq!(mean_ci95(&[]), None);
        assert_eq!(mean_ci95(&[872.0]), None);
        assert_eq!(mean_ci95(&[5.0, 5.0, 5.0]), Some([5.0, 5.0]));
        assert_eq!(mean_ci95(&[1.0, 3.0]), Some([1.0, 3.0]));
    }

    #[test]
    fn the_same_values_have_the_same_interval() {
        assert_eq!(mean_ci95(&SKEWED), mean_ci95(&SKEWED));
    }
}
