//! The jobs of several plans and their outcomes.
//!
//! Workers take jobs of the first plan that has any left. While its last ones run, other workers
//! begin with the next plan. One thread waits for each plan in turn.
//!
//! A plan with a first look has at first the jobs up to it. The look is taken when all of them have
//! ended, so that it does not depend on their order, and may add the others.
//!
//! If the first seed of an arm is hopeless, its other jobs are dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mmscale_document::{Target, Unsettled};

use super::look::unsettled;
use super::{Job, JobResult, run_one};
use crate::plan::Plan;
use crate::study::{ArmId, Interrupt, Progress, ProgressSink, RunEvent, SeedResult, StudyError};

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
            Target::Threads | Target::Live => Duration::MAX,
        };
        let longest = self.left.iter().map(cost).max()?;
        let at = self.left.iter().position(|run| cost(run) == longest)?;
        Some(self.left.remove(at))
    }
    fn done(&mut self, arm: ArmId, took: Duration) {
        self.took.insert(arm, took);
    }
}

/// The progress of a plan. It is held back until the plans before it are complete.
struct Held(Mutex<Shown>);

enum Shown {
    /// Plans before it run; the events so far.
    Later(Vec<RunEvent>),
    Now(Arc<dyn ProgressSink>),
    /// The plan is complete.
    Over,
}

impl Held {
    /// Passes all events on to `sink`, first those so far.
    fn show(&self, sink: Arc<dyn ProgressSink>) {
        let mut shown = self.lock();
        if let Shown::Later(events) = &*shown {
            events.iter().for_each(|&event| sink.event(event));
        }
        *shown = Shown::Now(sink);
    }
    fn end(&self) {
        *self.lock() = Shown::Over;
    }
    fn lock(&self) -> MutexGuard<'_, Shown> {
        // A poisoned lock still protects a consistent state: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgressSink for Held {
    fn event(&self, event: RunEvent) {
        match (&mut *self.lock(), event) {
            (Shown::Now(sink), event) => sink.event(event),
            (Shown::Over, _) | (Shown::Later(_), RunEvent::Advanced { .. }) => {}
            (Shown::Later(events), event) => events.push(event),
        }
    }
}

/// A plan and what its jobs gave so far.
struct Work<'a> {
    plan: &'a Plan,
    jobs: Vec<Job>,
    queue: Queue,
    running: usize,
    outcomes: Vec<JobResult>,
    /// Jobs that run if the first look settles too little; none after it, or without one.
    later: Vec<Job>,
    /// Headlines that the first look left unsettled. `None` before it, or without one.
    unsettled: Option<Vec<Unsettled>>,
    /// Arms whose first seed was hopeless.
    hopeless: Vec<ArmId>,
    progress: Arc<Held>,
}

impl<'a> Work<'a> {
    fn new(plan: &'a Plan) -> Self {
        let job = |seed: u64| plan.arms.iter().map(move |&arm| Job { arm, seed });
        let mut jobs: Vec<Job> = plan.seeds.iter().flat_map(|&seed| job(seed)).collect();
        let later = jobs.split_off(plan.least_runs().min(jobs.len()));
        Self {
            plan,
            queue: Queue::new(jobs.len(), plan.on),
            running: 0,
            outcomes: jobs.iter().map(|_| None).collect(),
            later,
            unsettled: None,
            hopeless: vec![],
            progress: Arc::new(Held(Mutex::new(Shown::Later(Vec::new())))),
            jobs,
        }
    }

    /// Records the end of a job, and returns what else that ends or decides.
    fn end(&mut self, run: usize, outcome: Result<SeedResult, StudyError>) -> Vec<RunEvent> {
        let Job { arm, seed } = self.jobs[run];
        if is_hopeless(self.plan, seed, &outcome) {
            self.hopeless.push(arm);
        }
        self.outcomes[run] = Some(outcome);
        let mut events = self.drop_hopeless();
        if let Some(runs) = self.look() {
            events.push(RunEvent::Decided { runs });
            events.extend(self.drop_hopeless());
        }
        events
    }

    /// Ends the jobs of hopeless arms that were not started.
    fn drop_hopeless(&mut self) -> Vec<RunEvent> {
        let of_hopeless = |run: &usize| self.hopeless.contains(&self.jobs[*run].arm);
        let (dropped, left) =
            self.queue.left.iter().partition::<Vec<usize>, _>(|run| of_hopeless(run));
        self.queue.left = left;
        for &run in &dropped {
            self.outcomes[run] = Some(Err(StudyError::Interrupted));
        }
        dropped.into_iter().map(|run| RunEvent::Failed { run }).collect()
    }

    /// Takes the first look, if all jobs up to it have ended, and returns the number of jobs that
    /// it leads to.
    fn look(&mut self) -> Option<usize> {
        if self.later.is_empty() || self.outcomes.iter().any(Option::is_none) {
            return None;
        }
        let done = self.jobs.iter().zip(&self.outcomes);
        let done = done.filter(|(job, _)| !self.hopeless.contains(&job.arm));
        let results = done.filter_map(|(&job, of)| Some((job, of.as_ref()?.as_ref().ok()?)));
        let open = unsettled(self.plan, &results.collect::<Vec<_>>(), &self.hopeless);
        let later = std::mem::take(&mut self.later);
        if !open.is_empty() {
            let all = self.jobs.len() + later.len();
            self.queue.left.extend(self.jobs.len()..all);
            self.outcomes.extend(later.iter().map(|_| None));
            self.jobs.extend(later);
        }
        self.unsettled = Some(open);
        Some(self.jobs.len())
    }
}

