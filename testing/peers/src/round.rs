//! Interleaved rounds, and their tables.

use crate::fragmentation::{self, Fragmentation};
use crate::hand::NoRecord;
use crate::peer::{
    Bitmap, Blockmap, BlockmapOrders, BlockmapRecords, BlockmapUncounted, BuddySlab, BuddySystem,
    BuddySystemMutex, Floor, Magazines, Ours, OursOnMachine, Posted, Stock,
};
use crate::phase::{Program, Sample};
use crate::sheet::Sheet;
use crate::stamps::Stamps;
use crate::{Peer, Phase};
use std::sync::Arc;

/// The round that a table shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The middle one: the typical result of a run.
    Median,
    /// The least: on a host with other guests, the least disturbed.
    Least,
}

impl Shown {
    /// Returns it in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::Least => "least",
        }
    }
    fn of(self, sorted: &[f64]) -> Option<f64> {
        match self {
            Self::Median => quantile(sorted, 2),
            Self::Least => sorted.first().copied(),
        }
    }
}

/// One allocator, with its times in ns, by the columns of a sheet.
pub struct Row {
    /// The allocator's name.
    pub name: &'static str,
    /// ns for one allocation with its free; `None` where it took no part, or had no such blocks.
    pub times: Vec<Option<f64>>,
    /// Half of the distance between the quartiles, over the median, in percent.
    pub spreads: Vec<Option<f64>>,
    /// Measurements in which every try was disturbed by preemption.
    pub disturbed: usize,
    /// The number of measurements.
    pub samples: usize,
}

/// The amount of measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Frames that each allocator manages; a power of two.
    pub frames: usize,
    /// Rounds.
    pub rounds: usize,
    /// Approximate operations of a thread in each measurement.
    pub operations: usize,
    /// The round that is shown.
    pub shown: Shown,
}

/// An allocator in the comparison.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Whether it promises distinct frames.
    pub is_allocator: bool,
    time: fn(Phase, Effort) -> Option<Sample>,
    once: fn(Phase, Effort) -> Option<Sample>,
    check: fn(Phase, Effort, &Arc<Stamps>) -> Option<Sample>,
    fragment: fn(usize) -> Fragmentation,
    skips: fn(Phase) -> bool,
}

impl Entry {
    /// Returns all allocators, ours first.
    pub fn all() -> Vec<Self> {
        // It searches for runs of frames from the first bitmap: minutes, not nanoseconds.
        let runs = |phase: Phase| phase.program == Program::Mix || phase.order > 0;
        vec![
            Self::of::<Ours<Stock>>(),
            Self::of::<Ours<Posted>>(),
            Self::of::<Ours<Blockmap>>(),
            Self::of::<Ours<BlockmapUncounted>>(),
            Self::of::<Ours<BlockmapOrders>>(),
            Self::of::<Ours<BlockmapRecords>>(),
            Self::of::<OursOnMachine>(),
            Self::of::<BuddySystem<11>>(),
            Self::of::<BuddySystem<33>>(),
            Self::of::<BuddySystemMutex>(),
            Self::of::<BuddySlab>(),
            Self::of::<Magazines>(),
            Self::of::<Bitmap>().without(runs),
            Self::of::<Floor>(),
        ]
    }
    /// Makes an entry that is measured in all phases.
    pub fn of<P: Peer>() -> Self {
        Self {
            name: P::NAME,
            is_allocator: P::IS_ALLOCATOR,
            time: |phase, effort| {
                phase.measure::<P, _>(effort.frames, effort.operations, &Arc::new(NoRecord))
            },
            once: |phase, effort| {
                phase.measure_once::<P, _>(effort.frames, effort.operations, &Arc::new(NoRecord))
            },
            check: |phase, effort, stamps| {
                phase.measure_once::<P, _>(effort.frames, effort.operations, stamps)
            },
            fragment: fragmentation::measure::<P>,
            skips: |_| false,
        }
    }
    /// Runs a phase once, without other tries; returns whether it was measured.
    pub fn run_once(&self, phase: Phase, effort: Effort) -> bool {
        !(self.skips)(phase) && (self.once)(phase, effort).is_some()
    }
    /// Leaves out the phases for which `skips` returns true.
    #[must_use]
    pub fn without(self, skips: fn(Phase) -> bool) -> Self {
        Self { skips, ..self }
    }
    /// Measures how it keeps `frames` frames together.
    pub fn fragmentation(&self, frames: usize) -> Fragmentation {
        (self.fragment)(frames)
    }
    /// Runs a phase in which every page of memory is written and checked. The time includes that.
    ///
    /// # Errors
    /// The first page that had two owners, or was not freed.
    pub fn check(
        &self,
        phase: Phase,
        effort: Effort,
        stamps: &Arc<Stamps>,
    ) -> Result<Option<Sample>, String> {
        if (self.skips)(phase) {
            return Ok(None);
        }
        let sample = (self.check)(phase, effort, stamps);
        stamps.check_all_free().map(|()| sample)
    }
}

