//! A study that a `study.toml` describes: what all of the shipped ones are.
//!
//! The file gives names, arms and defaults; an [`Experiment`] gives what is done and measured.

use crate::chosen::{PolicyArm, PolicyError};
use crate::file::{FileError, Source, StudyFile};
use crate::live;
use crate::param::{ParamSpec, Params, Unit};
use crate::policies::{Arm, Choice};
use crate::schedules;
use crate::study::{
    ArmId, ArmSpec, Defaults, MetricSpec, RunContext, SeedResult, Study, StudyError, TooShort,
};
use mmscale_document::On;
use mmscale_sim::{Policy, SimConfig, profile};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What a study does and measures.
pub trait Experiment: Debug + 'static {
    /// CPUs of a simulated machine unless somebody says otherwise.
    const CPUS: usize;
    /// Every figure, in the order in which tables show them.
    const METRICS: &'static [MetricSpec];
    /// What the workload does differently in some arms.
    const CHOICES: &'static [Choice] = &[];

    /// Those of its parameters that mean nothing on the live kernel.
    const NOT_LIVE: &'static [&'static str];

    /// Its parameters, but those that every simulated machine has ([`set_machine`]).
    fn params() -> Vec<ParamSpec>;
    /// What a reader of its report must know.
    fn remarks(params: &Params, on: On) -> Vec<String>;
    /// How long the window is of which a run's figures are, as [`Study::window_ns`].
    fn window_ns(params: &Params) -> Option<u64>;
    /// Metrics for which runs with these parameters are too short, as [`Study::too_short`].
    fn too_short(_params: &Params, _on: On) -> Vec<TooShort> {
        Vec::new()
    }
    /// Why a run with these parameters can never give a result, if so.
    fn refuse(_ctx: &RunContext) -> Result<(), String> {
        Ok(())
    }
    /// The most tasks that a simulated run has at once, but for those of the machine itself.
    fn tasks(_params: &Params, cpus: usize) -> u64 {
        4 * cpus as u64
    }
    /// Runs one arm with one seed.
    fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError>;
}

/// An experiment with the names and defaults of its file.
#[derive(Debug)]
pub struct Shipped<E> {
    name: &'static str,
    summary: &'static str,
    profile: &'static str,
    params: &'static [ParamSpec],
    params_quick_large: &'static [ParamSpec],
    params_on_linux: &'static [ParamSpec],
    arms: &'static [ArmSpec],
    choices: Vec<Arm>,
    experiment: std::marker::PhantomData<E>,
}

impl<E: Experiment> Shipped<E> {
    /// The study that a `study.toml` describes: its name, its arms and their names, its defaults.
    pub fn of_file(source: Source) -> Result<Self, FileError> {
        let file = StudyFile::parse(source, E::CHOICES)?;
        profile::builtin_file(&file.profile).map_err(|why| file.error(why))?;
        let mut params = file.params(E::params())?;
        let params_quick_large = file.params_quick_large(&params)?;
        let mut params_on_linux = file.params_on_linux(&params)?;
        params.extend(machine_params());
        params_on_linux.push(live::watch_param());
        let known = |name: &&&str| params.iter().any(|spec: &ParamSpec| spec.name == **name);
        assert_eq!(E::NOT_LIVE.iter().find(|name| !known(name)), None, "no such parameter");
        // The registry wants names that live as long as the program, which these do.
        let (mut arms, mut choices) = (Vec::new(), Vec::new());
        for arm in file.arms {
            arms.push(ArmSpec { name: arm.name.leak(), help: arm.help.leak() });
            choices.push(arm.arm);
        }
        Ok(Self {
            name: source.study,
            summary: file.summary.leak(),
            profile: file.profile.leak(),
            params: params.leak(),
            params_quick_large: params_quick_large.leak(),
            params_on_linux: params_on_linux.leak(),
            arms: arms.leak(),
            choices,
            experiment: std::marker::PhantomData,
        })
    }
}

