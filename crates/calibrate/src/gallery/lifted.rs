//! Replays of recorded kernels for items of the gallery, whose figures are kept with the sources.

use mmscale_document::Build;
use serde::Deserialize;
use thiserror::Error;

use super::kept::Kept;
use super::score::{LEVEL_WITHIN, Row, Verdict, What};

/// The figures of all replays.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Lifted {
    /// The build that made them.
    pub build: Build,
    /// The replays.
    pub rows: Vec<LiftedRow>,
    /// Replays without a measurement next to them.
    #[serde(default)]
    pub curves: Vec<LiftedCurve>,
}

/// The replays of a recording on several numbers of CPUs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct LiftedCurve {
    /// The variant of the script.
    pub name: String,
    /// The profile.
    pub profile: String,
    /// The command that recorded it, without its file.
    pub recorded: String,
    /// Its points.
    pub points: Vec<LiftedPoint>,
}

/// A replay.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct LiftedPoint {
    /// CPUs.
    pub cpus: u32,
    /// Operations per second.
    pub value: f64,
    /// The lock that is waited for longest, with its share as in the answer of a run.
    pub lock: String,
    /// See `lock`.
    pub share: f64,
    /// The share of the time of all CPUs in waits for called CPUs and in interrupts of calls.
    pub calls_share: f64,
}

/// A replay for an arm of an item.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct LiftedRow {
    /// The item.
    pub item: String,
    /// The arm and the point, as [`Row`] has them.
    pub label: String,
    /// The rate.
    pub value: f64,
    /// The lock that is waited for longest, with its share as in the answer of a run.
    pub lock: String,
    /// See `lock`.
    pub share: f64,
    /// The line that is waited for longest, and the share of that time in waits for all lines.
    pub line: String,
    /// See `line`.
    pub lines_share: f64,
    /// The command that recorded it, without its file.
    pub recorded: String,
    /// The package of the image.
    pub package: Option<String>,
}

/// The kept replays cannot be read.
#[derive(Debug, Error)]
#[error("gallery/lifted.json: {0}; write it again with `cargo xtask kernels --replays`")]
pub struct LiftedError(serde_json::Error);

/// Returns the replays that are kept with the sources.
pub fn lifted() -> Result<Lifted, LiftedError> {
    serde_json::from_str(include_str!("../../gallery/lifted.json")).map_err(LiftedError)
}

impl Lifted {
    /// Returns the replay for a comparison of the model's rate.
    pub fn of(&self, row: &Row) -> Option<&LiftedRow> {
        let is_rate = matches!(row.what, What::Last | What::Level);
        self.rows.iter().find(|of| is_rate && (&of.item, &of.label) == (&row.item, &row.label))
    }
    /// Returns the model's comparisons with their replays.
    pub fn pairs<'a>(&'a self, kept: &'a [Kept]) -> Vec<(&'a Row, &'a LiftedRow)> {
        let rows = kept.iter().flat_map(|call| &call.rows);
        rows.filter_map(|row| Some((row, self.of(row)?))).collect()
    }
}

impl LiftedRow {
    /// Returns the rate in parts of the published one, and the verdict, by the rule for the model's
    /// rates.
    pub fn judged(&self, row: &Row) -> Option<(f64, Verdict)> {
        let part = self.value / row.published?;
        let holds = (part - 1.0).abs() <= LEVEL_WITHIN;
        Some((part, if holds { Verdict::Holds } else { Verdict::Off }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;

    #[test]
    fn every_replay_has_a_comparison_of_the_model() {
        let (lifted, kept) = (lifted().unwrap(), gallery::kept().unwrap());
        let pairs = lifted.pairs(&kept);
        assert_eq!(pairs.len(), lifted.rows.len());
        assert!(pairs.len() >= 8, "at least eight items have a replay");
        assert!(pairs.iter().all(|(row, of)| of.value > 0.0 && of.judged(row).is_some()));
    }

    #[test]
    fn a_replay_is_judged_as_the_model_is() {
        let (lifted, kept) = (lifted().unwrap(), gallery::kept().unwrap());
        for (row, replay) in lifted.pairs(&kept) {
            let as_model = LiftedRow { value: row.predicted, ..replay.clone() };
            assert_eq!(as_model.judged(row).unwrap().1, row.verdict, "{} {}", row.item, row.label);
        }
    }
}