/// Measures every entry in every column, in rounds. Within a round the columns follow one another,
/// and so do the entries of a column, starting with another entry in each round. `progress` is
/// called after each round.
pub fn run(entries: &[Entry], sheet: &Sheet, effort: Effort, progress: impl Fn(usize)) -> Vec<Row> {
    let mut samples = vec![vec![Vec::<Sample>::new(); sheet.columns.len()]; entries.len()];
    for round in 0..effort.rounds {
        for (column, &(_, phase)) in sheet.columns.iter().enumerate() {
            for turn in 0..entries.len() {
                let at = (round + turn) % entries.len();
                if !(entries[at].skips)(phase) {
                    samples[at][column].extend((entries[at].time)(phase, effort));
                }
            }
        }
        progress(round + 1);
    }
    entries
        .iter()
        .zip(&samples)
        .map(|(entry, columns)| row_of(entry.name, columns, effort.shown))
        .collect()
}

/// Checks every entry in every column, once.
///
/// # Errors
/// The allocator that allocated a page twice, or lost one, and the page.
pub fn check(entries: &[Entry], sheet: &Sheet, effort: Effort) -> Result<Vec<Row>, String> {
    let stamps = Arc::new(Stamps::new(effort.frames));
    let rows = entries.iter().filter(|entry| entry.is_allocator).map(|entry| {
        let columns: Result<Vec<Vec<Sample>>, String> = sheet
            .columns
            .iter()
            .map(|(name, phase)| match entry.check(*phase, effort, &stamps) {
                Ok(sample) => Ok(sample.into_iter().collect()),
                Err(why) => Err(format!("{} in {name}, {}: {why}", entry.name, sheet.title)),
            })
            .collect();
        Ok(row_of(entry.name, &columns?, effort.shown))
    });
    rows.collect()
}

fn row_of(name: &'static str, columns: &[Vec<Sample>], shown: Shown) -> Row {
    let sorted = |column: &Vec<Sample>| {
        let mut sorted: Vec<f64> = column.iter().map(|sample| sample.ns).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let columns_ns: Vec<Vec<f64>> = columns.iter().map(sorted).collect();
    Row {
        name,
        times: columns_ns.iter().map(|sorted| shown.of(sorted)).collect(),
        spreads: columns_ns.iter().map(|sorted| spread(sorted)).collect(),
        disturbed: columns.iter().flatten().filter(|sample| sample.disturbed > 0).count(),
        samples: columns.iter().map(Vec::len).sum(),
    }
}

/// Returns the `quarter`th quartile of sorted numbers, the nearest one.
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
    fn the_least_is_shown_if_asked_for() {
        let sample = |ns| Sample { ns, disturbed: 0 };
        let columns = [[7.0, 3.0, 5.0].map(sample).to_vec(), Vec::new()];
        let times = |shown| row_of("any", &columns, shown).times;
        assert_eq!(times(Shown::Median), [Some(5.0), None]);
        assert_eq!(times(Shown::Least), [Some(3.0), None]);
    }

    #[test]
    fn medians_ignore_the_outlier() {
        assert_eq!(quantile(&[1.0, 2.0, 900.0], 2), Some(2.0));
        assert_eq!(quantile(&[1.0], 2), Some(1.0));
        assert_eq!(quantile(&[], 2), None);
        assert_eq!(spread(&[90.0, 90.0, 100.0, 110.0, 110.0]), Some(10.0));
    }
}
