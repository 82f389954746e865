//! Runs of the gallery: each arm of each item at each point, and at one point on machines with
//! drawn costs.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use mmscale_document::Target;
use mmscale_harness::{
    ArmId, Cache, CallError, Interrupt, Merged, Origin, Plan, PolicyArm, Profiles, Registry,
    Request, RunError, Settings, StudyError, figures, linux_version, on_drawn_machines, plan,
};
use mmscale_sim::profile::ProfileError;
use thiserror::Error;

use super::data::{ArmFigures, Item, scripts};
use super::programs;

/// The seed of all runs. Virtual time needs no repetition; machines with drawn costs give the
/// intervals.
pub const SEED: u64 = 1;

/// The items to run, and how.
pub struct GalleryRequest<'a> {
    /// The items.
    pub items: &'a [Item],
    /// The machines.
    pub profiles: Profiles,
    /// The studies that items may use.
    pub registry: &'a Registry,
    /// The program and command line.
    pub origin: Origin,
    /// Results of earlier runs.
    pub cache: Cache,
    /// Only the first point of a curve and that of the comparison, without drawn machines.
    pub quick: bool,
}

/// Why there is no result.
#[derive(Debug, Error)]
pub enum GalleryError {
    /// An item cannot be run.
    #[error("item `{item}` of the gallery: {why}")]
    Call {
        /// The item.
        item: String,
        /// The reason.
        why: Box<CallError>,
    },
    /// A profile has no such machine.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A run failed, or the user interrupted the call.
    #[error("item `{item}` of the gallery: {why}")]
    Run {
        /// The item.
        item: String,
        /// The reason.
        why: Box<RunError>,
    },
    /// A program below `System` failed, or the user interrupted the call.
    #[error("item `{item}` of the gallery: {why}")]
    Program {
        /// The item.
        item: String,
        /// The reason.
        why: Box<StudyError>,
    },
}

impl GalleryError {
    /// Returns whether the user interrupted the call.
    pub fn is_interrupt(&self) -> bool {
        match self {
            Self::Run { why, .. } => matches!(**why, RunError::Interrupted { .. }),
            Self::Program { why, .. } => matches!(**why, StudyError::Interrupted),
            Self::Call { .. } | Self::Profile(_) => false,
        }
    }
}

/// The place of a run: arm, point, and machine; machine 0 is the profile's own.
pub(super) type At = (usize, usize, usize);

/// The metrics of all runs of an item.
#[derive(Clone, Debug, Default)]
pub struct Figures(pub(super) BTreeMap<At, BTreeMap<String, f64>>);

impl Figures {
    /// Returns a metric at a place.
    pub(super) fn get(&self, at: At, metric: &str) -> Option<f64> {
        self.0.get(&at)?.get(metric).copied()
    }
}

enum Work {
    Plan(Box<Plan>, ArmId),
    Program { name: String, arm: String, x: Option<u64>, machine: String },
}

struct Job {
    item: usize,
    at: At,
    work: Work,
}

