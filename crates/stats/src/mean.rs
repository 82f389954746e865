//! Means and their confidence intervals.
//!
//! Intervals are computed by the bootstrap: values are drawn from the observed ones with
//! replacement, many times, and the distribution of the statistic over the draws shows its
//! uncertainty. The generator has a fixed seed, so that equal values have equal intervals.

use crate::quantile;
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

/// Returns the harmonic mean, the mean of rates whose runs do equal work: its reciprocal is the
/// mean time per unit of work. `None` without values, or if a value is not positive.
pub fn harmonic_mean(rates: &[f64]) -> Option<f64> {
    mean(&reciprocals(rates)?).map(f64::recip)
}

/// Returns the 95 % confidence interval of the harmonic mean: that of the mean of the reciprocals,
/// turned over. `None` with fewer than two values, or if a value is not positive.
pub fn harmonic_mean_ci95(rates: &[f64]) -> Option<[f64; 2]> {
    mean_ci95(&reciprocals(rates)?).map(|[low, high]| [high.recip(), low.recip()])
}

pub(crate) fn reciprocals(rates: &[f64]) -> Option<Vec<f64>> {
    rates.iter().all(|&x| x > 0.0).then(|| rates.iter().map(|x| x.recip()).collect())
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
    //
    // For the harmonic mean stats.hmean(x), and the interval of 1 / x turned over.
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
    fn harmonic_means_are_scipys() {
        assert!((harmonic_mean(&MANY).unwrap() - 881.818_338_5).abs() < 1e-6);
        assert!((harmonic_mean(&SKEWED).unwrap() - 3.849_925_7).abs() < 1e-6);
        let ci95 = harmonic_mean_ci95(&SKEWED).unwrap();
        assert!(close(ci95, [2.9247, 5.8210]), "{ci95:?}");
        assert_eq!((harmonic_mean(&[]), harmonic_mean(&[1.0, 0.0])), (None, None));
        assert_eq!(harmonic_mean_ci95(&[4.0]), None);
        assert_eq!(harmonic_mean_ci95(&[4.0, 4.0]), Some([4.0, 4.0]));
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
