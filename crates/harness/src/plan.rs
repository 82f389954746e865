//! From a request to plans. Everything is checked before anything starts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mmscale_document::{self as record, ParamValue, Target};
use mmscale_mm::versions::{Version, policies_of};
use mmscale_sim::HoldScale;
use mmscale_sim::profile::{Profile, ProfileError, Profiles, Shape};
use thiserror::Error;

use crate::allocator_params::heeded;
use crate::costs::{self, CostError, Costs, CostsSet};
use crate::hold::{self, HOLD_KEY};
use crate::names::UnknownName;
use crate::origin::Origin;
use crate::page_size::fits_pages;
use crate::param::{Length, MAX_DOCUMENTS, ParamError, ParamSpec, Params, Settings, Unit, sweep};
use crate::policy_arm::{PolicyArm, PolicyError};
use crate::registry::{NoStudy, Registry};
use crate::shape::shaped;
use crate::study::{ArmId, Checks, Interrupt, Progress, RunContext, Study};
use crate::timelines::Timelines;
use crate::trails::Trails;
use crate::versions::{self, OtherVersion, VersionError};

/// Quick runs of simulated machines with more CPUs than this have defaults of their own, and one
/// seed.
pub(crate) const LARGE_CPUS: usize = 512;

/// Maximum number of CPUs of a machine.
pub const MAX_CPUS: u64 = 4096;

/// Default number of seeds. With seven pairs of runs, each of two or three headlines can hold
/// (`mmscale_stats::pairs_needed`); with six, only a single one.
pub const SEEDS: u64 = 7;

/// Maximum number of seeds of one call.
const MAX_SEEDS: u64 = 10_000;

/// A request to run studies. A field that is left out has the study's default.
#[derive(Clone, Debug)]
pub struct Request {
    /// Names of studies; `all` means all studies.
    pub studies: Vec<String>,
    /// The machine.
    pub on: Option<Target>,
    /// Names of arms, starting with the one to compare with; empty means all arms of the study.
    pub arms: Vec<String>,
    /// Arms that are created from policies. They follow the named arms, or the study's first arm if
    /// none is named.
    pub policies: Vec<PolicyArm>,
    /// The version of Linux whose policies the arms have, except for those that they choose
    /// themselves; `None`: the defaults.
    pub linux: Option<Version>,
    /// The name of a built-in profile, or the path of a profile file.
    pub profile: Option<PathBuf>,
    /// Costs of the simulated machine that differ from the profile's.
    pub costs: Costs,
    /// Settings of parameters, including `cpus` and `hz`.
    pub settings: Settings,
    /// Number of seeds; `None` means [`SEEDS`], or 2 in a quick run.
    pub seeds: Option<u64>,
    /// The first seed; the others are consecutive.
    pub first_seed: u64,
    /// Full or quick.
    pub length: Length,
    /// Whether checkers are on.
    pub checks: Checks,
    /// Whether to record what the holders of locks did while others waited: all of them on
    /// simulated machines, those that can be seen on the live kernel.
    pub blame: bool,
    /// Scales work while a lock of one class is held; simulated machines only.
    pub hold_scale: Option<HoldScale>,
    /// Grouping of CPUs on a simulated machine with another number of CPUs than its profile.
    pub shape: Shape,
    /// The program and command line of the request.
    pub origin: Origin,
}

