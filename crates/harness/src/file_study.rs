//! A study that consists of a `study.toml` and a [`Workload`]: names, arms and defaults are from
//! the file, programs and metrics from the workload.

use crate::allocator_params::allocator_params;
use crate::arm::Arm;
use crate::file::{FileError, ReportFile, Source, StudyFile};
use crate::machine::machine_params;
use crate::names::UnknownName;
use crate::param::{ParamSet, ParamSpec, Params};
use crate::policy_arm::{PolicyArm, PolicyError};
use crate::scripted::{HEADLINES, Scripted, specs_of};
use crate::study::{
    ArmId, ArmSpec, Defaults, MetricSpec, Report, RunContext, SeedResult, Study, StudyError,
    TooShort,
};
use crate::versions::{OtherVersion, running};
use crate::workload::Workload;
use crate::{arm, drive, look, schedules};
use mmscale_document::{Fingerprint, Target};
use mmscale_mm::versions::Version;
use mmscale_script::Script;
use mmscale_sim::profile::Profiles;
use std::collections::BTreeMap;
use std::path::Path;

/// The start of a run of a script, before its window.
const SCRIPT_START: &str = "programs are created and prepare, all begin together at `start`, and \
                            warm_ms later the window opens; nothing before it counts";

/// A workload with the names and defaults of its file.
#[derive(Debug)]
pub struct FileStudy<W: Workload> {
    name: &'static str,
    summary: &'static str,
    start: Option<&'static str>,
    report: Option<Report>,
    profile: &'static str,
    cpus: usize,
    /// The hash of the file, if it was read from disk, or of the script.
    file_hash: Option<&'static str>,
    params: &'static [ParamSpec],
    params_quick_large: &'static [ParamSpec],
    params_on_linux: &'static [ParamSpec],
    arms: &'static [ArmSpec],
    choices: Vec<Arm>,
    /// The version of Linux whose policies the arms have, if a call chooses one.
    version: Option<Version>,
    /// Number of arms of the file; those that a call creates follow.
    own_arms: usize,
    metrics: &'static [MetricSpec],
    /// The script, if the workload is one.
    script: Option<&'static Script>,
    workload: std::marker::PhantomData<W>,
}

impl<W: Workload> FileStudy<W> {
    /// Creates the study of a file.
    pub fn of_file(source: Source, profiles: Profiles) -> Result<Self, FileError> {
        let (text, hash) = source.read()?;
        let file = StudyFile::parse(source.study, &text, W::CHOICES)?;
        let profile = profiles.load(&file.profile).map_err(|why| file.error(why))?;
        let mut params = file.params(W::Params::specs())?;
        let params_quick_large = file.params_quick_large(&params)?;
        let mut params_on_linux = file.params_on_linux(&params)?;
        params.extend(machine_params());
        params.extend(allocator_params());
        params_on_linux.push(look::watch_param());
        let known = |name: &&&str| params.iter().any(|spec: &ParamSpec| spec.name == **name);
        assert_eq!(W::Params::NOT_LIVE.iter().find(|name| !known(name)), None, "no such parameter");
        let metrics = file.metrics(W::METRICS.iter().map(|metric| metric.spec).collect())?;
        // The registry needs names with a static lifetime.
        let (mut arms, mut choices) = (Vec::new(), Vec::new());
        for arm in file.arms {
            arms.push(ArmSpec { name: arm.name.leak(), help: arm.help.leak() });
            choices.push(arm.arm);
        }
        Ok(Self {
            name: source.study,
            summary: file.summary.leak(),
            start: file.start.map(|start| &*start.leak()),
            report: file.report.map(|ReportFile { subject, link }| Report {
                subject: subject.leak(),
                link: link.leak(),
            }),
            profile: file.profile.leak(),
            cpus: file.cpus.unwrap_or(profile.topology.cpus),
            file_hash: hash.map(|hash| &*hash.leak()),
            params: params.leak(),
            params_quick_large: params_quick_large.leak(),
            params_on_linux: params_on_linux.leak(),
            own_arms: arms.len(),
            arms: arms.leak(),
            choices,
            version: None,
            metrics: metrics.leak(),
            script: None,
            workload: std::marker::PhantomData,
        })
    }

