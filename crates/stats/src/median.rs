//! Medians and their confidence intervals.

use crate::quantile;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