/// Why a request cannot be run. Nothing was started or written.
#[derive(Debug, Error)]
pub enum CallError {
    /// An arm does not exist.
    #[error(transparent)]
    Name(#[from] UnknownName),
    /// A cost of the machine cannot be set to the given value.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// A parameter cannot be set to the given value.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// An arm cannot be created from the given policies.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A version of Linux cannot be simulated.
    #[error(transparent)]
    Linux(#[from] VersionError),
    /// A profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A study does not exist or cannot be used.
    #[error(transparent)]
    Study(#[from] NoStudy),
    /// Another error; the text has the problem and advice.
    #[error("{0}")]
    Other(String),
}

/// The CPUs and the timer interrupts of a machine if a call sets neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usual {
    cpus: usize,
    hz: u32,
}

/// The runs behind one document: one study, one machine, one set of parameters.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The study.
    pub study: &'static dyn Study,
    /// The machine.
    pub on: Target,
    /// The settings of the machine unless the call sets them.
    pub(crate) usual: Usual,
    /// The profile's name; `host` if the machine is this computer.
    pub profile_name: String,
    /// The simulated machine, with the plan's CPUs and HZ.
    pub profile: Option<Arc<Profile>>,
    /// The costs of the machine that differ from the profile's.
    pub costs: CostsSet,
    /// The CPU topology, including that of the profile if it differs.
    pub topology: Option<record::Topology>,
    /// Number of CPUs of the machine.
    pub cpus: usize,
    /// Timer interrupts per second.
    pub hz: u32,
    /// The study's parameters.
    pub params: Params,
    /// The arms, starting with the one to compare with.
    pub arms: Vec<ArmId>,
    /// The version of Linux that the request chooses.
    pub linux: Option<Version>,
    /// The seeds.
    pub seeds: Arc<[u64]>,
    /// Full or quick.
    pub length: Length,
    /// Whether checkers are on.
    pub checks: Checks,
    /// Whether to record what the holders of locks did while others waited.
    pub blame: bool,
    /// Scales work while a lock of one class is held; simulated machines only.
    pub hold_scale: Option<HoldScale>,
    /// The program and command line of the request.
    pub origin: Origin,
}

impl Plan {
    /// Returns the number of runs: arms times seeds.
    pub fn runs(&self) -> usize {
        self.arms.len() * self.seeds.len()
    }

    /// Returns the number of concurrent runs.
    pub(crate) fn at_once(&self) -> usize {
        match self.on {
            Target::Sim => host_cpus().min(self.runs()),
            Target::Threads | Target::Linux => 1,
        }
    }

    /// Returns the inputs of each run.
    pub(crate) fn context(&self, interrupt: &Interrupt, progress: Progress) -> RunContext {
        RunContext {
            on: self.on,
            cpus: self.cpus,
            hz: self.hz,
            profile: self.profile.clone(),
            params: self.params.clone(),
            length: self.length,
            checks: self.checks,
            blame: self.blame,
            hold_scale: self.hold_scale,
            interrupt: interrupt.clone(),
            progress,
            trails: Trails::default(),
            timelines: Timelines::default(),
        }
    }

    /// Returns the parameters that apply to the plan's machine, the costs that the call sets, and
    /// the scaled holds.
    pub fn shown_params(&self) -> BTreeMap<String, ParamValue> {
        let all = self.params.values().clone().into_iter();
        let own = all.filter(|(name, _)| self.study.takes(name, self.on));
        let scale = |scale| (HOLD_KEY.to_owned(), ParamValue::Choice(hold::shown(scale)));
        own.chain(costs::shown(&self.costs)).chain(self.hold_scale.map(scale)).collect()
    }

    /// Returns the remarks for the report, with a warning if a real machine has fewer CPUs than
    /// requested.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.study.remarks(&self.params, self.on);
        remarks.extend(self.linux.map(versions::remark));
        if self.on == Target::Linux {
            remarks.extend(versions::running_kernel().map(|what| format!("{what}.")));
        }
        let here = host_cpus();
        if self.on != Target::Sim && self.cpus > here {
            remarks.push(format!(
                "{} CPUs were requested, but only {here} are available: these figures say nothing \
                 about scaling.",
                self.cpus
            ));
        }
        remarks
    }

