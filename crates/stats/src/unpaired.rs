//! The change between two samples that are not paired, to compare its interval with that of pairs.

use crate::mean;

/// Returns the 95 % interval of the change from `before` to `after` in percent, if values are not
/// paired by seed: the changes that the rank-sum test of Mann and Whitney (1947) does not reject.
/// Changes are ratios, or differences in percent of the mean before if a value is not positive.
/// `None` with too few values for any interval, or for differences from a mean of 0.
pub fn unpaired_percent_ci95(before: &[f64], after: &[f64]) -> Option<[f64; 2]> {
    let rank = rank_of_ends(before.len(), after.len())?;
    let ratios = before.iter().chain(after).all(|&x| x > 0.0);
    let centre = mean(before).filter(|&centre| ratios || centre != 0.0)?;
    let change = |from: f64, to: f64| if ratios { to / from - 1.0 } else { (to - from) / centre };
    let mut all: Vec<f64> =
        before.iter().flat_map(|&from| after.iter().map(move |&to| change(from, to))).collect();
    all.sort_by(f64::total_cmp);
    Some([all[rank - 1], all[all.len() - rank]].map(|change| 100.0 * change))
}

/// Returns k so that the interval from the k-th smallest to the k-th largest change of `n * m` has
/// a coverage of at least 95 %.
fn rank_of_ends(n: usize, m: usize) -> Option<usize> {
    let ways = ways(n, m);
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    let rank = ways.iter().position(|count| {
        below += count / all;
        below > 0.025
    });
    rank.filter(|&rank| rank > 0)
}

/// Returns, for each value of the rank-sum statistic from 0, the number of ways to choose `n` of
/// `n + m` ranks that give it.
fn ways(n: usize, m: usize) -> Vec<f64> {
    let most = n * m;
    // By number of chosen ranks; a chosen rank adds the number of lower ranks that are not chosen.
    let mut chosen = vec![vec![0.0; most + 1]; n + 1];
    chosen[0][0] = 1.0;
    for rank in 0..n + m {
        for count in (0..n.min(rank + 1)).rev() {
            let Some(lower) = rank.checked_sub(count).filter(|&lower| lower <= m) else { continue };
            let (before, after) = chosen.split_at_mut(count + 1);
            for (sum, ways) in before[count].iter().enumerate().take(most + 1 - lower) {
                after[0][sum + lower] += ways;
            }
        }
    }
    chosen.swap_remove(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistic_is_counted_over_all_choices() {
        for (n, m) in [(1, 1), (2, 3), (4, 4), (5, 3)] {
            let mut counts = vec![0.0; n * m + 1];
            for set in (0..1_u32 << (n + m)).filter(|set| set.count_ones() as usize == n) {
                let chosen = |rank: &usize| set >> rank & 1 == 1;
                let lower = |rank: usize| (0..rank).filter(|r| !chosen(r)).count();
                counts[(0..n + m).filter(chosen).map(lower).sum::<usize>()] += 1.0;
            }
            assert_eq!(ways(n, m), counts, "{n}, {m}");
        }
    }

    #[test]
    fn ends_are_the_tabulated_ones() {
        // The tables of Mann and Whitney have the largest rejected value, which is one less.
        let ends: Vec<_> = [3, 4, 5, 6, 7, 8, 10, 12].map(|n| rank_of_ends(n, n)).to_vec();
        let table = [1, 3, 6, 9, 14, 24, 38].map(Some);
        assert_eq!((ends[0], &ends[1..]), (None, &table[..]));
    }

    #[test]
    fn an_interval_consists_of_changes_between_any_two_values() {
        let before = [1.0, 2.0, 4.0, 8.0];
        let doubled = before.map(|x| 2.0 * x);
        assert_eq!(unpaired_percent_ci95(&before, &doubled), Some([-75.0, 1500.0]));
        let shifted = [-1.0, 0.0, 1.0, 4.0];
        assert_eq!(unpaired_percent_ci95(&shifted, &shifted), Some([-500.0, 500.0]));
        assert_eq!(unpaired_percent_ci95(&[-1.0, 1.0, -1.0, 1.0], &before), None);
        assert_eq!(unpaired_percent_ci95(&before[..2], &doubled), None);
    }
}
