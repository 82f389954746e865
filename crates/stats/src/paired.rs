//! The change between two runs of the same seeds.
//!
//! Runs with equal seeds have the same random choices, so their values move together, and the
//! changes of pairs vary less than the values. A change is the logarithm of the ratio of a pair's
//! values. If a value after is 0, it is the ratio itself, and if a value before is, the difference.
//! The estimate is the median of the averages of all pairs of changes (Hodges and Lehmann, 1963).
//! The p value is that of Wilcoxon's signed-rank test: all `2^n` ways to flip the signs of the
//! changes are equally likely if nothing changed. The interval consists of the changes that this
//! test does not reject.
//!
//! All three are exact for any distribution of changes that is symmetric around the change, and a
//! single outlier hardly moves the estimate.

use crate::mean;
use crate::signed_rank::{SignedRank, Walsh};

/// The form of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// The value after, divided by the value before.
    Ratio,
    /// The value after minus the value before.
    Difference,
}

impl Scale {
    /// Returns the change of equal values.
    pub(crate) const fn same(self) -> f64 {
        match self {
            Self::Ratio => 1.0,
            Self::Difference => 0.0,
        }
    }
}

/// The change between two runs of the same seeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// Number of pairs.
    pub pairs: usize,
    /// The form of `estimate` and `ci95`.
    pub scale: Scale,
    /// The Hodges-Lehmann estimate of the change.
    pub estimate: f64,
    /// The interval of the change with a coverage of at least 95 %, at a first look of 99.7 %;
    /// `None` with fewer than six pairs that are not of a first look.
    pub ci95: Option<[f64; 2]>,
    /// The probability of changes that are at least as one-sided as these if nothing changed
    /// (two-sided, exact up to 50 pairs). Ties count as evidence against a change.
    pub p: f64,
    /// Whether the values of each pair are equal.
    pub unchanged: bool,
    /// The mean of the values before.
    pub(crate) before: f64,
}

/// Returns the change over pairs of values, before and after. `None` without pairs.
pub fn paired(pairs: &[(f64, f64)]) -> Option<Change> {
    let form = Form::of(pairs);
    let changes: Vec<f64> = pairs.iter().map(|&pair| form.change(pair)).collect();
    let change = estimated(pairs, form, &changes)?;
    let (distribution, averages) = (SignedRank::new(pairs.len()), Walsh::new(&changes));
    let ends = |rank| [averages.nth(rank), averages.nth(averages.len() + 1 - rank)];
    let ci95 = distribution.rank_of_ends().map(|rank| ends(rank).map(|end| form.shown(end)));
    let against_up = averages.count(|average| average <= 0.0);
    let against_down = averages.len() - averages.count(|average| average < 0.0);
    let one_sided = distribution.at_most(against_up.min(against_down));
    Some(Change { ci95, p: (2.0 * one_sided).min(1.0), ..change })
}

/// Returns the estimate of a change over pairs, without interval and test. `None` without pairs.
pub(crate) fn estimated(pairs: &[(f64, f64)], form: Form, changes: &[f64]) -> Option<Change> {
    let before = mean(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>())?;
    Some(Change {
        pairs: pairs.len(),
        scale: form.scale(),
        estimate: form.shown(Walsh::new(changes).median()),
        ci95: None,
        p: 1.0,
        unchanged: pairs.iter().all(|(before, after)| before == after),
        before,
    })
}

/// The change of a pair as a number that is 0 if nothing changed.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    LogRatio,
    Ratio,
    Difference,
}

impl Form {
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Self {
        let all = |positive: fn(&(f64, f64)) -> bool| pairs.iter().all(positive);
        match (all(|pair| pair.0 > 0.0), all(|pair| pair.1 > 0.0)) {
            (true, true) => Self::LogRatio,
            (true, false) => Self::Ratio,
            (false, _) => Self::Difference,
        }
    }

    pub(crate) fn change(self, (before, after): (f64, f64)) -> f64 {
        match self {
            Self::LogRatio => (after / before).ln(),
            Self::Ratio => after / before - 1.0,
            Self::Difference => after - before,
        }
    }