    /// Returns the settings of the plan as words for the name of a file, each with whether it
    /// differs from the default, in the same order for all plans of a study on one machine.
    pub fn named_settings(&self) -> Vec<(String, bool)> {
        let Usual { cpus, hz } = self.usual;
        let linux = self.linux.map_or("linux".to_owned(), |version| format!("linux{version}"));
        let shape = self.topology.as_ref().map_or("", |topology| topology.shape.as_str());
        let mut words = vec![
            (format!("cpus{}", self.cpus), self.cpus != cpus),
            (format!("hz{}", self.hz), self.hz != hz),
            (linux, self.linux.is_some()),
            (shape.to_owned(), !["", Shape::default().name()].contains(&shape)),
        ];
        let specs = self.study.params_on(self.on);
        words.extend(self.shown_params().into_iter().map(|(name, value)| {
            let spec = specs.iter().find(|spec| spec.name == name);
            let default = spec.filter(|spec| spec.in_turn().is_empty());
            let is_default = default.is_some_and(|spec| spec.default(self.length) == value);
            (format!("{}-{value}", name.trim_start_matches('-')), !is_default)
        }));
        words
    }

    /// Returns the parameters' defaults in a full run, without parameters that are run in turn.
    pub fn defaults(&self) -> BTreeMap<String, ParamValue> {
        let specs = self.study.params_on(self.on);
        let in_turn: Vec<_> = specs.iter().filter(|spec| !spec.in_turn().is_empty()).collect();
        let in_turn: Vec<_> = in_turn.iter().map(|spec| spec.name).collect();
        Params::defaults(specs, Length::Full).without(&in_turn).values().clone()
    }
}

/// Checks a request and returns its plans, one per document: study by study, and each combination
/// of swept values.
pub fn plan(registry: Registry, request: &Request) -> Result<Vec<Plan>, CallError> {
    let studies = chosen(registry, &request.studies)?;
    check_keys(&studies, &request.settings)?;
    let mut plans = Vec::new();
    for study in studies {
        plans.extend(plan_study(registry.profiles(), study, request)?);
    }
    if plans.len() > MAX_DOCUMENTS {
        return Err(ParamError::TooMany { count: plans.len() }.into());
    }
    for plan in &plans {
        let ctx = plan.context(&Interrupt::default(), Progress::default());
        plan.study.refuse(&ctx).map_err(|why| {
            CallError::Other(format!(
                "study `{}` cannot run with these parameters: {why}",
                plan.study.name()
            ))
        })?;
        fits_pages(plan.study, &plan.arms, &ctx)
            .and_then(|()| heeded(plan.study, &plan.arms, &ctx))
            .map_err(CallError::Other)?;
    }
    Ok(plans)
}

fn chosen(registry: Registry, names: &[String]) -> Result<Vec<&'static dyn Study>, CallError> {
    let mut studies: Vec<&'static dyn Study> = Vec::new();
    for name in names {
        let named: Vec<_> = match (name.as_str(), registry.broken()) {
            ("all", [why, ..]) => return Err(NoStudy::Broken(why.clone()).into()),
            ("all", []) => registry.all().collect(),
            _ => vec![registry.find(name)?],
        };
        for study in named {
            if studies.iter().any(|other| other.name() == study.name()) {
                return Err(CallError::Other(format!(
                    "study `{}` is named twice; name it once, or only `all`",
                    study.name()
                )));
            }
            studies.push(study);
        }
    }
    if studies.is_empty() {
        return Err(CallError::Other("no study is named; `mmscale list` shows all".to_owned()));
    }
    Ok(studies)
}