    /// Returns the inputs of a run as the workload reads them.
    fn context(&self, ctx: &RunContext) -> RunContext {
        RunContext { params: ctx.params.of_script(self.script), ..ctx.clone() }
    }

    /// Returns the parameters as the workload reads them.
    fn read(&self, params: &Params) -> W::Params {
        W::Params::read(&params.of_script(self.script))
    }
}

/// The machine of a script that chooses none: its profile and number of CPUs.
const SCRIPT_MACHINE: (&str, usize) = ("x86-512", 32);

impl FileStudy<Scripted> {
    /// Creates the study of a script, which has the arm `stock` and those of the script. The error
    /// is one of a name: a profile, a policy, or a parameter.
    pub(crate) fn of_script(script: Script, profiles: Profiles) -> Result<Self, String> {
        // Leaked like the names of other studies; a call has few.
        let script: &'static Script = Box::leak(Box::new(script));
        let profile = script.profile().unwrap_or(SCRIPT_MACHINE.0);
        let loaded = profiles.load(Path::new(profile)).map_err(|why| why.to_string())?;
        let cpus = match script.profile() {
            Some(_) => script.cpus().unwrap_or(loaded.topology.cpus),
            None => SCRIPT_MACHINE.1,
        };
        let [mut params, mut params_on_linux] = specs_of(script)?;
        params.extend(machine_params());
        params.extend(allocator_params());
        params_on_linux.push(look::watch_param());
        let params: &'static [ParamSpec] = params.leak();
        let mut arms = vec![ArmSpec { name: "stock", help: "Linux" }];
        let mut choices = vec![Arm::default()];
        for own in script.arms() {
            let mut arm = Arm::default();
            for (key, policy) in &own.choices {
                let found = arm::keys(&[]).find(|known| known == key);
                let unknown = |why: UnknownName| format!("arm {}: {why}", own.name);
                let key = found
                    .ok_or_else(|| unknown(UnknownName::new("mechanism", key, arm::keys(&[]))))?;
                arm.choose(key, arm::value(key, policy, &[]).map_err(unknown)?);
            }
            let list: Vec<String> =
                own.choices.iter().map(|(key, policy)| format!("{key}={policy}")).collect();
            arms.push(ArmSpec { name: own.name.clone().leak(), help: list.join(", ").leak() });
            choices.push(arm);
        }
        let metrics = Scripted::METRICS.iter().map(|metric| MetricSpec {
            headline: HEADLINES.contains(&metric.spec.name),
            ..metric.spec
        });
        let mut hash = Fingerprint::new();
        hash.add_str(&script.content());
        Ok(Self {
            name: script.name(),
            summary: script.summary().leak(),
            start: Some(SCRIPT_START),
            report: None,
            profile,
            cpus,
            file_hash: Some(hash.to_hex().leak()),
            params,
            params_quick_large: params,
            params_on_linux: params_on_linux.leak(),
            own_arms: arms.len(),
            arms: arms.leak(),
            choices,
            version: None,
            metrics: metrics.collect::<Vec<_>>().leak(),
            script: Some(script),
            workload: std::marker::PhantomData,
        })
    }
}

