//! A study: its description, its arms, and a workload without its types.

mod arm;
mod context;
#[cfg(feature = "live")]
mod emulated;
pub(crate) mod guest;
mod policy_arm;
mod records;
mod result;
mod source;
mod spec;
pub mod versions;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mmscale_document::Target;
use mmscale_mm::versions::Version;
use mmscale_script::Script;

pub use arm::{Arm, Choice};
pub(crate) use arm::{keys, value};
pub use context::{Checks, Interrupt, Progress, ProgressSink, RunContext, RunEvent};
pub use policy_arm::{PolicyArm, PolicyError};
pub(crate) use records::TrailRequest;
pub use records::{Timelines, Trails};
pub use result::{SeedResult, StudyError};
pub use source::{FileError, Source};
pub use spec::{ArmId, ArmSpec, Defaults, MetricSpec, Report, TooShort};

use crate::param::{ParamSpec, Params};
use versions::{OtherVersion, running};

/// The description of a study: what does not depend on a call.
#[derive(Clone, Debug)]
pub struct StudyInfo {
    /// The name on the command line.
    pub name: String,
    /// The question that the study answers, in one line.
    pub summary: String,
    /// The start of a run, before its window, in which nothing counts.
    pub start: Option<String>,
    /// The mail that the study began with, if it did.
    pub report: Option<Report>,
    /// The default machine.
    pub defaults: Defaults,
    /// The parameters, except CPUs and HZ, which every study has.
    pub params: Vec<ParamSpec>,
    /// The parameters with the defaults for a quick run of a large simulated machine, where full
    /// windows would take minutes.
    pub params_quick_large: Vec<ParamSpec>,
    /// The parameters with the defaults for the live kernel.
    pub params_on_live: Vec<ParamSpec>,
    /// Names of the parameters that do not apply to the live kernel.
    pub not_live: &'static [&'static str],
    /// All metrics that [`SeedResult::metrics`] may contain, in display order.
    pub metrics: Vec<MetricSpec>,
    /// Variants of the workload that arms can choose in addition to policies. `None` if arms choose
    /// no policies either.
    pub choices: Option<&'static [Choice]>,
    /// The hash of the study's file, if it was read when the program started, or of its script.
    pub file_hash: Option<String>,
    /// The script that the study runs, if it is one.
    pub script: Option<Arc<Script>>,
}

impl StudyInfo {
    /// Creates a description with these parameters on all machines, without metrics and policies.
    pub fn new(name: &str, summary: &str, defaults: Defaults, params: Vec<ParamSpec>) -> Self {
        Self {
            name: name.to_owned(),
            summary: summary.to_owned(),
            start: None,
            report: None,
            defaults,
            params_quick_large: params.clone(),
            params_on_live: params.clone(),
            params,
            not_live: &[],
            metrics: Vec::new(),
            choices: None,
            file_hash: None,
            script: None,
        }
    }
}

/// A workload without its types, as a [`Study`] holds it: any [`Workload`](crate::Workload), or a
/// fake of a test.
pub trait ErasedWorkload: Send + Sync {
    /// Runs one arm, which makes these choices, with one seed. Called concurrently from several
    /// host threads on simulated machines, one call at a time on real ones.
    fn run(
        &self,
        ctx: &RunContext,
        arm: ArmId,
        choices: &Arm,
        seed: u64,
    ) -> Result<SeedResult, StudyError>;
    /// Returns an error if runs with these parameters can never give a result. A plan is then
    /// refused before anything runs.
    fn refuse(&self, _ctx: &RunContext) -> Result<(), String> {
        Ok(())
    }
    /// Returns the metrics for which runs with these parameters are too short. They are left out of
    /// documents, which state what the metrics need.
    fn too_short(&self, _params: &Params, _on: Target) -> Vec<TooShort> {
        Vec::new()
    }
    /// Returns remarks for the report: the length of the run, metrics that need longer runs. One
    /// paragraph each.
    fn remarks(&self, _params: &Params, _on: Target) -> Vec<String> {
        Vec::new()
    }
    /// Returns the maximum number of concurrent tasks of a simulated run, without those of the
    /// machine.
    fn tasks(&self, _params: &Params, cpus: usize) -> u64 {
        4 * cpus as u64
    }
    /// Whether it replays the recording of a kernel image, without a memory manager.
    fn replays(&self) -> bool {
        false
    }
}

/// A study: a workload, the arms that it compares, and its metrics. A clone shares all of them.
#[derive(Clone)]
pub struct Study {
    info: Arc<StudyInfo>,
    arms: Arc<[ArmSpec]>,
    /// Number of the study's own arms; those that a call creates follow.
    own_arms: usize,
    /// The version of Linux whose policies the arms have, if a call chooses one.
    version: Option<Version>,
    workload: Arc<dyn ErasedWorkload>,
}

impl fmt::Debug for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Study({})", self.name())
    }
}

impl Study {
    /// Creates a study. The other arms are compared with the first.
    pub fn new(
        info: StudyInfo,
        arms: Vec<ArmSpec>,
        workload: impl ErasedWorkload + 'static,
    ) -> Self {
        let own_arms = arms.len();
        let (info, arms, workload) = (Arc::new(info), arms.into(), Arc::new(workload));
        Self { info, arms, own_arms, version: None, workload }
    }