/// Returns an error for a key that none of the studies has. Studies that do not have a key ignore
/// it.
fn check_keys(studies: &[&'static dyn Study], settings: &Settings) -> Result<(), CallError> {
    let mut known: Vec<ParamSpec> = common_params(1, 1000).into();
    for study in studies {
        for spec in study.params().iter().chain(study.params_on(Target::Linux)) {
            if !known.iter().any(|other| other.name == spec.name) {
                known.push(spec.clone());
            }
        }
    }
    for key in settings.keys() {
        ParamSpec::find(&known, key)?;
    }
    Ok(())
}

/// Returns the parameters that every study has.
fn common_params(cpus: usize, hz: u32) -> [ParamSpec; 2] {
    let hz = match hz {
        100 => "100",
        250 => "250",
        300 => "300",
        1000 => "1000",
        other => panic!("no kernel is built with HZ={other}"),
    };
    [
        ParamSpec::count(
            "cpus",
            Unit::One,
            cpus as u64,
            [1, MAX_CPUS],
            "number of CPUs of the machine",
        ),
        ParamSpec::choice(
            "hz",
            hz,
            &["100", "250", "300", "1000"],
            "timer interrupts per second on each CPU",
        ),
    ]
}

fn plan_study(
    profiles: Profiles,
    study: &'static dyn Study,
    request: &Request,
) -> Result<Vec<Plan>, CallError> {
    let defaults = study.defaults();
    let on = machine(study, request)?;
    check_switches(on, request)?;
    let machines = machines(profiles, defaults.profile, on, request)?;
    let cpus = match &machines[0].1 {
        Some(profile) if request.profile.is_some() => profile.topology.cpus,
        Some(_) => defaults.cpus,
        None => host_cpus(),
    };
    let study = on_version(study, on, request)?;
    let (study, arms) = arms_of(study, on, request)?;
    let seeds = seeds(request)?;
    let hz = if on == Target::Linux { live_hz(request)? } else { defaults.hz };
    let common = common_params(cpus, hz);
    let usual = Usual { cpus, hz };
    let mut specs = common.to_vec();
    specs.extend(study.params_on(on).iter().cloned());
    let mut plans = Vec::new();
    check_machine(study, on, &specs, &request.settings)?;
    let points = sweep(&specs, &request.settings.only(&specs), request.length)?;
    let pairs = machines.iter().flat_map(|machine| points.iter().map(move |at| (machine, at)));
    for ((costs, profile), values) in pairs {
        let cpus = values.count("cpus") as usize;
        let hz = values.choice("hz").parse().expect("the choices are numbers");
        let (profile, topology) = match profile {
            Some(own) => {
                let (profile, topology) = shaped(own, cpus, hz, request.shape)?;
                (Some(Arc::new(profile)), Some(topology))
            }
            None => (None, None),
        };
        let mut params = values.clone().without(&common.each_ref().map(|spec| spec.name));
        set_version(&mut params, request)?;
        let mut seeds = seeds.clone();
        if on == Target::Sim && request.length == Length::Quick && cpus > LARGE_CPUS {
            shorten(&mut params, study, &request.settings);
            if request.seeds.is_none() {
                seeds = seeds[..1].into();
            }
        }
        plans.push(Plan {
            study,
            on,
            usual,
            profile_name: profile.as_ref().map_or("host".to_owned(), |p| p.name.clone()),
            profile,
            costs: costs.clone(),
            topology,
            cpus,
            hz,
            params,
            arms: arms.clone(),
            linux: request.linux,
            seeds,
            length: request.length,
            checks: request.checks,
            blame: request.blame,
            hold_scale: request.hold_scale,
            origin: request.origin.clone(),
        });
    }
    Ok(plans)
}

/// Returns an error if something is asked for that this machine cannot do.
fn check_switches(on: Target, request: &Request) -> Result<(), CallError> {
    if on == Target::Linux && request.checks == Checks::On {
        let what = "--check verifies this program's memory manager, which --on linux does not run; \
                    leave one of them out";
        return Err(CallError::Other(what.to_owned()));
    }
    if on != Target::Sim && request.hold_scale.is_some() {
        let what = "--hold scales times of a simulated machine: use --on sim, or leave it out";
        return Err(CallError::Other(what.to_owned()));
    }
    if on == Target::Threads && request.blame {
        let what = "--blame needs the simulator, which knows the holder at each moment, or a live \
                    kernel that shows some: use --on sim or --on linux";
        return Err(CallError::Other(what.to_owned()));
    }
    Ok(())
}

/// Returns an error if a parameter is set that does not apply to this machine.
fn check_machine(
    study: &'static dyn Study,
    on: Target,
    specs: &[ParamSpec],
    settings: &Settings,
) -> Result<(), CallError> {
    let elsewhere = |key: &&str| {
        let has = |specs: &[ParamSpec]| specs.iter().any(|spec| spec.name == *key);
        let known = has(study.params()) || has(study.params_on(Target::Linux));
        known && !(has(specs) && study.takes(key, on))
    };
    match settings.keys().find(elsewhere) {
        Some(key) => Err(CallError::Other(format!(
            "parameter `{key}` of `{}` does not apply to --on {on}; leave it out",
            study.name()
        ))),
        None => Ok(()),
    }
}

/// Gives parameters that the call does not set the defaults of a quick run of a large machine.
fn shorten(params: &mut Params, study: &'static dyn Study, settings: &Settings) {
    let usual = |name| study.params().iter().find(|spec: &&ParamSpec| spec.name == name);
    for spec in study.params_quick_large() {
        let value = spec.default(Length::Quick);
        let differs = usual(spec.name).is_some_and(|spec| spec.default(Length::Quick) != value);
        if differs && !settings.keys().any(|key| key == spec.name) {
            params.set(spec.name, value);
        }
    }
}

/// Returns the requested simulated machines, each with the costs that the call sets: there is at
/// least one. `None` if the machine is this computer.
fn machines(
    profiles: Profiles,
    default: &str,
    on: Target,
    request: &Request,
) -> Result<Vec<(CostsSet, Option<Profile>)>, CallError> {
    Ok(match on {
        Target::Sim => {
            let profile = request.profile.as_deref().unwrap_or(default.as_ref());
            let machines = request.costs.machines(&profiles.open(profile)?)?;
            machines.into_iter().map(|(costs, profile)| (costs, Some(profile))).collect()
        }
        Target::Threads | Target::Linux if !request.costs.is_empty() => {
            return Err(CallError::Other(format!(
                "--cost is a cost of a simulated machine and --on {on} is this computer; leave \
                 one of them out"
            )));
        }
        Target::Threads | Target::Linux if request.profile.is_some() => {
            return Err(CallError::Other(format!(
                "--profile describes a simulated machine and --on {on} is this computer; \
                 leave one of them out"
            )));
        }
        Target::Threads | Target::Linux if request.shape != Shape::default() => {
            return Err(CallError::Other(format!(
                "--shape {} groups the CPUs of a simulated machine and --on {on} is this \
                 computer; leave one of them out",
                request.shape.name()
            )));
        }
        Target::Threads | Target::Linux => vec![(CostsSet::new(), None)],
    })
}

/// Returns the CPUs of this computer that this process may use.
pub(crate) fn host_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn machine(study: &dyn Study, request: &Request) -> Result<Target, CallError> {
    let can = study.defaults().machines;
    let on = request.on.unwrap_or(can[0]);
    if on == Target::Linux && !cfg!(feature = "live") {
        let what = "this program was built without the feature `live`, which --on linux needs; use \
                    --on sim or --on threads";
        return Err(CallError::Other(what.to_owned()));
    }
    if can.contains(&on) {
        return Ok(on);
    }
    let names: Vec<_> = can.iter().map(|on| on.name()).collect();
    let why = match on {
        Target::Linux => format!("study `{}` does not run on the live kernel", study.name()),
        Target::Sim | Target::Threads => format!("study `{}` does not run on {on}", study.name()),
    };
    Err(CallError::Other(format!("{why}; use --on {}", names.join(" or --on "))))
}

/// Returns the HZ of the running kernel, which cannot be set.
fn live_hz(request: &Request) -> Result<u32, CallError> {
    if request.settings.keys().any(|key| key == "hz") {
        let what =
            "--hz cannot be set with --on linux, which measures the running kernel; leave it out";
        return Err(CallError::Other(what.to_owned()));
    }
    #[cfg(feature = "live")]
    let hz = crate::live::hz();
    #[cfg(not(feature = "live"))]
    let hz = None;
    Ok(hz.unwrap_or(1000))
}

/// Returns the study with the policies of the requested version of Linux.
fn on_version(
    study: &'static dyn Study,
    on: Target,
    request: &Request,
) -> Result<&'static dyn Study, CallError> {
    let Some(version) = request.linux else { return Ok(study) };
    if on == Target::Linux {
        return Err(CallError::Other(format!(
            "--linux {version} chooses the mechanisms of a simulated kernel, and --on linux runs \
             the installed one, Linux {}; leave one of them out",
            versions::running()
        )));
    }
    Ok(study.on_version(version)?)
}