impl<W: Workload> Study for FileStudy<W> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn summary(&self) -> &'static str {
        self.summary
    }
    fn start(&self) -> Option<&'static str> {
        self.start
    }
    fn report(&self) -> Option<Report> {
        self.report
    }
    fn params(&self) -> &'static [ParamSpec] {
        self.params
    }
    fn arms(&self) -> &'static [ArmSpec] {
        self.arms
    }
    fn with_arms(&self, wanted: &[PolicyArm]) -> Result<&'static dyn Study, PolicyError> {
        let taken: Vec<&str> = self.arms.iter().map(|arm| arm.name).collect();
        let base = (0..self.own_arms).find(|&arm| self.has_arm(ArmId(arm), Target::Sim));
        let base = &self.choices[base.unwrap_or(0)];
        let (mut arms, mut choices) = (self.arms.to_vec(), self.choices.clone());
        for (arm, name) in wanted.iter().zip(PolicyArm::names(wanted, self.name, &taken)?) {
            choices.push(arm.on(base, W::CHOICES)?);
            arms.push(ArmSpec { name: name.leak(), help: format!("--policy {arm}").leak() });
        }
        // Leaked like those of the file; a call creates only few.
        Ok(Box::leak(Box::new(Self { arms: arms.leak(), choices, ..*self })))
    }
    fn on_version(&self, version: Version) -> Result<&'static dyn Study, PolicyError> {
        let choices = self.choices.iter().map(|arm| arm.as_of(version)).collect();
        Ok(Box::leak(Box::new(Self { choices, version: Some(version), ..*self })))
    }
    fn of_another_version(&self, arm: ArmId) -> Option<OtherVersion> {
        let version = self.version.filter(|_| arm.0 < self.own_arms)?;
        self.choices[arm.0].of_another_version(version)
    }
    fn file_hash(&self) -> Option<&'static str> {
        self.file_hash
    }
    fn script(&self) -> Option<&'static Script> {
        self.script
    }
    fn metrics(&self) -> &'static [MetricSpec] {
        self.metrics
    }
    fn params_quick_large(&self) -> &'static [ParamSpec] {
        self.params_quick_large
    }
    fn params_on(&self, on: Target) -> &'static [ParamSpec] {
        if on == Target::Linux { self.params_on_linux } else { self.params }
    }
    fn takes(&self, param: &str, on: Target) -> bool {
        on != Target::Linux || !W::Params::NOT_LIVE.contains(&param)
    }
    /// The live kernel has only the policies of its version of Linux.
    fn has_arm(&self, arm: ArmId, on: Target) -> bool {
        match on {
            Target::Linux => self.choices[arm.0].is_linux(running()),
            Target::Sim | Target::Threads => self.of_another_version(arm).is_none(),
        }
    }
    fn policies(&self, arm: ArmId, params: &Params, on: Target) -> BTreeMap<String, String> {
        let of_params = |key: &str| params.values().get(key).map(ToString::to_string);
        self.choices[arm.0].in_force(W::CHOICES, on, of_params)
    }
    fn defaults(&self) -> Defaults {
        let live = self.choices.iter().any(|arm| arm.is_linux(running()));
        Defaults {
            machines: if live {
                &[Target::Sim, Target::Threads, Target::Linux]
            } else {
                &[Target::Sim, Target::Threads]
            },
            profile: self.profile,
            cpus: self.cpus,
            hz: 1000,
        }
    }
    fn too_short(&self, params: &Params, on: Target) -> Vec<TooShort> {
        W::too_short(&self.read(params), on)
    }
    fn remarks(&self, params: &Params, on: Target) -> Vec<String> {
        W::remarks(&self.read(params), on)
    }
    fn refuse(&self, ctx: &RunContext) -> Result<(), String> {
        drive::refuse::<W>(&self.context(ctx))
    }
    fn tasks(&self, params: &Params, cpus: usize) -> u64 {
        W::tasks(&self.read(params), cpus)
    }
    fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError> {
        let run = |ctx: &RunContext| drive::run::<W>(ctx, &self.choices[arm.0], seed);
        let ctx = &self.context(ctx);
        let both = ctx.on == Target::Sim && ctx.params.choice("sched") == "both";
        if both { schedules::both(ctx, run) } else { run(ctx) }
    }
}
