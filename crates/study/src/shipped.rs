//! A study that a `study.toml` describes: what all of the shipped ones are.
//!
//! The file gives names, arms and defaults; an [`Experiment`] gives what is done and measured.

use crate::file::StudyFile;
use crate::live;
use crate::param::{ParamSpec, Params, Unit};
use crate::schedules;
use crate::study::{
    ArmId, ArmSpec, Defaults, MetricSpec, RunContext, SeedResult, Study, StudyError,
};
use mmscale_record::On;
use mmscale_sim::{Policy, SimConfig};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// What a study does and measures.
pub trait Experiment: Debug + 'static {
    /// What an arm chooses: the policies, and what the workload does differently.
    type Arm: DeserializeOwned + Debug + Send + Sync;
    /// CPUs of a simulated machine unless somebody says otherwise.
    const CPUS: usize;
    /// Every figure, in the order in which tables show them.
    const METRICS: &'static [MetricSpec];

    /// Those of its parameters that mean nothing on the live kernel.
    const NOT_LIVE: &'static [&'static str];

    /// Its parameters, but those that every simulated machine has ([`set_machine`]).
    fn params() -> Vec<ParamSpec>;
    /// What a reader of its report must know.
    fn remarks(params: &Params, on: On) -> Vec<String>;
    /// Whether the live kernel does what the arm asks for. No arm is run there otherwise.
    fn is_live(_arm: &Self::Arm) -> bool {
        false
    }
    /// Runs one arm with one seed.
    fn run(ctx: &RunContext, arm: &Self::Arm, seed: u64) -> Result<SeedResult, StudyError>;
}

/// An experiment with the names and defaults of its file.
#[derive(Debug)]
pub struct Shipped<E: Experiment> {
    name: &'static str,
    summary: &'static str,
    profile: &'static str,
    params: &'static [ParamSpec],
    params_on_linux: &'static [ParamSpec],
    arms: &'static [ArmSpec],
    choices: Vec<E::Arm>,
}

impl<E: Experiment> Shipped<E> {
    /// The study that a `study.toml` describes: its name, its arms and their names, its defaults.
    ///
    /// # Panics
    /// On a file that makes no sense: the shipped ones are part of the program.
    pub fn of_file(text: &str) -> Self {
        let file = StudyFile::<E::Arm>::parse(text);
        let mut params = file.params(E::params());
        let mut params_on_linux = file.params_on_linux(&params);
        params.extend(machine_params());
        params_on_linux.push(live::watch_param());
        let known = |name: &&&str| params.iter().any(|spec: &ParamSpec| spec.name == **name);
        assert_eq!(E::NOT_LIVE.iter().find(|name| !known(name)), None, "no such parameter");
        // The registry wants names that live as long as the program, which these do.
        let (mut arms, mut choices) = (Vec::new(), Vec::new());
        for arm in file.arm {
            arms.push(ArmSpec { name: arm.name.leak(), help: arm.help.leak() });
            choices.push(arm.choice);
        }
        Self {
            name: file.name.leak(),
            summary: file.summary.leak(),
            profile: file.profile.leak(),
            params: params.leak(),
            params_on_linux: params_on_linux.leak(),
            arms: arms.leak(),
            choices,
        }
    }
}

impl<E: Experiment> Study for Shipped<E> {
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
    fn metrics(&self) -> &'static [MetricSpec] {
        E::METRICS
    }
    fn params_on(&self, on: On) -> &'static [ParamSpec] {
        if on == On::Linux { self.params_on_linux } else { self.params }
    }
    fn takes(&self, param: &str, on: On) -> bool {
        on != On::Linux || !E::NOT_LIVE.contains(&param)
    }
    fn has_arm(&self, arm: ArmId, on: On) -> bool {
        on != On::Linux || E::is_live(&self.choices[arm.0])
    }
    fn defaults(&self) -> Defaults {
        let live = self.choices.iter().any(E::is_live);
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
    fn remarks(&self, params: &Params, on: On) -> Vec<String> {
        E::remarks(params, on)
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