    /// Returns a change in its scale.
    pub(crate) fn shown(self, change: f64) -> f64 {
        match self {
            Self::LogRatio => change.exp(),
            Self::Ratio => change + 1.0,
            Self::Difference => change,
        }
    }

    /// Returns a share of the value before as a change.
    pub(crate) fn of_share(self, share: f64, before: f64) -> f64 {
        match self {
            Self::LogRatio => (1.0 + share).ln(),
            Self::Ratio => share,
            Self::Difference => share * before.abs(),
        }
    }

    const fn scale(self) -> Scale {
        match self {
            Self::LogRatio | Self::Ratio => Scale::Ratio,
            Self::Difference => Scale::Difference,
        }
    }
}

impl Change {
    /// Returns the change in percent: of each pair's value before for a ratio, of the mean before
    /// for a difference. `None` for a difference from a mean of 0.
    pub fn percent(&self) -> Option<f64> {
        self.in_percent(self.estimate)
    }

    /// Returns the interval in percent.
    pub fn percent_ci95(&self) -> Option<[f64; 2]> {
        let [low, high] = self.ci95?;
        Some([self.in_percent(low)?, self.in_percent(high)?])
    }

    /// Returns whether the interval excludes that nothing changed. False without an interval.
    pub fn is_clear(&self) -> bool {
        let same = self.scale.same();
        self.ci95.is_some_and(|[low, high]| low > same || high < same)
    }

    /// Returns whether the estimate is an increase.
    pub fn is_up(&self) -> bool {
        self.estimate > self.scale.same()
    }

