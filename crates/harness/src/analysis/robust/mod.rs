//! The costs on which a conclusion depends: the same seeds on machines with one cost at an end of
//! its range, and on machines with all costs drawn from their ranges. A conclusion is the change
//! from one arm to another; of an arm alone, the level of its metrics and what limits it.
//!
//! A cost that changes nothing in the first seed of any arm is recognised by equal results and not
//! moved any further. The profile's own machine runs more seeds than the others: their scatter is
//! what a cost must exceed to be called the reason of a reversal.

mod cache;
mod machines;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use mmscale_document::{
    Claim, DrawnLimit, Kept, LIMITING_SHARE, Level, LockRecord, MovedLimit, MovedNumber,
    ROBUST_SCHEMA, ROUNDS_METRIC, Robustness, Target, WaitShare, class_waits,
};
use mmscale_sim::profile::{Merged, ProfileError};
use thiserror::Error;

pub use cache::Cache;
use cache::{LIMIT_SHARE, Outcome, WAIT_SHARE};
use machines::{Moving, drawn, moved, moving};

use crate::plan::Plan;
use crate::runner::{RunError, run_alone};
use crate::study::{ArmId, Interrupt, SeedResult};

/// Why there is no analysis.
#[derive(Debug, Error)]
pub enum RobustError {
    /// A run on the profile's own machine failed, or the user interrupted the call.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A machine cannot be made.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Another error; the text has the problem and advice.
    #[error("{0}")]
    Call(String),
}

/// A request for an analysis.
#[derive(Debug)]
pub struct RobustRequest<'a> {
    /// The runs on the profile's own machine.
    pub plan: &'a Plan,
    /// The profile, with the ranges of its numbers.
    pub profile: &'a Merged,
    /// The metrics whose changes are the conclusions; of a plan with one arm, whose levels are.
    pub metrics: Vec<&'static str>,
    /// Number of machines to draw, each with all costs from their ranges.
    pub machines: usize,
    /// Results of earlier runs.
    pub cache: Cache,
}

/// Number of finished runs, and of all runs as far as they are known: runs of costs that change
/// nothing leave this number.
pub type Told<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Number of seeds on the profile's own machine, at least: as many as an interval needs.
const OWN_SEEDS: u64 = 7;

/// Runs an analysis.
pub fn robust(
    request: &RobustRequest<'_>,
    interrupt: &Interrupt,
    told: Told<'_>,
) -> Result<Robustness, RobustError> {
    let plan = request.plan;
    if plan.on != Target::Sim {
        let what = "only the costs of a simulated machine have ranges; use --on sim";
        return Err(RobustError::Call(what.to_owned()));
    }
    let numbers = moving(plan, request.profile);
    let own_seeds = own_seeds(&plan.seeds);
    let runs = Runs::of(request, interrupt, told, numbers.len(), own_seeds.len());
    let own = runs.all(std::slice::from_ref(plan), &own_seeds);
    let own = own.into_iter().next().expect("one machine")?;
    let (ends, mut failures) = runs.ends(request, &numbers, &own)?;
    let sets = drawn(&numbers, request.machines);
    let machines: Result<Vec<Plan>, ProfileError> = sets
        .iter()
        .map(|set| moved(plan, request.profile, numbers.iter().zip(set.iter().copied())))
        .collect();
    let machines = runs.all(&machines?, &plan.seeds);
    stop_if_interrupted(&machines)?;
    let mut complete = Vec::new();
    for machine in machines {
        match machine {
            Ok(runs) => complete.push(runs),
            Err(why) => failures.push(why.to_string()),
        }
    }
    let claims = claims(request, &own, &ends, &complete);
    let is_alone = plan.arms.len() == 1;
    let levels = if is_alone { levels(request, &own, &ends, &complete) } else { vec![] };
    let still = ends.iter().filter(|end| end.machines.iter().all(Option::is_none));
    Ok(Robustness {
        schema: ROBUST_SCHEMA.to_owned(),
        build: plan.origin.build.clone(),
        command: plan.origin.command.clone(),
        study: plan.study.name().to_owned(),
        profile: plan.profile_name.clone(),
        profile_hash: plan.profile.as_ref().map_or(String::new(), |p| format!("{:016x}", p.hash)),
        cpus: plan.cpus as u32,
        params: plan.shown_params(),
        seeds: plan.seeds.to_vec(),
        base: name_of(plan, plan.arms[0]),
        claims,
        levels,
        numbers: numbers.len() as u32,
        without_effect: still.map(|end| end.number.key.clone()).collect(),
        machines: request.machines as u32,
        limit: limit(plan, &own),
        moved_limits: moved_limits(plan, &own, &ends),
        drawn_limits: drawn_limits(plan, &complete),
        rounds_min: rounds_min(plan, &own),
        own_seeds,
        failures,
        checksum: None,
    }
    .sealed())
}

