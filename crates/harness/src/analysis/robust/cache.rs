//! Results of runs, kept by their content: a run whose inputs are all equal is not repeated.

use std::collections::BTreeMap;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use mmscale_document::{Fingerprint, Kept, Robustness, checksum, short};
use mmscale_files::{Existing, Folder, Limit};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::study::ArmId;

/// The beginning of the name of a wait for spin locks; the class follows.
pub(super) const WAIT_SHARE: &str = "wait_share:";
/// The beginning of the name of waits that may limit a run; the class of a lock or `line of DATA`
/// follows.
pub(super) const LIMIT_SHARE: &str = "limit_share:";
/// An analysis has some hundred bytes for each claim and number.
const LIMIT: Limit = Limit::new("a kept analysis", 16 << 20);

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
    /// Returns the waits for locks and lines, as shares of the time in which tasks run or wait.
    pub(super) fn limit_shares(&self) -> impl Iterator<Item = (&str, f64)> {
        self.metric_bits.iter().filter_map(|(name, &bits)| {
            Some((name.strip_prefix(LIMIT_SHARE)?, f64::from_bits(bits)))
        })
    }
    /// Returns the value of a metric.
    pub(super) fn metric(&self, name: &str) -> Option<f64> {
        self.metric_bits.get(name).copied().map(f64::from_bits)
    }
}

/// An outcome in a file, which is used only for the run that it is of.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptOutcome {
    /// The key of the run.
    key: String,
    outcome: Outcome,
    /// The checksum of both.
    checksum: String,
}

/// A folder with the outcomes of earlier runs, a file for each.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    path: Option<PathBuf>,
    folder: Arc<OnceLock<Folder>>,
    /// Files that were not used, each with the reason.
    unused: Arc<Mutex<Vec<String>>>,
}

impl Cache {
    /// Returns a cache without a folder, which keeps nothing.
    pub fn none() -> Self {
        Self::default()
    }
    /// Returns a cache in a folder, which is created if it is missing.
    pub fn at(folder: PathBuf) -> Self {
        Self { path: Some(folder), ..Self::default() }
    }
    fn folder(&self) -> Option<&Folder> {
        if self.folder.get().is_none() {
            let path = self.path.as_ref()?;
            let folder = Folder::open(path, Existing::Replace).ok();
            let folder = folder.or_else(|| Folder::only_read(path).ok())?;
            return Some(self.folder.get_or_init(|| folder));
        }
        self.folder.get()
    }
    /// Returns what is wrong with files that were not used so far, a line each, and forgets it.
    pub fn unused(&self) -> Vec<String> {
        // Each change is one step, so that the list of a thread that panicked is whole, too.
        mem::take(&mut self.unused.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Returns the value of a file, unless something is wrong with it.
    fn read<T: DeserializeOwned>(
        &self,
        name: &str,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Option<T> {
        let folder = self.folder()?;
        let value = folder.read(name, LIMIT).map_err(|why| why.to_string()).and_then(|text| {
            let Some(text) = text else { return Ok(None) };
            let value = serde_json::from_str(&text);
            let value: T = value.map_err(|why| format!("it is not a complete file ({why})"))?;
            check(&value).map(|()| Some(value))
        });
        value.unwrap_or_else(|why| {
            let what = format!("`{}`: {why}", folder.path(name).display());
            self.unused.lock().unwrap_or_else(PoisonError::into_inner).push(what);
            None
        })
    }
    /// Writes a value to a file. Errors are ignored: the run is done again the next time.
    fn write(&self, name: &str, value: &impl Serialize) {
        let Some(folder) = self.folder() else { return };
        let Ok(text) = serde_json::to_string(value) else { return };
        let _ = folder.write(name, text);
    }
    /// Returns the key of a run. A build of unknown sources cannot be recognised.
    fn key(plan: &Plan, arm: ArmId, seed: u64) -> Option<String> {
        (plan.origin.build.commit != "unknown").then(|| plan.key(arm, seed))
    }
    /// Returns the outcome of a run. A file that is damaged or of another run is as good as none.
    pub(super) fn get(&self, plan: &Plan, arm: ArmId, seed: u64) -> Option<Outcome> {
        let key = Self::key(plan, arm, seed)?;
        let check = |kept: &KeptOutcome| {
            if kept.key != key {
                return Err(format!("it is the file of the run {}", short(&kept.key)));
            }
            if kept.checksum != checksum(&(&kept.key, &kept.outcome)) {
                return Err("its checksum is not that of its contents".to_owned());
            }
            Ok(())
        };
        self.read(&format!("{key}.json"), check).map(|kept| kept.outcome)
    }
    /// Keeps an outcome.
    pub(super) fn keep(&self, plan: &Plan, arm: ArmId, seed: u64, outcome: &Outcome) {
        let Some(key) = Self::key(plan, arm, seed) else { return };
        let (outcome, checksum) = (outcome.clone(), checksum(&(&key, outcome)));
        self.write(&format!("{key}.json"), &KeptOutcome { key: key.clone(), outcome, checksum });
    }
    fn analysis_file(plan: &Plan) -> String {
        let mut key = Fingerprint::new();
        for (name, value) in plan.shown_params() {
            key.add_str(&name);
            key.add_str(&value.to_string());
        }
        let hash = plan.profile.as_ref().map_or(0, |profile| profile.hash);
        [hash, plan.cpus as u64, u64::from(plan.hz)].into_iter().for_each(|n| key.add(n));
        format!("robust-{}-{}.json", plan.study.name(), key.to_hex())
    }
    /// Returns the last analysis of the plan's study on its machine with its parameters. It may be
    /// of another build, which it names, and of other arms.
    pub fn analysis(&self, plan: &Plan) -> Option<Robustness> {
        let hash = plan.profile.as_ref().map_or(String::new(), |p| format!("{:016x}", p.hash));
        let check = |kept: &Robustness| match kept.is_intact() {
            None => Err("it has no checksum, so that a change cannot be seen".to_owned()),
            Some(false) => Err("its checksum is not that of its contents".to_owned()),
            Some(true)
                if kept.study == plan.study.name()
                    && kept.profile_hash == hash
                    && kept.cpus as usize == plan.cpus
                    && kept.params == plan.shown_params() =>
            {
                Ok(())
            }
            Some(true) => Err("it is the analysis of another study or machine".to_owned()),
        };
        self.read(&Self::analysis_file(plan), check)
    }
    /// Keeps an analysis in place of an earlier one.
    pub fn keep_analysis(&self, plan: &Plan, analysis: &Robustness) {
        self.write(&Self::analysis_file(plan), analysis);
    }
}