    fn in_percent(&self, change: f64) -> Option<f64> {
        match self.scale {
            Scale::Ratio => Some(100.0 * (change - 1.0)),
            Scale::Difference if self.before == 0.0 => None,
            Scale::Difference => Some(100.0 * change / self.before.abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(before: &[f64], after: &[f64]) -> Change {
        paired(&before.iter().copied().zip(after.iter().copied()).collect::<Vec<_>>()).unwrap()
    }

    fn close(x: f64, y: f64) -> bool {
        (x - y).abs() < 1e-7 * y.abs().max(1e-3)
    }

    // The expected numbers come from scipy 1.17. The interval's ends are where the p value passes
    // 0.05 when the changes are moved; bisection needs no other definition of the interval:
    //
    //   import numpy as np; from scipy import stats; from scipy.optimize import bisect
    //   d = np.log(np.array(after) / np.array(before)); r = d.max() - d.min()
    //   stats.wilcoxon(d, method='exact').pvalue
    //   np.exp(np.median([(d[i] + d[j]) / 2 for i in range(len(d)) for j in range(i, len(d))]))
    //   f = lambda t: (stats.wilcoxon(d - t, method='exact').pvalue > 0.05) - 0.5
    //   m = np.median(d); np.exp([bisect(f, d.min() - r, m), bisect(f, m, d.max() + r)])
    #[test]
    fn changes_are_scipys() {
        type Case<'a> = (&'a [f64], &'a [f64], f64, f64, [f64; 2]);
        let cases: [Case<'_>; 3] = [
            (
                &[872.0, 901.0, 845.0, 930.0, 866.0, 889.0, 910.0],
                &[117.0, 130.0, 99.0, 125.0, 121.0, 108.0, 141.0],
                0.015_625,
                0.134_571_34,
                [0.121_484_81, 0.147_137_24],
            ),
            (
                &[4.19, 3.2, 35.76, 2.1, 5.5, 3.9, 2.8, 4.4],
                &[4.5, 3.1, 30.2, 2.3, 6.6, 3.8, 3.4, 4.9],
                0.25,
                1.076_087_25,
                [0.952_366_17, 1.162_872_62],
            ),
            (
                &[101.0, 103.0, 99.0, 98.0, 104.0, 107.0, 95.0, 100.0, 102.0, 97.0, 96.0, 105.0],
                &[102.0, 102.5, 99.7, 98.9, 103.1, 108.3, 96.4, 99.9, 104.0, 97.2, 96.6, 106.9],
                0.020_996_093_75,
                1.007_197_77,
                [1.000_682_41, 1.013_319_89],
            ),
        ];
        for (before, after, p, estimate, [low, high]) in cases {
            let change = of(before, after);
            let ci95 = change.ci95.unwrap();
            assert_eq!((change.scale, change.pairs), (Scale::Ratio, before.len()));
            assert!(close(change.p, p) && close(change.estimate, estimate), "{change:?}");
            assert!(close(ci95[0], low) && close(ci95[1], high), "{change:?}");
            assert_eq!(change.is_clear(), change.p <= 0.05, "{change:?}");
        }
    }

    #[test]
    fn values_of_zero_are_compared_without_logarithms() {
        // The changes are -5, -4, -7, -3, -6, -2.5 and -8; the last value before is 0.
        let change =
            of(&[10.0, 9.0, 12.0, 8.0, 11.0, 7.5, 0.0], &[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, -8.0]);
        assert_eq!((change.scale, change.estimate), (Scale::Difference, -5.0));
        assert_eq!((change.ci95, change.p), (Some([-7.0, -3.0]), 0.015_625));
        assert!((change.percent().unwrap() - -500.0 * 7.0 / 57.5).abs() < 1e-9);
        // The ratios are 0, 0.1, 0.2, 0.3, 0.4 and 0.5.
        let some = of(&[10.0; 6], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let [low, high] = some.ci95.unwrap();
        assert!(some.scale == Scale::Ratio && close(some.estimate, 0.25), "{some:?}");
        assert!(low.abs() < 1e-9 && close(high, 0.5), "{some:?}");
        let none = of(&[7.0, 9.0, 11.0, 13.0, 15.0, 17.0], &[0.0; 6]);
        assert_eq!((none.percent(), none.percent_ci95()), (Some(-100.0), Some([-100.0; 2])));
        let from_none = of(&[0.0; 6], &[7.0; 6]);
        assert_eq!((from_none.percent(), from_none.ci95), (None, Some([7.0; 2])));
        assert!(from_none.is_clear() && none.is_clear());
    }

    #[test]
    fn a_run_has_no_change_against_itself() {
        for values in [[0.0; 9], [3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0, 3.5]] {
            let change = of(&values, &values);
            assert_eq!((change.p, change.is_clear(), change.unchanged), (1.0, false, true));
            assert_eq!(change.percent().unwrap_or(0.0), 0.0);
        }
    }

    #[test]
    fn few_pairs_have_no_interval_and_none_no_change() {
        assert_eq!(paired(&[]), None);
        for n in 1..=5 {
            let change = of(&vec![1.0; n], &vec![2.0; n]);
            assert_eq!((change.ci95, change.is_clear()), (None, false));
            assert_eq!((change.estimate, change.p), (2.0, 2.0 / 2.0_f64.powi(n as i32)));
        }
        assert!(of(&[1.0; 6], &[2.0; 6]).is_clear());
    }

    #[test]
    fn an_outlier_and_ties_are_evidence_against_a_change() {
        let mut after = [1.1; 12];
        after[3] = 1e6;
        let change = of(&[1.0; 12], &after);
        assert!(close(change.estimate, 1.1) && change.is_clear(), "{change:?}");
        // Three of six pairs are equal: by flipping signs of the others, p is at least 2 / 2^3.
        let change = of(&[1.0; 6], &[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert!(change.p >= 0.25 && !change.is_clear(), "{change:?}");
    }

    /// The interval contains the change in at least 95 % of all samples, and not in far more.
    #[test]
    fn intervals_cover_what_they_promise() {
        use rand_core::{Rng, SeedableRng};
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        for pairs in [6, 7, 12, 20] {
            let mut missed = 0;
            for _ in 0..4000 {
                let mut uniform = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                // A heavy-tailed symmetric change around +20 %, on values of any size.
                let mut pair = |_| {
                    let before = 1.0 + 1e3 * uniform();
                    let noise = (uniform() - 0.5).powi(3);
                    (before, before * 1.2 * noise.exp())
                };
                let sample: Vec<_> = (0..pairs).map(&mut pair).collect();
                let [low, high] = paired(&sample).unwrap().ci95.unwrap();
                missed += usize::from(!(low..=high).contains(&1.2));
            }
            assert!((80..=230).contains(&missed), "{pairs} pairs: {missed} of 4000 missed");
        }
    }
}
