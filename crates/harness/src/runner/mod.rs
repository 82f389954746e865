//! Executes plans: every arm with every seed.

mod assemble;
mod gathered;
mod look;
mod pool;

pub use gathered::gathered;

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{slice, thread};

use mmscale_document::{Document, FailureRecord, Target};
use thiserror::Error;

use self::pool::{Ended, Pool, is_hopeless};
use crate::host::host_cpus;
use crate::plan::{Plan, fit_together};
use crate::study::{
    ArmId, Interrupt, Progress, ProgressSink, RunContext, SeedResult, StudyError, Timelines,
    TooShort,
};

/// Follows the reason of a hopeless arm's first seed.
const GIVEN_UP: &str = " (this holds for every seed, so the arm has no other runs)";

/// Why a plan gave no document.
#[derive(Debug, Error)]
pub enum RunError {
    /// The user interrupted the call.
    #[error("interrupted after {done} of {all} runs of `{study}`; no result was written")]
    Interrupted {
        /// The name of the study.
        study: String,
        /// Number of runs that had succeeded.
        done: usize,
        /// Number of runs of the plan.
        all: usize,
    },
    /// A run failed, and the plan has no result.
    #[error("study `{study}`, arm `{arm}`, seed {seed} on {on}: {source}{}", and_others(*others))]
    Failed {
        /// The name of the study.
        study: String,
        /// The name of the arm.
        arm: String,
        /// The seed of the run.
        seed: u64,
        /// The machine.
        on: Target,
        /// The error of the run.
        #[source]
        source: StudyError,
        /// Number of other runs that failed, too.
        others: usize,
    },
}

fn and_others(failed: usize) -> String {
    match failed {
        0 => String::new(),
        1 => " (the other run failed too)".to_owned(),
        n => format!(" (the {n} other runs failed too)"),
    }
}

/// One run of a plan.
#[derive(Clone, Copy)]
struct Job {
    arm: ArmId,
    seed: u64,
}

type JobResult = Option<Result<SeedResult, StudyError>>;

/// Executes all arms and seeds of a plan and assembles their document, as [`execute_each`] does.
pub fn execute(
    plan: &Plan,
    interrupt: &Interrupt,
    sink: &Arc<dyn ProgressSink>,
) -> Result<Document, RunError> {
    let watch = |_| Arc::clone(sink);
    let only =
        execute_each(slice::from_ref(plan), interrupt, &watch, |_, of| ControlFlow::Break(of));
    only.break_value().expect("the only plan has a result")
}

