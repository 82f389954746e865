//! Comparison of two saved runs: each metric of each arm, before and after a change, over the seeds
//! that both runs have; and of measured waits with those of a run.

mod amounts;
mod by_arm;
mod differences;
mod gate;
mod read;
mod show;
mod verify;
mod waits;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;

use mmscale_document::{ArmRecord, Document, Metric, Value};
use thiserror::Error;

pub use by_arm::by_arm;
pub use gate::{Gate, GateError, Regression};
pub use read::{Matched, Measured, ReadError, Saved, Side, matched, read};
pub use show::{csv, markdown, text};
pub use verify::verify;
pub use waits::{Waits, waits_csv, waits_text};

use crate::changes::{MetricChange, Verdict, changes};

/// A comparison of two documents of one study.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The document before.
    pub before: &'a Saved,
    /// The document after.
    pub after: &'a Saved,
    /// All other differences between the runs: what, before, after.
    pub differences: Vec<(String, String, String)>,
    /// The arms that both documents have.
    pub arms: Vec<ArmComparison<'a>>,
    /// Arms that only the first or only the second document has.
    pub only: [Vec<&'a str>; 2],
}

/// A comparison of one arm.
#[derive(Clone, Debug)]
pub struct ArmComparison<'a> {
    /// The name of the arm.
    pub arm: &'a str,
    /// The metrics that both have in at least one common seed: worse ones first, then better ones,
    /// other changes, and those without a clear change; in each group the headlines first, then by
    /// the size of the change.
    pub rows: Vec<Row<'a>>,
    /// Metrics that only the first or only the second document has, or not in any common seed.
    pub only: [Vec<&'a str>; 2],
}

/// A comparison of one metric.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The name of the metric.
    pub metric: &'a str,
    /// The metric before.
    pub before: &'a Metric,
    /// The metric after.
    pub after: &'a Metric,
    /// The change over pairs of seeds.
    pub found: MetricChange,
}

/// Why two documents of a study cannot be compared.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CompareError {
    /// There is no arm of the same name.
    #[error(
        "the documents of `{study}` have no common arm: before {before}, after {after}; run both \
         with the same --arm"
    )]
    NoCommonArm {
        /// The name of the study.
        study: String,
        /// The arms before.
        before: String,
        /// The arms after.
        after: String,
    },
    /// The arm to compare with does not exist.
    #[error("the document of `{study}` has no arm `{base}` (known: {known})")]
    NoSuchArm {
        /// The name of the study.
        study: String,
        /// The name that was given.
        base: String,
        /// The arms of the document.
        known: String,
    },
    /// A document that is compared with itself has no second arm.
    #[error(
        "the document of `{study}` has one arm only, {arm}: give a second document, or run it with \
         two arms"
    )]
    OneArm {
        /// The name of the study.
        study: String,
        /// The arm.
        arm: String,
    },
    /// The fingerprints are equal, and the results are not.
    #[error(
        "`{before}` and `{after}` have the fingerprint {fingerprint}, but not the same results: \
         one of them was changed after it was written; run it again"
    )]
    Contradiction {
        /// The fingerprint of both.
        fingerprint: String,
        /// The path of one file.
        before: PathBuf,
        /// The path of the other file.
        after: PathBuf,
    },
    /// There is no run with the same seed.
    #[error(
        "the documents of `{study}` have no common seed: before {before}, after {after}; run both \
         with the same --seed and --seeds"
    )]
    NoCommonSeed {
        /// The name of the study.
        study: String,
        /// The seeds before.
        before: String,
        /// The seeds after.
        after: String,
    },
}

