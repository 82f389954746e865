//! The programs of rates, and their simulated rates on one CPU.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use mmscale_document::{ParamValue, ROUNDS_METRIC, Target};
use mmscale_harness::{
    CallError, Interrupt, NoStudy, ParamSpec, Plan, Registry, Request, SCRIPT_SUFFIX, Settings,
    Shape, Study, UnknownName, plan, run_alone,
};
use mmscale_sim::profile::Profile;

use super::{FitError, FitRequest, Rate};
use crate::gallery;

/// The metric that is compared with a rate.
const METRIC: &str = "ops_per_s";
/// The length of a second window next to the first one. A program without a loop that has ended
/// counts nothing more in it.
const LONGER: f64 = 1.5;
/// The parameter of scripts whose tasks are not one for each CPU.
const TASKS: &str = "tasks";
/// The parameter of every script that is the length of its window, in ms.
const WINDOW: &str = "duration_ms";
/// The seed of all runs: on one CPU, other seeds change a rate by less than its error.
const SEED: u64 = 1;
/// Rounds of a program's loop in a window. The window begins and ends within a round, which changes
/// the rate by at most a part of a round.
const ROUNDS: f64 = 64.0;
/// The most windows of the script in the place of one.
const MOST_WINDOWS: f64 = 16.0;

/// A program on one CPU.
pub(super) struct Program {
    plan: Plan,
}

/// Returns the programs of the rates.
pub(super) fn programs(request: &FitRequest<'_>) -> Result<Vec<Program>, FitError> {
    let set = Settings::parse(request.set).map_err(CallError::from)?;
    let mut names: BTreeMap<String, &Rate> = BTreeMap::new();
    let (mut programs, mut known) = (Vec::new(), Vec::new());
    for rate in request.rates {
        let registry = registry_of(request.registry, &rate.program)?;
        let registry = registry.with_profiles(request.known.profiles.clone());
        let study = registry.find(&rate.program).map_err(CallError::from)?;
        if let Some(before) = names.insert(study.name().to_owned(), rate) {
            let (before, again) = (before.to_string(), rate.to_string());
            return Err(FitError::Twice { before, again });
        }
        let own = study.params().iter().filter(|spec| spec.name != TASKS);
        let own: Vec<ParamSpec> = own.cloned().collect();
        let plan = plan_of(&registry, request, &study, (&rate.program, set.only(&own)))?;
        programs.push(Program { plan });
        known.extend(own);
    }
    for key in set.keys() {
        ParamSpec::find(&known, key).map_err(CallError::from)?;
    }
    Ok(programs)
}

/// Returns the studies that have a program: those of the binary, or the scripts of the gallery.
fn registry_of(own: &Registry, program: &str) -> Result<Registry, FitError> {
    let study = match own.find(program) {
        Ok(study) => study,
        Err(NoStudy::Unknown(_)) => {
            let gallery = gallery::scripts();
            if gallery.find(program).is_ok() {
                return Ok(gallery.clone());
            }
            let mut names: Vec<&str> =
                own.scripts().chain(gallery.scripts()).map(|study| study.name()).collect();
            names.sort_unstable();
            names.dedup();
            return Err(CallError::from(UnknownName::new("script", program, names)).into());
        }
        Err(why) => return Err(CallError::from(why).into()),
    };
    if study.script().is_none() {
        return Err(FitError::NoRate { study: program.to_owned(), suffix: SCRIPT_SUFFIX });
    }
    Ok(own.clone())
}

/// Returns the plan of a program on one CPU, with these settings.
fn plan_of(
    registry: &Registry,
    request: &FitRequest<'_>,
    study: &Study,
    (program, mut settings): (&str, Settings),
) -> Result<Plan, FitError> {
    settings.add("cpus", "1").map_err(CallError::from)?;
    if study.params().iter().any(|spec| spec.name == TASKS) {
        settings.add(TASKS, "1").map_err(CallError::from)?;
    }
    let asked = Request {
        on: Some(Target::Sim),
        arms: vec![study.arms()[0].name.clone()],
        linux: request.linux,
        profile: Some(PathBuf::from(&request.known.base)),
        settings,
        seeds: Some(1),
        first_seed: SEED,
        ..Request::of([program])
    };
    let mut plans = plan(registry, &asked)?;
    if plans.len() > 1 {
        let what = "--set has several values of a parameter, but a rate is that of one";
        return Err(CallError::Other(what.to_owned()).into());
    }
    Ok(plans.remove(0))
}