/// The outcomes of all arms and seeds on one machine.
type OnMachine = BTreeMap<(ArmId, u64), Outcome>;

/// Returns the error of an interrupted run, if there is one.
fn stop_if_interrupted(machines: &[Result<OnMachine, RunError>]) -> Result<(), RobustError> {
    for machine in machines {
        if let Err(RunError::Interrupted { study, done, all }) = machine {
            let (study, done, all) = (study.clone(), *done, *all);
            return Err(RunError::Interrupted { study, done, all }.into());
        }
    }
    Ok(())
}

/// The outcomes with a number at each end of its range; `None` where they equal those of the
/// profile's own machine, or where a run failed.
struct Ends<'a> {
    number: &'a Moving,
    machines: [Option<OnMachine>; 2],
}

struct Runs<'a> {
    cache: &'a Cache,
    interrupt: &'a Interrupt,
    told: Told<'a>,
    /// Number of finished runs, and of all runs, as far as they are known.
    finished: AtomicUsize,
    all: AtomicUsize,
}

impl<'a> Runs<'a> {
    /// Counts the runs of an analysis in which each of `numbers` changes something.
    fn of(
        request: &'a RobustRequest<'a>,
        interrupt: &'a Interrupt,
        told: Told<'a>,
        numbers: usize,
        own_seeds: usize,
    ) -> Self {
        let plan = request.plan;
        let machines = 2 * numbers + request.machines;
        let all = plan.arms.len() * (own_seeds + machines * plan.seeds.len());
        let (finished, all) = (AtomicUsize::new(0), AtomicUsize::new(all));
        Self { cache: &request.cache, interrupt, told, finished, all }
    }
    /// Moves each number to both ends of its range. Returns also the errors of runs that failed.
    fn ends<'n>(
        &self,
        request: &RobustRequest<'_>,
        numbers: &'n [Moving],
        own: &OnMachine,
    ) -> Result<(Vec<Ends<'n>>, Vec<String>), RobustError> {
        let plan = request.plan;
        let (first, rest) = plan.seeds.split_at(1);
        let mut plans = Vec::new();
        for number in numbers {
            for value in number.number.range {
                plans.push(moved(plan, request.profile, [(number, value)])?);
            }
        }
        let probed = self.all(&plans, first);
        stop_if_interrupted(&probed)?;
        let differs = |machine: &Result<OnMachine, RunError>| {
            machine.as_ref().is_ok_and(|runs| runs.iter().any(|(run, at)| own.get(run) != Some(at)))
        };
        let others: Vec<Plan> = plans
            .into_iter()
            .zip(&probed)
            .filter(|(_, machine)| differs(machine))
            .map(|(plan, _)| plan)
            .collect();
        let still = probed.len() - others.len();
        // Relaxed: the count is only shown.
        self.all.fetch_sub(still * plan.arms.len() * rest.len(), Ordering::Relaxed);
        let more = self.all(&others, rest);
        stop_if_interrupted(&more)?;
        let mut more = more.into_iter();
        let mut failures = Vec::new();
        let mut machines = probed.into_iter().map(|machine| {
            let complete = differs(&machine);
            let mut runs = machine.map_err(|why| failures.push(why.to_string())).ok()?;
            if !complete {
                return None;
            }
            let rest = more.next().expect("one for each machine that differs");
            runs.extend(rest.map_err(|why| failures.push(why.to_string())).ok()?);
            Some(runs)
        });
        let mut next = || machines.next().flatten();
        let ends = numbers.iter().map(|number| Ends { number, machines: [next(), next()] });
        let ends = ends.collect();
        drop(machines);
        Ok((ends, failures))
    }

    /// Runs all arms of the plan with these seeds on each machine, several runs at a time.
    fn all(&self, machines: &[Plan], seeds: &[u64]) -> Vec<Result<OnMachine, RunError>> {
        let jobs: Vec<(usize, ArmId, u64)> = (0..machines.len())
            .flat_map(|machine| {
                let arms = machines[machine].arms.iter();
                arms.flat_map(move |&arm| seeds.iter().map(move |&seed| (machine, arm, seed)))
            })
            .collect();
        let done: Mutex<Vec<Result<OnMachine, RunError>>> =
            Mutex::new(machines.iter().map(|_| Ok(OnMachine::new())).collect());
        let next = AtomicUsize::new(0);
        let worker = || {
            // Relaxed: each number is taken once, and the scope publishes the results.
            while let Some(&(at, arm, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = self.one(&machines[at], arm, seed);
                // A poisoned lock still protects complete entries: each is one step.
                let mut all = done.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut all[at], outcome) {
                    (Ok(runs), Ok(outcome)) => _ = runs.insert((arm, seed), outcome),
                    (Ok(_), Err(why)) => all[at] = Err(why),
                    (Err(_), _) => {}
                }
                drop(all);
                let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
                (self.told)(finished, self.all.load(Ordering::Relaxed));
            }
        };
        let at_once = thread::available_parallelism().map_or(1, NonZero::get).min(jobs.len());
        thread::scope(|scope| {
            for _ in 1..at_once {
                scope.spawn(worker);
            }
            worker();
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn one(&self, machine: &Plan, arm: ArmId, seed: u64) -> Result<Outcome, RunError> {
        outcome(machine, arm, seed, self.cache, self.interrupt)
    }
}

/// Returns the outcome of one run, which is kept in `cache`.
fn outcome(
    machine: &Plan,
    arm: ArmId,
    seed: u64,
    cache: &Cache,
    interrupt: &Interrupt,
) -> Result<Outcome, RunError> {
    if let Some(outcome) = cache.get(machine, arm, seed) {
        return Ok(outcome);
    }
    let result = run_alone(machine, arm, seed, interrupt)?;
    let mut shares = wait_shares(&result);
    shares.extend(limit_shares(&result));
    let metrics = result.metrics.iter().map(|(name, value)| (*name, value.as_f64()));
    let shares = shares.iter().map(|(name, share)| (name.as_str(), *share));
    let outcome = Outcome::new(metrics.chain(shares), result.fingerprint);
    cache.keep(machine, arm, seed, &outcome);
    Ok(outcome)
}

/// Returns the share of the CPU time that was not idle in which spin locks of each class were
/// waited for, by `wait_share:CLASS`.
fn wait_shares(result: &SeedResult) -> BTreeMap<String, f64> {
    let mut shares = BTreeMap::new();
    let busy_ns = result.cpu_time.map_or(0, |time| time.busy_ns);
    for row in result.locks.iter().filter(|row| busy_ns > 0 && !row.sleeps) {
        let share: &mut f64 = shares.entry(format!("{WAIT_SHARE}{}", row.class)).or_default();
        *share += row.wait_within_ns() as f64 / busy_ns as f64;
    }
    shares
}

/// Returns the waits for each class of locks and for the lines of each kind of data, by
/// `limit_share:NAME`: of a lock as [`class_waits`] has them, of lines as a share of the CPU time
/// that was not idle.
fn limit_shares(result: &SeedResult) -> BTreeMap<String, f64> {
    let Some(time) = result.cpu_time.filter(|time| time.busy_ns > 0) else {
        return BTreeMap::new();
    };
    let locks = LockRecord::aggregate(&result.locks);
    let locks = class_waits(&locks, time.busy_ns).into_iter();
    let locks = locks.map(|waits| (format!("{LIMIT_SHARE}{}", waits.class), waits.share));
    let lines_ns: u64 = result.lines.iter().map(|line| line.wait_ns).sum();
    let of_lines = time.lines_ns as f64 / time.busy_ns as f64 / lines_ns.max(1) as f64;
    let lines = result.lines.iter().map(|line| {
        (format!("{LIMIT_SHARE}line of {}", line.line), line.wait_ns as f64 * of_lines)
    });
    locks.chain(lines).collect()
}

/// Returns the metrics of one run by name, and the waits for spin locks as `wait_share:CLASS`: the
/// share of the CPU time that was not idle. Equal runs are not repeated while `cache` keeps them.
pub fn figures(
    plan: &Plan,
    arm: ArmId,
    seed: u64,
    cache: &Cache,
    interrupt: &Interrupt,
) -> Result<BTreeMap<String, f64>, RunError> {
    outcome(plan, arm, seed, cache, interrupt).map(|outcome| outcome.all().collect())
}

/// Returns the plan on `machines` machines whose costs are drawn from the ranges of `profile`, the
/// same machines each time.
pub fn on_drawn_machines(
    plan: &Plan,
    profile: &Merged,
    machines: usize,
) -> Result<Vec<Plan>, ProfileError> {
    let numbers = moving(plan, profile);
    let sets = drawn(&numbers, machines);
    let sets = sets.iter().map(|set| numbers.iter().zip(set.iter().copied()));
    sets.map(|values| moved(plan, profile, values)).collect()
}

/// Returns the seeds of the profile's own machine: those of the plan, and others that follow them.
fn own_seeds(seeds: &[u64]) -> Vec<u64> {
    let mut all = seeds.to_vec();
    let more = seeds.last().map_or(0, |last| last.saturating_add(1));
    let missing = OWN_SEEDS.saturating_sub(seeds.len() as u64);
    all.extend(more..more.saturating_add(missing));
    all
}

/// Returns the lock or line that limits the first arm on a machine: that with the longest waits, if
/// they are long enough.
fn limit(plan: &Plan, runs: &OnMachine) -> Option<WaitShare> {
    let seeds = || plan.seeds.iter().filter_map(|&seed| runs.get(&(plan.arms[0], seed)));
    let mut sums = BTreeMap::<&str, f64>::new();
    for (class, share) in seeds().flat_map(Outcome::limit_shares) {
        *sums.entry(class).or_default() += share;
    }
    let runs = seeds().count().max(1) as f64;
    let shares = sums.into_iter().map(|(class, sum)| (class, sum / runs));
    let (class, share) = shares.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (share >= LIMITING_SHARE).then(|| WaitShare { class: class.to_owned(), share })
}

/// Returns the ends of ranges with which the first arm has another limit.
fn moved_limits(plan: &Plan, own: &OnMachine, ends: &[Ends<'_>]) -> Vec<MovedLimit> {
    let class = |limit: &Option<WaitShare>| limit.as_ref().map(|limit| limit.class.clone());
    let usual = class(&limit(plan, own));
    let machines = ends.iter().flat_map(|end| {
        let values = end.number.number.range;
        end.machines.iter().zip(values).map(move |(machine, value)| (end.number, machine, value))
    });
    let other = machines.filter_map(|(number, machine, value)| {
        let limit = limit(plan, machine.as_ref()?);
        let name = number.key.clone();
        (class(&limit) != usual).then_some(MovedLimit { name, value, limit })
    });
    other.collect()
}

/// Returns what limits the first arm on the drawn machines, the most frequent first.
fn drawn_limits(plan: &Plan, drawn: &[OnMachine]) -> Vec<DrawnLimit> {
    let mut counts = BTreeMap::<Option<String>, u32>::new();
    for machine in drawn {
        *counts.entry(limit(plan, machine).map(|limit| limit.class)).or_default() += 1;
    }
    let limits = counts.into_iter().map(|(class, machines)| DrawnLimit { class, machines });
    let mut limits: Vec<DrawnLimit> = limits.collect();
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.machines));
    limits
}

/// Returns the rounds that the slowest program begins in the window, in the arm with the fewest.
fn rounds_min(plan: &Plan, own: &OnMachine) -> Option<f64> {
    let of_arm = |&arm: &ArmId| {
        let rounds = plan.seeds.iter().filter_map(|&seed| own.get(&(arm, seed)));
        let rounds: Vec<f64> = rounds.filter_map(|outcome| outcome.metric(ROUNDS_METRIC)).collect();
        mmscale_stats::mean(&rounds)
    };
    plan.arms.iter().filter_map(of_arm).min_by(f64::total_cmp)
}

/// Returns the change of a metric between two arms on a machine over pairs of these seeds.
fn change(
    seeds: &[u64],
    runs: &OnMachine,
    arms: [ArmId; 2],
    metric: &str,
) -> Option<mmscale_stats::Change> {
    let value = |arm: ArmId, seed: u64| runs.get(&(arm, seed))?.metric(metric);
    let pair = |&seed: &u64| Some((value(arms[0], seed)?, value(arms[1], seed)?));
    let pairs: Vec<(f64, f64)> = seeds.iter().filter_map(pair).collect();
    mmscale_stats::paired(&pairs)
}

fn name_of(plan: &Plan, arm: ArmId) -> String {
    plan.study.arms()[arm.0].name.to_owned()
}

/// Returns the conclusions: each other arm's change of each metric.
fn claims(
    request: &RobustRequest<'_>,
    own: &OnMachine,
    ends: &[Ends<'_>],
    drawn: &[OnMachine],
) -> Vec<Claim> {
    let (plan, mut claims) = (request.plan, Vec::new());
    for &arm in &plan.arms[1..] {
        for &metric in &request.metrics {
            let arms = [plan.arms[0], arm];
            let of = |runs: &OnMachine| change(&plan.seeds, runs, arms, metric)?.percent();
            let Some(percent) = of(own) else { continue };
            let scatter = change(&own_seeds(&plan.seeds), own, arms, metric);
            claims.push(Claim {
                arm: name_of(plan, arm),
                metric: metric.to_owned(),
                percent,
                ci95: scatter.and_then(|change| change.percent_ci95()),
                moved: effects(ends, percent, &of),
                drawn_percent: drawn.iter().filter_map(of).collect(),
            });
        }
    }
    claims
}

/// Returns the level of each metric of the only arm. The mean of a rate is harmonic, as in a
/// document.
fn levels(
    request: &RobustRequest<'_>,
    own: &OnMachine,
    ends: &[Ends<'_>],
    drawn: &[OnMachine],
) -> Vec<Level> {
    let (plan, arm) = (request.plan, request.plan.arms[0]);
    let level = |&metric: &&'static str| {
        let spec = plan.study.metrics().iter().find(|spec| spec.name == metric)?;
        let of = |seeds: &[u64], runs: &OnMachine| -> Option<Vec<f64>> {
            seeds.iter().map(|&seed| runs.get(&(arm, seed))?.metric(metric)).collect()
        };
        let all = of(&own_seeds(&plan.seeds), own)?;
        let is_rate = spec.unit.ends_with("/s") && all.iter().all(|value| *value > 0.0);
        let mean = |runs: &OnMachine| {
            let values = of(&plan.seeds, runs)?;
            let rate = if is_rate { mmscale_stats::harmonic_mean(&values) } else { None };
            rate.or_else(|| mmscale_stats::mean(&values))
        };
        let own_mean = mean(own)?;
        let percent = |runs: &OnMachine| Some(100.0 * (mean(runs)? / own_mean - 1.0));
        let interval =
            if is_rate { mmscale_stats::harmonic_mean_ci95 } else { mmscale_stats::mean_ci95 };
        let moved = if own_mean == 0.0 { vec![] } else { effects(ends, 0.0, &percent) };
        Some(Level {
            metric: metric.to_owned(),
            unit: spec.unit.to_owned(),
            mean: own_mean,
            ci95: interval(&all),
            moved,
            drawn: drawn.iter().filter_map(mean).collect(),
        })
    };
    request.metrics.iter().filter_map(level).collect()
}

/// Returns the effect of each number that has one on a change of `percent`, the largest first.
fn effects(
    ends: &[Ends<'_>],
    percent: f64,
    of: &impl Fn(&OnMachine) -> Option<f64>,
) -> Vec<MovedNumber> {
    let at = |machine: &Option<OnMachine>| machine.as_ref().map_or(Some(percent), of);
    let mut moved: Vec<MovedNumber> = ends
        .iter()
        .filter(|end| end.machines.iter().any(Option::is_some))
        .filter_map(|end| {
            let [low, high] = &end.machines;
            let number = &end.number.number;
            Some(MovedNumber {
                name: end.number.key.clone(),
                value: number.value,
                range: number.range,
                basis: end.number.basis().to_owned(),
                percent: [at(low)?, at(high)?],
            })
        })
        .collect();
    moved.sort_by(|a, b| b.span().total_cmp(&a.span()).then_with(|| a.name.cmp(&b.name)));
    moved
}