/// Gives parameters that are mechanisms the policies of the requested version of Linux. Returns an
/// error if the call sets one to another policy.
fn set_version(params: &mut Params, request: &Request) -> Result<(), CallError> {
    let Some(version) = request.linux else { return Ok(()) };
    for (mechanism, policy) in policies_of(version) {
        let key = mechanism.key;
        let Some(value) = params.values().get(key).map(ToString::to_string) else { continue };
        if value != policy.name && request.settings.keys().any(|set| set == key) {
            return Err(CallError::Other(format!(
                "--set {key}={value} contradicts --linux {version}, which has {key}={}; leave one \
                 of them out, or add an arm with --policy {key}={value}",
                policy.name
            )));
        }
        params.set(key, ParamValue::Choice(policy.name.to_owned()));
    }
    Ok(())
}

/// Returns the requested arms, and the study extended by arms that the call creates.
fn arms_of(
    study: &'static dyn Study,
    on: Target,
    request: &Request,
) -> Result<(&'static dyn Study, Vec<ArmId>), CallError> {
    let mut arms = named_arms(study, on, &request.arms)?;
    if request.policies.is_empty() {
        return Ok((study, arms));
    }
    if request.arms.is_empty() {
        arms.truncate(1);
    }
    let own = study.arms().len();
    let study = study.with_arms(&request.policies)?;
    for (at, arm) in request.policies.iter().enumerate() {
        let id = ArmId(own + at);
        if !study.has_arm(id, on) {
            return Err(PolicyError::NotLive { arm: arm.to_string() }.into());
        }
        arms.push(id);
    }
    Ok((study, arms))
}