impl<'a> Comparison<'a> {
    /// Compares two documents of one study on one kind of machine, as [`matched`] returns them.
    pub fn new(before: &'a Saved, after: &'a Saved) -> Result<Self, CompareError> {
        let (from, to) = (&before.document, &after.document);
        let other =
            |document: &'a Document, name: &str| document.arms.iter().find(|arm| arm.arm == name);
        let both: Vec<(&ArmRecord, &ArmRecord)> =
            from.arms.iter().filter_map(|arm| Some((arm, other(to, &arm.arm)?))).collect();
        let study = from.study.clone();
        if both.is_empty() {
            let arms = |document: &Document| {
                document.arms.iter().map(|arm| arm.arm.as_str()).collect::<Vec<_>>().join(", ")
            };
            return Err(CompareError::NoCommonArm { study, before: arms(from), after: arms(to) });
        }
        let common = |(from, to): &(&ArmRecord, &ArmRecord)| {
            from.seeds.iter().any(|seed| to.seeds.contains(seed))
        };
        if !both.iter().any(common) {
            let seeds = differences::seeds;
            return Err(CompareError::NoCommonSeed {
                study,
                before: seeds(from),
                after: seeds(to),
            });
        }
        let lacks = |one: &'a Document, two: &'a Document| {
            let names = one.arms.iter().map(|arm| arm.arm.as_str());
            names.filter(|name| other(two, name).is_none()).collect()
        };
        let fingerprint = &from.fingerprint;
        if *fingerprint == to.fingerprint && !is_same(from, to) {
            let (before, after) = (before.path.clone(), after.path.clone());
            let fingerprint = fingerprint.clone();
            return Err(CompareError::Contradiction { fingerprint, before, after });
        }
        Ok(Self {
            before,
            after,
            differences: differences::of(from, to),
            arms: both.into_iter().map(|(from, to)| ArmComparison::new(from, to)).collect(),
            only: [lacks(from, to), lacks(to, from)],
        })
    }

    /// Returns whether the results are equal bit for bit.
    pub fn is_equal(&self) -> bool {
        self.before.document.fingerprint == self.after.document.fingerprint
    }
}

/// Returns whether the results that a document has by seed, lock and call are the same. The names
/// of arms are no results.
fn is_same(one: &Document, other: &Document) -> bool {
    let same = |(one, other): (&ArmRecord, &ArmRecord)| {
        let values = |arm: &'_ ArmRecord| -> Vec<(String, Vec<Option<Value>>)> {
            arm.metrics.iter().map(|(name, of)| (name.clone(), of.values.clone())).collect()
        };
        one.seeds == other.seeds
            && values(one) == values(other)
            && one.locks == other.locks
            && one.calls == other.calls
    };
    one.arms.len() == other.arms.len() && one.arms.iter().zip(&other.arms).all(same)
}

impl<'a> ArmComparison<'a> {
    fn new(before: &'a ArmRecord, after: &'a ArmRecord) -> Self {
        let found = changes(before, after);
        let compared: BTreeSet<&str> = found.keys().copied().collect();
        let rest = |arm: &'a ArmRecord| {
            arm.metrics.keys().map(String::as_str).filter(|name| !compared.contains(name)).collect()
        };
        let row = |(metric, found): (&'a str, MetricChange)| Row {
            metric,
            before: &before.metrics[metric],
            after: &after.metrics[metric],
            found,
        };
        let only = [rest(before), rest(after)];
        let mut rows: Vec<Row<'a>> = found.into_iter().map(row).collect();
        rows.sort_by(|a, b| {
            a.place().cmp(&b.place()).then(b.found.size().total_cmp(&a.found.size()))
        });
        Self { arm: &before.arm, rows, only }
    }
}

impl Row<'_> {
    /// Returns the group of the row, and its place there.
    fn place(&self) -> (usize, Reverse<bool>) {
        let group = match self.found.verdict() {
            Some(Verdict::Worse) => 0,
            Some(Verdict::Better) => 1,
            Some(Verdict::Changed) => 2,
            None if !self.found.change.unchanged => 3,
            None => 4,
        };
        (group, Reverse(self.found.holds.is_some()))
    }

    /// Returns the verdict in one word.
    pub fn verdict(&self) -> &'static str {
        match self.found.verdict() {
            Some(verdict) => verdict.name(),
            None if self.found.change.unchanged => "same",
            None => "unclear",
        }
    }
}
