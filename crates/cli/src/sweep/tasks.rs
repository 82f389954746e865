//! The runs of a sweep.

use std::collections::BTreeSet;
use std::sync::Arc;

use mmscale_document::{Fingerprint, ParamValue};
use mmscale_harness::{ArmId, Origin, Plan, Registry, fits_host, plan};
use serde_json::{Value, json};

use super::spec::{Spec, call};
use crate::failure::Failure;

/// Maximum number of runs of a sweep. Each has a key and a file.
const MAX_RUNS: usize = 200_000;

/// One run: an arm of a plan with a seed.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) plan: Arc<Plan>,
    pub(crate) arm: ArmId,
    pub(crate) seed: u64,
    pub(crate) key: String,
    /// The sweep that has only this run.
    spec: Arc<Spec>,
}

impl Task {
    /// Returns the name of the arm.
    pub(crate) fn arm_name(&self) -> &str {
        &self.plan.study.arms()[self.arm.0].name
    }

    /// Returns what another program needs to have this run executed.
    pub(crate) fn json(&self) -> Value {
        let spec = Spec { seed: Some(self.seed), ..(*self.spec).clone() };
        json!({
            "key": self.key,
            "study": self.plan.study.name(),
            "profile": self.plan.profile_name,
            "cpus": self.plan.cpus,
            "hz": self.plan.hz,
            "arm": self.arm_name(),
            "seed": self.seed,
            "spec": spec,
        })
    }
}

/// Returns all runs of a sweep: studies and profiles in the order of the spec, then points, arms,
/// seeds. A run that the spec has twice is there once.
pub(crate) fn tasks(
    registry: &Registry,
    spec: &Spec,
    origin: &Origin,
) -> Result<Vec<Task>, Failure> {
    let origin = &known(origin)?;
    let (mut tasks, mut known, mut runs) = (vec![], BTreeSet::new(), 0_usize);
    for study in spec.studies()? {
        for profile in spec.profiles()? {
            let request = spec.request(&study, profile.as_deref(), origin.clone())?;
            let plans = plan(registry, &request)?;
            runs = plans.iter().map(Plan::runs).fold(runs, usize::saturating_add);
            if runs > MAX_RUNS {
                return Err(call(format!(
                    "the sweep has at least {runs} runs, and one call allows at most {MAX_RUNS}: \
                     use fewer points or seeds, or distribute them over several folders"
                )));
            }
            fits_host(&plans)?;
            for plan in plans {
                let all = of_plan(spec, &study, profile.as_deref(), plan)?;
                tasks.extend(all.into_iter().filter(|task| known.insert(task.key.clone())));
            }
        }
    }
    Ok(tasks)
}

/// Returns an origin whose build identifies the program: by its sources, or by the hash of its file
/// if it was built outside a repository.
fn known(origin: &Origin) -> Result<Origin, Failure> {
    let mut origin = origin.clone();
    if origin.build.commit == "unknown" {
        // tidy: opened: this program
        let program = std::env::current_exe().and_then(std::fs::read);
        let program = program.map_err(|why| call(format!("cannot read this program: {why}")))?;
        let mut hash = Fingerprint::new();
        hash.add_bytes(&program);
        origin.build.changes = Some(hash.to_hex());
    }
    Ok(origin)
}

fn of_plan(
    spec: &Spec,
    study: &str,
    profile: Option<&str>,
    mut plan: Plan,
) -> Result<Vec<Task>, Failure> {
    let policies = spec.policies()?;
    // A call of `run` with policies only compares them with the first arm; a sweep names all arms.
    if !policies.is_empty() && spec.arm.is_none() {
        plan.arms.remove(0);
    }
    let own = plan.study.arms().len() - policies.len();
    let plan = Arc::new(plan);
    let mut tasks = vec![];
    for &arm in &plan.arms {
        let name = Value::from(&*plan.study.arms()[arm.0].name);
        let policy = arm.0.checked_sub(own).map(|at| Value::from(policies[at].clone()));
        let single = Arc::new(Spec {
            study: Some(study.into()),
            profile: profile.map(Value::from),
            cpus: spec.cpus.as_ref().map(|_| plan.cpus.into()),
            hz: spec.hz.as_ref().map(|_| plan.hz.into()),
            arm: policy.is_none().then_some(name),
            policy,
            cost: plan.costs.iter().map(|(key, &cost)| (key.clone(), cost.into())).collect(),
            set: spec.set.keys().map(|key| (key.clone(), set(&plan, key))).collect(),
            seeds: Some(1),
            ..spec.clone()
        });
        tasks.extend(plan.seeds.iter().map(|&seed| Task {
            key: plan.key(arm, seed),
            plan: Arc::clone(&plan),
            arm,
            seed,
            spec: Arc::clone(&single),
        }));
    }
    Ok(tasks)
}

/// Returns the value of a parameter in a plan, as a spec has it.
fn set(plan: &Plan, key: &str) -> Value {
    match plan.params.values().get(key) {
        Some(ParamValue::Switch(on)) => Value::from(*on),
        Some(other) => Value::from(other.to_string()),
        // `cpus` and `hz` may be set, too.
        None if key == "cpus" => Value::from(plan.cpus),
        None => Value::from(plan.hz),
    }
}
