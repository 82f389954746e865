//! Several tests together.

/// The level of all tests: the probability that any of a family of tests finds a change where there
/// is none.
pub const LEVEL: f64 = 0.05;

/// Returns which of several tests hold together at [`LEVEL`], from their p values (Holm, "A simple
/// sequentially rejective multiple test procedure", 1979): the smallest p value must be at most
/// `LEVEL / n`, the next one at most `LEVEL / (n - 1)`, and so on up to the first that is not.
pub fn holm(p: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut holds = vec![false; p.len()];
    for (rank, &test) in order.iter().enumerate() {
        if p[test] > LEVEL / (p.len() - rank) as f64 {
            break;
        }
        holds[test] = true;
    }
    holds
}

/// Returns the smallest number of pairs with which each of `tests` can hold: with n pairs that all
/// change in one direction, the p value is 2 / 2^n.
pub fn pairs_needed(tests: usize) -> usize {
    let enough = |pairs: &usize| 2.0 / 2.0_f64.powi(*pairs as i32) <= LEVEL / tests.max(1) as f64;
    (1..64).find(enough).expect("64 pairs are enough for any table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_hold_in_steps() {
        // statsmodels.stats.multitest.multipletests(p, method='holm')
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [true, false, false]);
        assert_eq!(holm(&[0.04, 0.01, 0.02]), [true, true, true]);
        assert_eq!(holm(&[0.02, 0.02, 0.02]), [false, false, false]);
        assert_eq!(holm(&[0.05]), [true]);
        assert_eq!(holm(&[]), [false; 0]);
    }

    #[test]
    fn as_many_pairs_are_needed_as_the_smallest_p_value_says() {
        assert_eq!([1, 2, 3, 4].map(pairs_needed), [6, 7, 7, 8]);
        let unanimous = [2.0 / 2.0_f64.powi(7); 3];
        assert_eq!(holm(&unanimous), [true; 3]);
        assert_eq!(holm(&unanimous.map(|p| 2.0 * p)), [false; 3]);
    }
}