/// Executes plans and passes the document of each to `each`, with its place, in their order.
///
/// On the simulated machine, as many runs execute concurrently as the host has CPUs. Within a plan,
/// those of the slowest arm start first, and runs of the next plan start while its last ones are in
/// progress, if the host has the memory for that. On real machines runs execute one at a time, and
/// the arms alternate (A B A B), so that slow changes of the host affect all arms alike. Results do
/// not depend on concurrency, and neither does the number of seeds where a first look decides it
/// ([`Plan::look`]). A run that fails does not affect others: the document names it and
/// has the results of the others. If all runs of a plan fail, it has no document. An arm whose
/// first seed is [hopeless](StudyError::Hopeless) has no other runs.
///
/// `watch` returns the receiver of a plan's progress when the plans before it are complete. It is
/// dropped before the document is passed on. If `each` breaks, the runs in progress are
/// interrupted.
pub fn execute_each<B>(
    plans: &[Plan],
    interrupt: &Interrupt,
    watch: &dyn Fn(usize) -> Arc<dyn ProgressSink>,
    mut each: impl FnMut(usize, Result<Document, RunError>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let simulated = plans.iter().all(|plan| plan.on == Target::Sim);
    let size = if simulated && fit_together(plans) { plans.len().max(1) } else { 1 };
    for (number, together) in plans.chunks(size).enumerate() {
        let first = number * size;
        let watch = |place| watch(first + place);
        execute_pool(together, interrupt, &watch, |at, of| each(first + at, of))?;
    }
    ControlFlow::Continue(())
}

/// Returns the number of runs of these plans that execute concurrently.
pub fn workers(plans: &[Plan]) -> usize {
    let runs: usize = plans.iter().map(Plan::runs).sum();
    let simulated = plans.iter().all(|plan| plan.on == Target::Sim);
    if simulated { host_cpus().min(runs) } else { 1 }
}

/// Executes plans whose runs overlap, or one on a real machine.
fn execute_pool<B>(
    plans: &[Plan],
    interrupt: &Interrupt,
    watch: &dyn Fn(usize) -> Arc<dyn ProgressSink>,
    mut each: impl FnMut(usize, Result<Document, RunError>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let pool = Pool::new(plans, interrupt);
    let simulated = plans.iter().all(|plan| plan.on == Target::Sim);
    thread::scope(|scope| {
        for _ in 0..if simulated { workers(plans) } else { 0 } {
            scope.spawn(|| pool.work());
        }
        for (place, plan) in plans.iter().enumerate() {
            pool.show(place, watch(place));
            if !simulated {
                // On this thread: processes of a run end with the thread that has started them.
                pool.work();
            }
            let flow = each(place, document(plan, pool.wait(place), interrupt));
            if flow.is_break() && place + 1 < plans.len() {
                interrupt.set();
            }
            flow?;
        }
        ControlFlow::Continue(())
    })
}

/// Runs one arm with one seed, without concurrent runs.
pub fn run_alone(
    plan: &Plan,
    arm: ArmId,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<SeedResult, RunError> {
    run_recorded(plan, arm, seed, &Timelines::default(), interrupt)
}

/// Runs one arm with one seed, without concurrent runs, and with a timeline.
pub(crate) fn run_recorded(
    plan: &Plan,
    arm: ArmId,
    seed: u64,
    timelines: &Timelines,
    interrupt: &Interrupt,
) -> Result<SeedResult, RunError> {
    let ctx = plan.context(interrupt, Progress::default());
    let ctx = RunContext { timelines: timelines.clone(), ..ctx };
    run_in(plan, Job { arm, seed }, &ctx).map_err(|source| {
        let study = plan.study.name().to_owned();
        let arm = plan.study.arms()[arm.0].name.to_owned();
        match source {
            StudyError::Interrupted => RunError::Interrupted { study, done: 0, all: 1 },
            source => RunError::Failed { study, arm, seed, on: plan.on, source, others: 0 },
        }
    })
}

fn run_one(
    plan: &Plan,
    job: Job,
    interrupt: &Interrupt,
    progress: Progress,
) -> Result<SeedResult, StudyError> {
    run_in(plan, job, &plan.context(interrupt, progress))
}

fn run_in(plan: &Plan, job: Job, ctx: &RunContext) -> Result<SeedResult, StudyError> {
    // A panic is a bug in the memory manager under study or in mmscale. It must not end the other
    // runs' threads unseen. The state of the failed run is not used again.
    let mut result = catch_unwind(AssertUnwindSafe(|| plan.study.run(ctx, job.arm, job.seed)))
        .unwrap_or_else(|panic| Err(StudyError::Machine(panic_text(panic.as_ref()))))?;
    for TooShort { metrics, .. } in plan.study.too_short(&plan.params, plan.on) {
        result.metrics.retain(|name, _| !metrics.contains(name));
        result.per_cpu.retain(|name, _| !metrics.contains(&name.as_str()));
    }
    for (name, value) in &result.metrics {
        if !value.is_finite() {
            return Err(StudyError::Machine(format!(
                "metric {name} is {value:?}, which is not a finite number"
            )));
        }
    }
    for span in &mut result.spans {
        span.seed = job.seed;
    }
    Ok(result)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("panic: {text}")
}

/// Returns the document. Fails if the plan was interrupted or if no run has a result.
fn document(
    plan: &Plan,
    Ended { jobs, outcomes, unsettled }: Ended,
    interrupt: &Interrupt,
) -> Result<Document, RunError> {
    let name = |arm: ArmId| plan.study.arms()[arm.0].name.to_owned();
    let all: Vec<(Job, JobResult)> = jobs.into_iter().zip(outcomes).collect();
    let is_hopeless = |(job, of): &&(Job, JobResult)| {
        of.as_ref().is_some_and(|of| is_hopeless(plan, job.seed, of))
    };
    let hopeless: Vec<ArmId> = all.iter().filter(is_hopeless).map(|(job, _)| job.arm).collect();
    // Those that ran next to the first one depend on the number of workers, and do not count.
    let counts = |job: Job| job.seed == plan.seeds[0] || !hopeless.contains(&job.arm);
    let all: Vec<_> = all.into_iter().filter(|(job, _)| counts(*job)).collect();
    let runs = all.len();
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    for (job, outcome) in all {
        match outcome {
            Some(Ok(result)) => results.push((job, result)),
            Some(Err(why)) if !interrupt.is_set() => failed.push((job, why)),
            Some(Err(_)) | None => {}
        }
    }
    let study = plan.study.name().to_owned();
    if interrupt.is_set() && results.len() < runs {
        return Err(RunError::Interrupted { study, done: results.len(), all: runs });
    }
    if results.is_empty() && !failed.is_empty() {
        let (Job { arm, seed }, source) = failed.swap_remove(0);
        let (arm, on, others) = (name(arm), plan.on, failed.len());
        return Err(RunError::Failed { study, arm, seed, on, source, others });
    }
    let failures = failed.into_iter().map(|(Job { arm, seed }, why)| {
        let rest = if hopeless.contains(&arm) { GIVEN_UP } else { "" };
        FailureRecord { arm: name(arm), seed, why: format!("{why}{rest}") }
    });
    Ok(assemble::document(plan, &results, failures.collect(), unsettled))
}