impl<E: Experiment + Sync> Study for Shipped<E> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn summary(&self) -> &'static str {
        self.summary
    }
    fn params(&self) -> &'static [ParamSpec] {
        self.params
    }
    fn arms(&self) -> &'static [ArmSpec] {
        self.arms
    }
    fn with_arms(&self, wanted: &[PolicyArm]) -> Result<&'static dyn Study, PolicyError> {
        let taken: Vec<&str> = self.arms.iter().map(|arm| arm.name).collect();
        let (mut arms, mut choices) = (self.arms.to_vec(), self.choices.clone());
        for (arm, name) in wanted.iter().zip(PolicyArm::names(wanted, self.name, &taken)?) {
            choices.push(arm.on(&self.choices[0], E::CHOICES)?);
            arms.push(ArmSpec { name: name.leak(), help: format!("--policy {arm}").leak() });
        }
        // As those of the file, they live as long as the program: a call makes few.
        Ok(Box::leak(Box::new(Self { arms: arms.leak(), choices, ..*self })))
    }
    fn metrics(&self) -> &'static [MetricSpec] {
        E::METRICS
    }
    fn params_quick_large(&self) -> &'static [ParamSpec] {
        self.params_quick_large
    }
    fn params_on(&self, on: On) -> &'static [ParamSpec] {
        if on == On::Linux { self.params_on_linux } else { self.params }
    }
    fn takes(&self, param: &str, on: On) -> bool {
        on != On::Linux || !E::NOT_LIVE.contains(&param)
    }
    /// The live kernel has the policies of Linux and no others.
    fn has_arm(&self, arm: ArmId, on: On) -> bool {
        on != On::Linux || self.choices[arm.0].is_stock()
    }
    fn policies(&self, arm: ArmId, params: &Params, on: On) -> BTreeMap<String, String> {
        let of_params = |key: &str| params.values().get(key).map(ToString::to_string);
        self.choices[arm.0].in_force(E::CHOICES, on, of_params)
    }
    fn window_ns(&self, params: &Params) -> Option<u64> {
        E::window_ns(params)
    }
    fn defaults(&self) -> Defaults {
        let live = self.choices.iter().any(Arm::is_stock);
        Defaults {
            machines: if live {
                &[On::Sim, On::Threads, On::Linux]
            } else {
                &[On::Sim, On::Threads]
            },
            profile: self.profile,
            cpus: E::CPUS,
            hz: 1000,
        }
    }
    fn too_short(&self, params: &Params, on: On) -> Vec<TooShort> {
        E::too_short(params, on)
    }
    fn remarks(&self, params: &Params, on: On) -> Vec<String> {
        E::remarks(params, on)
    }
    fn refuse(&self, ctx: &RunContext) -> Result<(), String> {
        E::refuse(ctx)
    }
    fn tasks(&self, params: &Params, cpus: usize) -> u64 {
        E::tasks(params, cpus)
    }
    fn run(&self, ctx: &RunContext, arm: ArmId, seed: u64) -> Result<SeedResult, StudyError> {
        let run = |ctx: &RunContext| E::run(ctx, &self.choices[arm.0], seed);
        let both = ctx.on == On::Sim && ctx.params.choice("sched") == "both";
        if both { schedules::both(ctx, run) } else { run(ctx) }
    }
}

/// The parameters of every simulated machine.
fn machine_params() -> [ParamSpec; 3] {
    [
        ParamSpec::real(
            "cost_scale",
            Unit::One,
            1.0,
            [0.1, 10.0],
            "every cost of the profile times this (sim)",
        ),
        ParamSpec::choice(
            "sched",
            "lazy",
            &["lazy", "naive", "both"],
            "how the simulator orders CPUs; the results are the same, which `both` checks",
        ),
        ParamSpec::count(
            "alloc_fail_1024",
            Unit::One,
            0,
            [0, 1024],
            "injected allocation failures, in 1/1024 (sim)",
        ),
    ]
}

/// Sets up a simulated machine as the parameters say that every one has.
pub(crate) fn set_machine(params: &Params, config: &mut SimConfig) {
    config.profile = config.profile.scaled_costs(params.real("cost_scale"));
    config.policy = match params.choice("sched") {
        "naive" => Policy::Naive,
        _ => Policy::Lazy,
    };
    config.faults.alloc_fail_1024 = params.count("alloc_fail_1024") as u32;
}