fn named_arms(study: &dyn Study, on: Target, names: &[String]) -> Result<Vec<ArmId>, CallError> {
    let all = study.arms();
    let there: Vec<ArmId> =
        (0..all.len()).map(ArmId).filter(|&arm| study.has_arm(arm, on)).collect();
    if names.is_empty() {
        return Ok(there);
    }
    let mut arms = Vec::new();
    for name in names {
        let place = all.iter().position(|arm| arm.name == name);
        let place = place.ok_or_else(|| UnknownName::new("arm", name, all.iter().map(|a| a.name)));
        let arm = ArmId(place?);
        if let Some(OtherVersion { chosen: (key, policy), has }) = study.of_another_version(arm)
            && on != Target::Linux
        {
            return Err(CallError::Other(format!(
                "arm `{name}` of study `{}` has {key}={policy}, and the version of --linux has \
                 {key}={has}; leave the arm or --linux out, or choose another version \
                 (`mmscale list linux`)",
                study.name()
            )));
        }
        if !there.contains(&arm) {
            let here: Vec<_> = there.iter().map(|arm| all[arm.0].name).collect();
            return Err(CallError::Other(format!(
                "arm `{name}` does not exist on --on {on}, which runs the installed kernel; \
                 available: {}",
                here.join(", ")
            )));
        }
        if arms.contains(&arm) {
            return Err(CallError::Other(format!("arm `{name}` is named twice; name it once")));
        }
        arms.push(arm);
    }
    Ok(arms)
}

fn seeds(request: &Request) -> Result<Arc<[u64]>, CallError> {
    let few = if request.length == Length::Quick { 2 } else { SEEDS };
    let count = request.seeds.unwrap_or(few);
    if count == 0 || count > MAX_SEEDS {
        return Err(CallError::Other(format!(
            "cannot run {count} seeds; allowed: --seeds 1 to {MAX_SEEDS}"
        )));
    }
    let end = request.first_seed.checked_add(count).ok_or_else(|| {
        CallError::Other(format!(
            "cannot run {count} seeds that start with --seed {}: seeds are 64-bit numbers",
            request.first_seed
        ))
    })?;
    Ok((request.first_seed..end).collect())
}
