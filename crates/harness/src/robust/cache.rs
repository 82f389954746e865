//! Results of runs, kept by their content: a run whose inputs are all equal is not repeated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mmscale_document::{Fingerprint, Robustness};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::study::ArmId;

/// The beginning of the name of a wait for spin locks; the class follows.
pub(super) const WAIT_SHARE: &str = "wait_share:";

/// The results of a run that an analysis needs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The metrics that have a value, each as the bits of an `f64`: a file has exactly that value.
    metric_bits: BTreeMap<String, u64>,
    /// The machine's own fingerprint.
    fingerprint: u64,
}

impl Outcome {
    /// Creates an outcome.
    pub(super) fn new<'a>(
        metrics: impl IntoIterator<Item = (&'a str, f64)>,
        fingerprint: u64,
    ) -> Self {
        let bits = metrics.into_iter().map(|(name, value)| (name.to_owned(), value.to_bits()));
        Self { metric_bits: bits.collect(), fingerprint }
    }
    /// Returns all metrics by name.
    pub(super) fn all(self) -> impl Iterator<Item = (String, f64)> {
        self.metric_bits.into_iter().map(|(name, bits)| (name, f64::from_bits(bits)))
    }
    /// Returns the waits for spin locks of each class, as shares of the CPU time that was not idle.
    pub(super) fn wait_shares(&self) -> impl Iterator<Item = (&str, f64)> {
        self.metric_bits.iter().filter_map(|(name, &bits)| {
            Some((name.strip_prefix(WAIT_SHARE)?, f64::from_bits(bits)))
        })
    }
    /// Returns the value of a metric.
    pub(super) fn metric(&self, name: &str) -> Option<f64> {
        self.metric_bits.get(name).copied().map(f64::from_bits)
    }
}

/// A folder with the outcomes of earlier runs, a file for each.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// Returns a cache without a folder, which keeps nothing.
    pub const fn none() -> Self {
        Self { folder: None }
    }
    /// Returns a cache in a folder, which is created when something is kept.
    pub const fn at(folder: PathBuf) -> Self {
        Self { folder: Some(folder) }
    }
    fn file(&self, plan: &Plan, arm: ArmId, seed: u64) -> Option<PathBuf> {
        // A build of unknown sources cannot be recognised.
        if plan.origin.build.commit == "unknown" {
            return None;
        }
        Some(self.folder.as_ref()?.join(format!("{}.json", plan.key(arm, seed))))
    }
    /// Returns the outcome of a run. A file that cannot be read is as good as none.
    pub(super) fn get(&self, plan: &Plan, arm: ArmId, seed: u64) -> Option<Outcome> {
        let text = fs::read_to_string(self.file(plan, arm, seed)?).ok()?;
        serde_json::from_str(&text).ok()
    }
    /// Keeps an outcome. Errors are ignored: the run is done again the next time.
    pub(super) fn keep(&self, plan: &Plan, arm: ArmId, seed: u64, outcome: &Outcome) {
        if let Some(file) = self.file(plan, arm, seed) {
            write(&file, outcome);
        }
    }
    fn analysis_file(&self, plan: &Plan) -> Option<PathBuf> {
        let mut key = Fingerprint::new();
        for (name, value) in plan.shown_params() {
            key.add_str(&name);
            key.add_str(&value.to_string());
        }
        let hash = plan.profile.as_ref().map_or(0, |profile| profile.hash);
        [hash, plan.cpus as u64, u64::from(plan.hz)].into_iter().for_each(|n| key.add(n));
        let name = format!("robust-{}-{}.json", plan.study.name(), key.to_hex());
        Some(self.folder.as_ref()?.join(name))
    }
    /// Returns the last analysis of the plan's study on its machine with its parameters. It may be
    /// of another build, which it names, and of other arms.
    pub fn analysis(&self, plan: &Plan) -> Option<Robustness> {
        let text = fs::read_to_string(self.analysis_file(plan)?).ok()?;
        serde_json::from_str(&text).ok()
    }
    /// Keeps an analysis in place of an earlier one. Errors are ignored.
    pub fn keep_analysis(&self, plan: &Plan, analysis: &Robustness) {
        if let Some(file) = self.analysis_file(plan) {
            write(&file, analysis);
        }
    }
}

/// Writes a value to a file. Errors are ignored.
fn write(file: &Path, value: &impl Serialize) {
    let Some(folder) = file.parent() else { return };
    let Ok(text) = serde_json::to_string(value) else { return };
    // A new file is renamed when it is complete, so that no reader finds half of it.
    let new = file.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&new, text));
    if written.and_then(|()| fs::rename(&new, file)).is_err() {
        let _ = fs::remove_file(&new);
    }
}
