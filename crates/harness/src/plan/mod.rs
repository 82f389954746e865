//! Plans: a request is checked as a whole before anything starts.

mod arms;
mod costs;
mod machine;
mod needs;
mod params;
mod planner;
mod request;
mod single;

use std::collections::BTreeMap;
use std::sync::Arc;

use mmscale_document::{self as record, HOLD_OPTION, ParamValue, Target};
use mmscale_mm::versions::Version;
use mmscale_sim::HoldScale;
use mmscale_sim::profile::{Profile, Shape};

pub use costs::{CostError, Costs, CostsSet, costs_of, with_costs};
pub use machine::MAX_CPUS;
use machine::Usual;
pub(crate) use machine::on_kernel;
pub(crate) use needs::fit_together;
pub use needs::fits_host;
pub use planner::{SEEDS, plan};
pub use request::{CallError, Origin, Request};

use crate::host::host_cpus;
use crate::param::{Length, Params};
use crate::study::{
    ArmId, Checks, Interrupt, Progress, RunContext, Study, Timelines, Trails, versions,
};

/// The runs behind one document: one study, one machine, one set of parameters.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The study.
    pub study: Study,
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
    /// The number of seeds after which the runs end if every headline is settled.
    pub look: Option<usize>,
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
    /// Returns the largest number of runs: arms times seeds.
    pub fn runs(&self) -> usize {
        self.arms.len() * self.seeds.len()
    }

    /// Returns the smallest number of runs: those up to a first look.
    pub fn least_runs(&self) -> usize {
        self.arms.len() * self.look.unwrap_or(self.seeds.len())
    }

    /// Returns the number of concurrent runs.
    pub(crate) fn at_once(&self) -> usize {
        match self.on {
            Target::Sim => host_cpus().min(self.runs()),
            Target::Threads | Target::Live => 1,
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
        own.chain(costs::shown(&self.costs))
            .chain(self.hold_scale.map(|scale| (HOLD_OPTION.to_owned(), costs::shown_hold(scale))))
            .collect()
    }

    /// Returns the remarks for the report, with a warning if a real machine has fewer CPUs than
    /// requested.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.study.remarks(&self.params, self.on);
        remarks.extend(self.linux.map(versions::remark));
        if self.on == Target::Live {
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
        let in_turn = specs.iter().filter(|spec| !spec.in_turn().is_empty());
        let names: Vec<&str> = in_turn.map(|spec| &*spec.name).collect();
        Params::defaults(specs, Length::Full).without(&names).values().clone()
    }
}
