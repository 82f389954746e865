//! Runs a plan: every arm with every seed.

mod assemble;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mmscale_document::{Document, FailureRecord, On};
use thiserror::Error;

use crate::plan::Plan;
use crate::study::{
    ArmId, Interrupt, Progress, ProgressSink, RunEvent, SeedResult, StudyError, TooShort,
};

/// Why a plan gave no document.
#[derive(Debug, Error)]
pub enum RunError {
    /// Somebody asked to stop.
    #[error("interrupted: {done} of {all} runs of `{study}` were done; it leaves no result")]
    Interrupted {
        /// The study.
        study: String,
        /// Runs that had ended well.
        done: usize,
        /// Runs that were to be done.
        all: usize,
    },
    /// A run failed, and no other of the plan has a result.
    #[error("study `{study}`, arm `{arm}`, seed {seed} on {on}: {source}{}", and_others(*others))]
    Failed {
        /// The study.
        study: String,
        /// The arm.
        arm: String,
        /// The seed.
        seed: u64,
        /// The machine.
        on: On,
        /// What went wrong.
        #[source]
        source: StudyError,
        /// How many others failed too.
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

/// The jobs that were not started yet, and how long finished ones took the host.
struct Queue {
    /// Places in the list of all jobs.
    left: Vec<usize>,
    took: BTreeMap<ArmId, Duration>,
    on: On,
}

impl Queue {
    fn new(jobs: usize, on: On) -> Self {
        Self { left: (0..jobs).collect(), took: BTreeMap::new(), on }
    }
    /// The next job. On the simulated machine those of the arm whose last run took longest, so that
    /// no long one is left alone at the end; of arms that have not run, and on real machines of
    /// all, the first.
    fn next(&mut self, jobs: &[Job]) -> Option<usize> {
        let cost = |&run: &usize| match self.on {
            On::Sim => self.took.get(&jobs[run].arm).copied().unwrap_or(Duration::MAX),
            On::Threads | On::Linux => Duration::MAX,
        };
        let longest = self.left.iter().map(cost).max()?;
        let at = self.left.iter().position(|run| cost(run) == longest)?;
        Some(self.left.remove(at))
    }
    fn done(&mut self, arm: ArmId, took: Duration) {
        self.took.insert(arm, took);
    }
}

type Outcome = Option<Result<SeedResult, StudyError>>;

/// Runs all arms and seeds of a plan and assembles their record.
///
/// On the simulated machine as many runs go on at once as the host has CPUs, and those of the arm
/// that takes longest are begun first. On real ones it is one
/// at a time, and the arms take turns (A B A B), so that slow changes of the host meet all arms
/// alike. Results do not depend on how many go on at once. A run that fails takes no other with
/// it: the document names it and has the results of the others. If all runs fail there is none.
pub fn execute(
    plan: &Plan,
    interrupt: &Interrupt,
    sink: &Arc<dyn ProgressSink>,
) -> Result<Document, RunError> {
    let job = |seed: u64| plan.arms.iter().map(move |&arm| Job { arm, seed });
    let jobs: Vec<Job> = plan.seeds.iter().flat_map(|&seed| job(seed)).collect();
    let outcomes: Mutex<Vec<Outcome>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let queue = Mutex::new(Queue::new(jobs.len(), plan.on));
    // A poisoned lock still holds a whole queue: nothing in it is left half done.
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
            // A poisoned lock still holds whole outcomes: each is stored in one step.
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

/// Runs one arm with one seed, and nothing beside it.
pub fn run_alone(
    plan: &Plan,
    arm: ArmId,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<SeedResult, RunError> {
    run_one(plan, Job { arm, seed }, interrupt, Progress::default()).map_err(|source| {
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
    let ctx = plan.context(interrupt, progress);
    // A panic is a bug, in the memory manager under study or in ours. It must not take the other
    // runs' threads down unseen, and nothing of the failed run is looked at again.
    let mut result = catch_unwind(AssertUnwindSafe(|| plan.study.run(&ctx, job.arm, job.seed)))
        .unwrap_or_else(|panic| Err(StudyError::Machine(panic_text(panic.as_ref()))))?;
    for TooShort { metrics, .. } in plan.study.too_short(&plan.params, plan.on) {
        result.metrics.retain(|name, _| !metrics.contains(name));
        result.per_cpu.retain(|name, _| !metrics.contains(&name.as_str()));
    }
    for (name, value) in &result.metrics {
        if !value.is_finite() {
            return Err(StudyError::Machine(format!("metric {name} came out as {value:?}")));
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
    format!("it panicked: {text}")
}

/// The record of what ran; the error if it was interrupted, or if nothing has a result.
fn document(
    plan: &Plan,
    jobs: &[Job],
    outcomes: Vec<Outcome>,
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

    /// In which order three seeds of two arms run, when the second takes longer.
    fn order(on: On) -> Vec<(usize, u64)> {
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
        assert_eq!(order(On::Sim), [(0, 1), (1, 1), (1, 2), (1, 3), (0, 2), (0, 3)]);
    }

    #[test]
    fn on_real_machines_arms_take_turns() {
        let turns = [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)];
        assert_eq!((order(On::Threads), order(On::Linux)), (turns.to_vec(), turns.to_vec()));
    }
}