/// Runs all items, several runs at a time. `told` gets the number of finished and of all runs.
pub fn run(
    request: &GalleryRequest<'_>,
    interrupt: &Interrupt,
    told: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Figures>, GalleryError> {
    let mut jobs = Vec::new();
    for item in 0..request.items.len() {
        jobs_of(request, item, &mut jobs)?;
    }
    let done: Mutex<Vec<Figures>> = Mutex::new(vec![Figures::default(); request.items.len()]);
    let failed: Mutex<Option<GalleryError>> = Mutex::new(None);
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = || {
        // Relaxed: each number is taken once, and the scope publishes the results.
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match one(request, job, interrupt) {
                Ok(found) => {
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done[job.item].0.insert(job.at, found);
                }
                Err(why) => {
                    next.store(jobs.len(), Ordering::Relaxed);
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                }
            }
            told(finished.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        }
    };
    let at_once = thread::available_parallelism().map_or(1, NonZero::get).min(jobs.len().max(1));
    thread::scope(|scope| {
        for _ in 1..at_once {
            scope.spawn(worker);
        }
        worker();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(why) => Err(why),
        None => Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

fn one(
    request: &GalleryRequest<'_>,
    job: &Job,
    interrupt: &Interrupt,
) -> Result<BTreeMap<String, f64>, GalleryError> {
    let item = || request.items[job.item].id.clone();
    match &job.work {
        Work::Plan(plan, arm) => figures(plan, *arm, SEED, &request.cache, interrupt)
            .map_err(|why| GalleryError::Run { item: item(), why: Box::new(why) }),
        Work::Program { name, arm, x, machine } => {
            let profile = request.profiles.load(machine)?;
            let found = programs::run(name, arm, *x, &profile, interrupt);
            found.map_err(|why| GalleryError::Program { item: item(), why: Box::new(why) })
        }
    }
}

/// Adds the runs of an item.
fn jobs_of(
    request: &GalleryRequest<'_>,
    item: usize,
    jobs: &mut Vec<Job>,
) -> Result<(), GalleryError> {
    let of = &request.items[item];
    let points = of.points();
    for (nth, arm) in of.arm.iter().enumerate() {
        for (place, &x) in points.iter().enumerate() {
            let compared = place == of.effect_place();
            if request.quick && place != 0 && !compared {
                continue;
            }
            let machine = arm.machine.as_ref().unwrap_or(&of.machine);
            if let Some(name) = &of.program {
                let (name, arm, machine) = (name.clone(), arm.name.clone(), machine.clone());
                let work = Work::Program { name, arm, x, machine };
                jobs.push(Job { item, at: (nth, place, 0), work });
                continue;
            }
            let (plan, id) = plan_of(request, of, arm, x)?;
            if compared && !request.quick && of.drawn > 0 {
                let merged: Merged = request.profiles.open(machine)?;
                let plans = on_drawn_machines(&plan, &merged, of.drawn)?;
                for (drawn, plan) in plans.into_iter().enumerate() {
                    let work = Work::Plan(Box::new(plan), id);
                    jobs.push(Job { item, at: (nth, place, drawn + 1), work });
                }
            }
            jobs.push(Job { item, at: (nth, place, 0), work: Work::Plan(Box::new(plan), id) });
        }
    }
    Ok(())
}

/// Returns the plan of an arm at a point.
fn plan_of(
    request: &GalleryRequest<'_>,
    item: &Item,
    arm: &ArmFigures,
    x: Option<u64>,
) -> Result<(Plan, ArmId), GalleryError> {
    let wrong = |why: CallError| GalleryError::Call { item: item.id.clone(), why: Box::new(why) };
    let script = arm.script.as_ref().or(item.script.as_ref()).cloned().unwrap_or_default();
    let own = scripts();
    let known = own.find(&script).is_ok();
    let registry = if known { own } else { request.registry };
    let registry = registry.clone().with_profiles(request.profiles.clone());
    let asked = asked(request, item, arm, script, x).map_err(wrong)?;
    let plans = plan(&registry, &asked).map_err(wrong)?;
    let [plan] = <[Plan; 1]>::try_from(plans).map_err(|plans| {
        let what = format!("its parameters are those of {} runs: set them all", plans.len());
        wrong(CallError::Other(what))
    })?;
    let last = if asked.policies.is_empty() { 0 } else { plan.arms.len() - 1 };
    let id = plan.arms[last];
    Ok((plan, id))
}

fn asked(
    request: &GalleryRequest<'_>,
    item: &Item,
    arm: &ArmFigures,
    script: String,
    x: Option<u64>,
) -> Result<Request, CallError> {
    let mut set = item.set.clone();
    set.extend(arm.set.clone());
    set.extend(x.map(|x| (item.x.clone(), x.to_string())));
    let mut settings = Settings::default();
    for (key, value) in &set {
        settings.add(key, value)?;
    }
    Ok(Request {
        on: Some(Target::Sim),
        arms: vec!["stock".to_owned()],
        policies: arm.policy.iter().map(|text| PolicyArm::parse(text)).collect::<Result<_, _>>()?,
        linux: item.linux.as_deref().map(linux_version).transpose()?,
        profile: Some(PathBuf::from(arm.machine.as_ref().unwrap_or(&item.machine))),
        settings,
        seeds: Some(1),
        first_seed: SEED,
        origin: request.origin.clone(),
        ..Request::of([script])
    })
}
