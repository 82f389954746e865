//! A workload without its types.

use super::{Workload, drive, schedules};
use crate::param::{ParamSet, Params};
use crate::study::{Arm, ArmId, ErasedWorkload, RunContext, SeedResult, StudyError, TooShort};
use mmscale_document::Target;
use mmscale_script::Script;
use std::marker::PhantomData;
use std::sync::Arc;

/// A workload, with the script that it runs if it is the workload of scripts.
pub(crate) struct Typed<W> {
    script: Option<Arc<Script>>,
    workload: PhantomData<fn() -> W>,
}

impl<W: Workload> Typed<W> {
    pub(crate) fn new(script: Option<Arc<Script>>) -> Self {
        Self { script, workload: PhantomData }
    }

    /// Returns the parameters as the workload reads them.
    fn read(&self, params: &Params) -> W::Params {
        W::Params::read(&params.of_script(self.script.clone()))
    }

    /// Returns the inputs of a run as the workload reads them.
    fn context(&self, ctx: &RunContext) -> RunContext {
        RunContext { params: ctx.params.of_script(self.script.clone()), ..ctx.clone() }
    }
}

impl<W: Workload> ErasedWorkload for Typed<W> {
    fn run(
        &self,
        ctx: &RunContext,
        _arm: ArmId,
        choices: &Arm,
        seed: u64,
    ) -> Result<SeedResult, StudyError> {
        let ctx = &self.context(ctx);
        if ctx.on == Target::Sim && ctx.params.choice("sched") == "both" {
            schedules::both(ctx, |ctx| drive::run::<W>(ctx, choices, seed))
        } else {
            drive::run::<W>(ctx, choices, seed)
        }
    }
    fn refuse(&self, ctx: &RunContext) -> Result<(), String> {
        drive::refuse::<W>(&self.context(ctx))
    }
    fn too_short(&self, params: &Params, on: Target) -> Vec<TooShort> {
        W::too_short(&self.read(params), on)
    }
    fn remarks(&self, params: &Params, on: Target) -> Vec<String> {
        W::remarks(&self.read(params), on)
    }
    fn tasks(&self, params: &Params, cpus: usize) -> u64 {
        W::tasks(&self.read(params), cpus)
    }
}