    /// Returns the name on the command line.
    pub fn name(&self) -> &str {
        &self.info.name
    }
    /// Returns the question that the study answers, in one line.
    pub fn summary(&self) -> &str {
        &self.info.summary
    }
    /// Returns what a run does before its window, in which nothing counts.
    pub fn start(&self) -> Option<&str> {
        self.info.start.as_deref()
    }
    /// Returns the mail that the study began with, if it did.
    pub fn report(&self) -> Option<&Report> {
        self.info.report.as_ref()
    }
    /// Returns the default machine.
    pub fn defaults(&self) -> &Defaults {
        &self.info.defaults
    }
    /// Returns all metrics, in display order.
    pub fn metrics(&self) -> &[MetricSpec] {
        &self.info.metrics
    }
    /// Returns the hash of the study's file, if it was read when the program started, or of its
    /// script.
    pub fn file_hash(&self) -> Option<&str> {
        self.info.file_hash.as_deref()
    }
    /// Returns the script that the study runs, if it is one.
    pub fn script(&self) -> Option<&Script> {
        self.info.script.as_deref()
    }

    /// Returns whether the study replays the recording of a kernel image.
    pub fn replays(&self) -> bool {
        self.workload.replays()
    }

    /// Returns the parameters, except CPUs and HZ, which every study has.
    pub fn params(&self) -> &[ParamSpec] {
        &self.info.params
    }
    /// Returns the parameters with the defaults for a quick run of a large simulated machine.
    pub fn params_quick_large(&self) -> &[ParamSpec] {
        &self.info.params_quick_large
    }
    /// Returns the parameters with the defaults for a machine.
    pub fn params_on(&self, on: Target) -> &[ParamSpec] {
        if on == Target::Live { &self.info.params_on_live } else { &self.info.params }
    }
    /// Returns whether a parameter applies to a machine. Parameters of a simulated machine or its
    /// memory manager do not apply to the live kernel: they cannot be set there, and documents do
    /// not contain them.
    pub fn takes(&self, param: &str, on: Target) -> bool {
        on != Target::Live || !self.info.not_live.contains(&param)
    }

    /// Returns the arms. The other arms are compared with the first.
    pub fn arms(&self) -> &[ArmSpec] {
        &self.arms
    }
    /// Returns whether an arm can run on a machine. The live kernel has only the policies of its
    /// version of Linux.
    pub fn has_arm(&self, arm: ArmId, on: Target) -> bool {
        match on {
            Target::Live => self.arms[arm.0].choices.is_linux(running()),
            Target::Sim | Target::Threads => self.of_another_version(arm).is_none(),
        }
    }
    /// Returns the policy of an arm that other versions of Linux have, but not the chosen one.
    pub fn of_another_version(&self, arm: ArmId) -> Option<OtherVersion> {
        let version = self.version.filter(|_| arm.0 < self.own_arms)?;
        self.arms[arm.0].choices.of_another_version(version)
    }
    /// Returns the effective policies of an arm with these parameters, by mechanism, and its
    /// workload variants, for documents. The policies of a live kernel are unknown and not
    /// included.
    pub fn policies(&self, arm: ArmId, params: &Params, on: Target) -> BTreeMap<String, String> {
        let Some(own) = self.info.choices else { return BTreeMap::new() };
        self.arms[arm.0]
            .choices
            .in_force(own, on, |key| params.values().get(key).map(ToString::to_string))
    }

    /// Returns this study with the policies of a version of Linux, for all mechanisms that an arm
    /// does not choose.
    pub fn on_version(&self, version: Version) -> Result<Self, PolicyError> {
        self.choices()?;
        let arms = self.arms.iter().map(|arm| {
            let choices = arm.choices.as_of(version);
            ArmSpec { choices, ..arm.clone() }
        });
        Ok(Self { arms: arms.collect(), version: Some(version), ..self.clone() })
    }
    /// Returns this study with additional arms at the end: its first arm with the policies that a
    /// call chooses.
    pub fn with_arms(&self, wanted: &[PolicyArm]) -> Result<Self, PolicyError> {
        let own = self.choices()?;
        let base = (0..self.own_arms).find(|&arm| self.has_arm(ArmId(arm), Target::Sim));
        let base = &self.arms[base.unwrap_or(0)].choices;
        let taken: Vec<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();

        let mut arms = self.arms.to_vec();
        for (arm, name) in wanted.iter().zip(PolicyArm::names(wanted, self.name(), &taken)?) {
            let choices = arm.on(base, own)?;
            arms.push(ArmSpec { name, help: format!("--policy {arm}"), choices });
        }
        Ok(Self { arms: arms.into(), ..self.clone() })
    }
    fn choices(&self) -> Result<&'static [Choice], PolicyError> {
        self.info.choices.ok_or_else(|| PolicyError::NoPolicies(self.name().to_owned()))
    }

    /// Runs one arm with one seed.
    pub fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError> {
        let result = self.workload.run(ctx, arm, &self.arms[arm.0].choices, seed)?;
        #[cfg(feature = "live")]
        if ctx.on != Target::Sim && mmscale_linux::is_emulated() {
            return Ok(result.without_times(self.metrics()));
        }
        Ok(result)
    }
    /// Returns an error if runs with these parameters can never give a result.
    pub fn refuse(&self, ctx: &RunContext) -> Result<(), String> {
        self.workload.refuse(ctx)
    }
    /// Returns the metrics for which runs with these parameters are too short.
    pub fn too_short(&self, params: &Params, on: Target) -> Vec<TooShort> {
        self.workload.too_short(params, on)
    }
    /// Returns remarks for the report, one paragraph each.
    pub fn remarks(&self, params: &Params, on: Target) -> Vec<String> {
        self.workload.remarks(params, on)
    }
    /// Returns the maximum number of concurrent tasks of a simulated run, without those of the
    /// machine.
    pub fn tasks(&self, params: &Params, cpus: usize) -> u64 {
        self.workload.tasks(params, cpus)
    }
}