/// The figures of a run.
struct Figures {
    per_s: f64,
    /// Rounds of the program's loop; `None` if it does not loop all the time.
    rounds: Option<f64>,
}

impl Program {
    /// Runs the program on one CPU of a machine.
    fn run(&self, machine: &Profile, interrupt: &Interrupt) -> Result<Figures, FitError> {
        let machine = Arc::new(alone(machine, self.plan.hz)?);
        let run = |window_ms: f64| {
            let mut plan = self.plan.clone();
            plan.profile = Some(Arc::clone(&machine));
            plan.params.set(WINDOW, ParamValue::Real(window_ms));
            let result = run_alone(&plan, plan.arms[0], SEED, interrupt)?;
            let figure = |name| result.metrics.get(name).map(|value| value.as_f64());
            let figures = (figure(METRIC).unwrap_or(0.0), figure(ROUNDS_METRIC));
            Ok::<_, FitError>(figures)
        };
        let program = || self.plan.study.name().to_owned();
        let window_ms = self.plan.params.real(WINDOW);
        let (per_s, rounds) = run(window_ms)?;
        if per_s <= 0.0 {
            return Err(FitError::Nothing { program: program() });
        }
        if rounds.is_none() {
            let more = run(LONGER * window_ms)?.0 * LONGER / per_s;
            if (more - 1.0).abs() < 1e-9 {
                return Err(FitError::Ended { program: program() });
            }
        }
        Ok(Figures { per_s, rounds })
    }

    /// Makes the window as long as the program needs on this machine for [`ROUNDS`].
    pub(super) fn lengthen(
        &mut self,
        machine: &Profile,
        interrupt: &Interrupt,
    ) -> Result<(), FitError> {
        if let Some(rounds) = self.run(machine, interrupt)?.rounds {
            let windows = (ROUNDS / rounds.max(1.0)).ceil().clamp(1.0, MOST_WINDOWS);
            let ms = self.plan.params.real(WINDOW) * windows;
            self.plan.params.set(WINDOW, ParamValue::Real(ms));
        }
        Ok(())
    }
}

/// Returns the machine of one CPU.
fn alone(machine: &Profile, hz: u32) -> Result<Profile, CallError> {
    let mut one = machine.with_cpus(1, Shape::Keep)?;
    one.hz = hz;
    Ok(one)
}

/// Returns the operations a second of each program on one CPU of each machine: a row for each
/// machine. Several runs execute at a time; the results do not depend on that.
pub(super) fn rates_on(
    programs: &[Program],
    machines: &[Profile],
    interrupt: &Interrupt,
) -> Result<Vec<Vec<f64>>, FitError> {
    let jobs = programs.len() * machines.len();
    let done: Mutex<Vec<Option<Result<f64, FitError>>>> =
        Mutex::new((0..jobs).map(|_| None).collect());
    let next = AtomicUsize::new(0);
    let worker = || {
        loop {
            // Relaxed: each number is taken once, and the scope publishes the results.
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                break;
            }
            let (machine, program) = (job / programs.len(), job % programs.len());
            let run = programs[program].run(&machines[machine], interrupt);
            let failed = run.is_err();
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done[job] = Some(run.map(|figures| figures.per_s));
            if failed {
                next.store(jobs, Ordering::Relaxed);
            }
        }
    };
    let at_once = thread::available_parallelism().map_or(1, NonZero::get).min(jobs.max(1));
    thread::scope(|scope| {
        for _ in 1..at_once {
            scope.spawn(worker);
        }
        worker();
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Jobs without a result follow one that failed.
    let all = done.into_iter().flatten().collect::<Result<Vec<f64>, FitError>>()?;
    Ok(all.chunks(programs.len().max(1)).map(<[f64]>::to_vec).collect())
}
