//! Executes a plan: every arm with every seed.

mod assemble;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mmscale_document::{Document, FailureRecord, Target};
use thiserror::Error;

use crate::plan::Plan;
use crate::study::{
    ArmId, Interrupt, Progress, ProgressSink, RunContext, RunEvent, SeedResult, StudyError,
    TooShort,
};
use crate::timelines::Timelines;

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

/// The jobs that were not started yet, and the host time of finished ones.
struct Queue {
    /// Indices into the list of all jobs.
    left: Vec<usize>,
    took: BTreeMap<ArmId, Duration>,
    on: Target,
}

impl Queue {
    fn new(jobs: usize, on: Target) -> Self {
        Self { left: (0..jobs).collect(), took: BTreeMap::new(), on }
    }
    /// Returns the next job. On the simulated machine this is a job of the arm whose last run took
    /// longest, so that no long job starts last. Among arms that have not run yet, and on real
    /// machines, it is the first job.
    fn next(&mut self, jobs: &[Job]) -> Option<usize> {
        let cost = |&run: &usize| match self.on {
            Target::Sim => self.took.get(&jobs[run].arm).copied().unwrap_or(Duration::MAX),
            Target::Threads | Target::Linux => Duration::MAX,
        };
        let longest = self.left.iter().map(cost).max()?;
        let at = self.left.iter().position(|run| cost(run) == longest)?;
        Some(self.left.remove(at))
    }
    fn done(&mut self, arm: ArmId, took: Duration) {
        self.took.insert(arm, took);
    }
}

type JobResult = Option<Result<SeedResult, StudyError>>;

/// Executes all arms and seeds of a plan and assembles their document.
///
/// On the simulated machine, as many runs execute concurrently as the host has CPUs, and those of
/// the slowest arm start first. On real machines runs execute one at a time, and the arms alternate
/// (A B A B), so that slow changes of the host affect all arms alike. Results do not depend on
/// concurrency. A run that fails does not affect others: the document names it and has the results
/// of the others. If all runs fail, there is no document.
pub fn execute(
    plan: &Plan,
    interrupt: &Interrupt,
    sink: &Arc<dyn ProgressSink>,
) -> Result<Document, RunError> {
    let job = |seed: u64| plan.arms.iter().map(move |&arm| Job { arm, seed });
    let jobs: Vec<Job> = plan.seeds.iter().flat_map(|&seed| job(seed)).collect();
    let outcomes: Mutex<Vec<JobResult>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let queue = Mutex::new(Queue::new(jobs.len(), plan.on));
    // A poisoned lock still protects a consistent queue, because each change is one step.
    let queue = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || {
        while !interrupt.is_set() {
            let Some(run) = queue().next(&jobs) else { break };
            let (job, begin) = (jobs[run], Instant::now());
            sink.event(RunEvent::Started { run, arm: job.arm, seed: job.seed });
            let outcome = run_one(plan, job, interrupt, Progress::new(Arc::clone(sink), run));
            queue().done(job.arm, begin.elapsed());
            if outcome.is_ok() {
                sink.event(RunEvent::Finished { run });
            }
            // A poisoned lock still protects consistent outcomes: each is stored in one step.
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes[run] = Some(outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 1..plan.at_once() {
            scope.spawn(worker);
        }
        worker();
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    document(plan, &jobs, outcomes, interrupt)
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
    jobs: &[Job],
    outcomes: Vec<JobResult>,
    interrupt: &Interrupt,
) -> Result<Document, RunError> {
    let name = |arm: ArmId| plan.study.arms()[arm.0].name.to_owned();
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    for (&job, outcome) in jobs.iter().zip(outcomes) {
        match outcome {
            Some(Ok(result)) => results.push((job, result)),
            Some(Err(why)) if !interrupt.is_set() => failed.push((job, why)),
            Some(Err(_)) | None => {}
        }
    }
    let study = plan.study.name().to_owned();
    if interrupt.is_set() && results.len() < jobs.len() {
        return Err(RunError::Interrupted { study, done: results.len(), all: jobs.len() });
    }
    if results.is_empty() && !failed.is_empty() {
        let (Job { arm, seed }, source) = failed.swap_remove(0);
        let (arm, on, others) = (name(arm), plan.on, failed.len());
        return Err(RunError::Failed { study, arm, seed, on, source, others });
    }
    let failures = failed.into_iter().map(|(Job { arm, seed }, why)| FailureRecord {
        arm: name(arm),
        seed,
        why: why.to_string(),
    });
    Ok(assemble::document(plan, &results, failures.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the order in which three seeds of two arms run if the second arm takes longer.
    fn order(on: Target) -> Vec<(usize, u64)> {
        let arms = |seed| [0, 1].map(|arm| Job { arm: ArmId(arm), seed });
        let jobs: Vec<Job> = (1..=3).flat_map(arms).collect();
        let mut queue = Queue::new(jobs.len(), on);
        let next = || {
            let job = jobs[queue.next(&jobs)?];
            queue.done(job.arm, Duration::from_secs(1 + job.arm.0 as u64));
            Some((job.arm.0, job.seed))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn simulated_runs_that_take_long_are_not_left_for_the_end() {
        assert_eq!(order(Target::Sim), [(0, 1), (1, 1), (1, 2), (1, 3), (0, 2), (0, 3)]);
    }

    #[test]
    fn on_real_machines_arms_take_turns() {
        let turns = [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)];
        assert_eq!(
            (order(Target::Threads), order(Target::Linux)),
            (turns.to_vec(), turns.to_vec())
        );
    }
}