/// Returns whether the outcome of a job with this seed shows that its arm gives no result.
pub(super) fn is_hopeless(
    plan: &Plan,
    seed: u64,
    outcome: &Result<SeedResult, StudyError>,
) -> bool {
    seed == plan.seeds[0] && matches!(outcome, Err(StudyError::Hopeless(_)))
}

/// The jobs of a plan with their outcomes.
pub(super) struct Ended {
    pub(super) jobs: Vec<Job>,
    pub(super) outcomes: Vec<JobResult>,
    /// Headlines that a first look left unsettled; `None` without one.
    pub(super) unsettled: Option<Vec<Unsettled>>,
}

/// All jobs of some plans.
pub(super) struct Pool<'a> {
    work: Mutex<Vec<Work<'a>>>,
    /// A job has ended, or no more jobs start.
    changed: Condvar,
    interrupt: &'a Interrupt,
}

/// A job that a worker has taken.
struct Taken<'a> {
    /// The place of its plan.
    place: usize,
    /// The number of the job in its plan.
    run: usize,
    plan: &'a Plan,
    job: Job,
    progress: Arc<Held>,
}

impl<'a> Pool<'a> {
    pub(super) fn new(plans: &'a [Plan], interrupt: &'a Interrupt) -> Self {
        let work = Mutex::new(plans.iter().map(Work::new).collect());
        Self { work, changed: Condvar::new(), interrupt }
    }

    /// Passes the progress of a plan on to `sink`.
    pub(super) fn show(&self, place: usize, sink: Arc<dyn ProgressSink>) {
        self.lock()[place].progress.show(sink);
    }

    /// Runs jobs until none is left or the call is interrupted.
    pub(super) fn work(&self) {
        while let Some(taken) = self.take() {
            let Taken { place, run, plan, job, progress } = taken;
            let _running = Running { pool: self, place };
            let sink: Arc<dyn ProgressSink> = progress;
            let begin = Instant::now();
            sink.event(RunEvent::Started { run, arm: job.arm, seed: job.seed, at: begin });
            let outcome = run_one(plan, job, self.interrupt, Progress::new(Arc::clone(&sink), run));
            let took = begin.elapsed();
            sink.event(match outcome {
                Ok(_) => RunEvent::Finished { run, took },
                Err(_) => RunEvent::Failed { run },
            });
            let events = {
                let work = &mut self.lock()[place];
                work.queue.done(job.arm, took);
                work.end(run, outcome)
            };
            events.into_iter().for_each(|event| sink.event(event));
        }
        self.changed.notify_all();
    }

    /// Returns the next job, for which a worker may have to wait for a first look.
    fn take(&self) -> Option<Taken<'a>> {
        let next = |(place, work): (usize, &mut Work<'a>)| {
            let run = work.queue.next(&work.jobs)?;
            work.running += 1;
            let progress = Arc::clone(&work.progress);
            Some(Taken { place, run, plan: work.plan, job: work.jobs[run], progress })
        };
        let mut all = self.lock();
        while !self.interrupt.is_set() {
            if let Some(taken) = all.iter_mut().enumerate().find_map(next) {
                return Some(taken);
            }
            if all.iter().all(|work| work.later.is_empty()) {
                return None;
            }
            // Jobs up to a first look are running, and the end of each wakes this worker.
            all = self.changed.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Waits until all jobs of a plan have ended, or until no more of them start. Returns them with
    /// what they gave.
    pub(super) fn wait(&self, place: usize) -> Ended {
        let is_open = |work: &mut Vec<Work<'a>>| {
            let of = &work[place];
            of.running > 0 || !of.queue.left.is_empty() && !self.interrupt.is_set()
        };
        let mut work =
            (self.changed.wait_while(self.lock(), is_open)).unwrap_or_else(PoisonError::into_inner);
        let of = &mut work[place];
        of.progress.end();
        let (jobs, outcomes) = (std::mem::take(&mut of.jobs), std::mem::take(&mut of.outcomes));
        Ended { jobs, outcomes, unsettled: of.unsettled.take() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Work<'a>>> {
        // A poisoned lock still protects consistent jobs: each change is one step.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held while a worker has a job. If the worker panics, no more jobs start, and the plan counts as
/// interrupted: the caller does not wait for the job, and gets no document that lacks it.
struct Running<'p, 'a> {
    pool: &'p Pool<'a>,
    place: usize,
}

impl Drop for Running<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.pool.interrupt.set();
        }
        self.pool.lock()[self.place].running -= 1;
        self.pool.changed.notify_all();
    }
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
        assert_eq!((order(Target::Threads), order(Target::Live)), (turns.to_vec(), turns.to_vec()));
    }
}
