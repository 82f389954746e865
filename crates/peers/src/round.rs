//! Interleaved rounds and their medians.

use crate::phase::Sample;
use crate::{Peer, Phase};

/// One allocator, with its medians in ns, in the order of [`Phase::ALL`].
pub struct Row {
    /// The allocator's name.
    pub name: &'static str,
    /// Median ns for one allocation with its free; `None` where it took no part.
    pub medians: Vec<Option<f64>>,
    /// Half of the distance between the quartiles, over the median, in percent.
    pub spreads: Vec<Option<f64>>,
    /// Measurements in which somebody else had a processor every time.
    pub disturbed: usize,
}

/// An allocator that takes part in the rounds.
pub struct Entry {
    name: &'static str,
    measure: fn(Phase, usize) -> Sample,
    skips: fn(Phase) -> bool,
}

impl Entry {
    /// Takes part in everything.
    pub fn of<P: Peer>() -> Self {
        Self { name: P::NAME, measure: |phase, scale| phase.measure::<P>(scale), skips: |_| false }
    }
    /// Takes no part where `skips` says so.
    #[must_use]
    pub fn without(self, skips: fn(Phase) -> bool) -> Self {
        Self { skips, ..self }
    }
}

/// Measures every entry in every phase, `rounds` times. Within a round the phases come one after
/// another, and in a phase the entries do, beginning with another one in each round. `progress` is
/// told when a round is over.
pub fn run(entries: &[Entry], rounds: usize, scale: usize, progress: impl Fn(usize)) -> Vec<Row> {
    let mut samples = vec![vec![Vec::<Sample>::new(); Phase::ALL.len()]; entries.len()];
    for round in 0..rounds {
        for (column, phase) in Phase::ALL.into_iter().enumerate() {
            for turn in 0..entries.len() {
                let at = (round + turn) % entries.len();
                if !(entries[at].skips)(phase) {
                    samples[at][column].push((entries[at].measure)(phase, scale));
                }
            }
        }
        progress(round + 1);
    }
    entries.iter().zip(&samples).map(|(entry, columns)| row_of(entry.name, columns)).collect()
}

fn row_of(name: &'static str, columns: &[Vec<Sample>]) -> Row {
    let sorted = |column: &Vec<Sample>| {
        let mut sorted: Vec<f64> = column.iter().map(|sample| sample.ns).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let columns_ns: Vec<Vec<f64>> = columns.iter().map(sorted).collect();
    Row {
        name,
        medians: columns_ns.iter().map(|sorted| quantile(sorted, 2)).collect(),
        spreads: columns_ns.iter().map(|sorted| spread(sorted)).collect(),
        disturbed: columns.iter().flatten().filter(|sample| sample.disturbed > 0).count(),
    }
}

/// The `quarter`th quartile of sorted numbers, the nearest one.
fn quantile(sorted: &[f64], quarter: usize) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last * quarter + 2) / 4])
}

fn spread(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (quantile(sorted, 1)?, quantile(sorted, 3)?);
    Some((high - low) / 2.0 / quantile(sorted, 2)? * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ignore_the_outlier() {
        assert_eq!(quantile(&[1.0, 2.0, 900.0], 2), Some(2.0));
        assert_eq!(quantile(&[1.0], 2), Some(1.0));
        assert_eq!(quantile(&[], 2), None);
        assert_eq!(spread(&[90.0, 90.0, 100.0, 110.0, 110.0]), Some(10.0));
    }
}
