//! Runs of equal seeds on machines where the holds of one lock class, or one cost, are shorter or
//! longer.

use std::fmt;
use std::sync::Arc;

use mmscale_arch::{LockClass, Op};
use mmscale_document::{
    ArmRecord, ClassWaits, Document, PlainMetric, ROUNDS_METRIC, Scaled, ScaledPoint, Target,
    WHATIF_SCHEMA, WaitShare, WhatIf, class_waits,
};
use mmscale_sim::HoldScale;
use mmscale_sim::profile::Profile;

use crate::names::UnknownName;
use crate::plan::{CallError, Plan};
use crate::runner::{RunError, execute};
use crate::study::{Interrupt, ProgressSink};

/// The factors by which each thing is scaled.
pub const FACTORS: [f64; 3] = [0.01, 0.5, 2.0];

/// Minimum share of the CPU time for which CPUs wait for a lock whose holds are scaled without
/// being named.
const WAITED: f64 = 0.005;

/// A thing that takes time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scalable {
    /// Work while a lock of the class is held: operations and lines, not its handoff.
    Hold(LockClass),
    /// Passing a contended lock to the next waiter.
    Handoff,
    /// Moving a cache line to another CPU, over all distances.
    Lines,
    /// An operation.
    Op(Op),
}

impl fmt::Display for Scalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold(class) => write!(f, "hold {}", class.name()),
            Self::Handoff => f.write_str("handoff"),
            Self::Lines => f.write_str("lines"),
            Self::Op(op) => f.write_str(op.name()),
        }
    }
}

impl Scalable {
    /// Returns the part with a name: `handoff`, `lines`, a lock class (its holds), or an operation.
    ///
    /// # Errors
    /// A name of none of these, or of a lock for which tasks sleep.
    pub fn parse(name: &str) -> Result<Self, CallError> {
        let hold = LockClass::ALL.iter().any(|class| class.name() == name);
        let op = Op::ALL.iter().find(|op| op.name() == name);
        match (name, hold, op) {
            ("handoff", ..) => Ok(Self::Handoff),
            ("lines", ..) => Ok(Self::Lines),
            (_, true, _) => Ok(Self::Hold(spin_class(name)?)),
            (_, _, Some(&op)) => Ok(Self::Op(op)),
            _ => {
                let classes = LockClass::ALL.iter().filter(|class| class.is_spin());
                let classes = classes.map(|class| class.name());
                let ops = Op::ALL.iter().map(|op| op.name());
                let known: Vec<&str> =
                    ["handoff", "lines"].into_iter().chain(classes).chain(ops).collect();
                Err(UnknownName::new("lock class or operation", name, known.iter().copied()).into())
            }
        }
    }
    /// Returns the plan with this part taking `factor` times as long.
    fn scaled(self, plan: &Plan, factor: f64) -> Plan {
        let mut plan = plan.clone();
        if let Self::Hold(class) = self {
            plan.hold_scale =
                Some(HoldScale { class, factor_1024: (factor * 1024.0).round() as u32 });
            return plan;
        }
        let own = plan.profile.as_deref().expect("the plan is of a simulated machine");
        let mut machine = Profile { ..own.clone() };
        let scale = |ps: &mut u64| *ps = (*ps as f64 * factor).round() as u64;
        match self {
            Self::Hold(_) => {}
            Self::Handoff => {
                let costs = &mut machine.costs;
                scale(&mut costs.handoff_fixed_ps);
                let lines = (f64::from(costs.handoff_lines_1024) * factor).round();
                costs.handoff_lines_1024 = lines as u32;
            }
            Self::Lines => machine.costs.line.transfers_mut().into_iter().for_each(scale),
            Self::Op(op) => scale(&mut machine.costs.op_ps[op as usize]),
        }
        plan.profile = Some(Arc::new(machine));
        plan
    }
}

/// Returns the spin locks of a name. Tasks sleep for locks of other classes.
///
/// # Errors
/// A name of no class, or of a class for which tasks sleep.
pub(crate) fn spin_class(name: &str) -> Result<LockClass, CallError> {
    let spin = || LockClass::ALL.iter().filter(|class| class.is_spin());
    if let Some(&class) = spin().find(|class| class.name() == name) {
        return Ok(class);
    }
    if LockClass::ALL.iter().any(|class| class.name() == name) {
        let names: Vec<&str> = spin().map(|class| class.name()).collect();
        return Err(CallError::Other(format!(
            "`{name}` is no spin lock: only the holds and waits of spin locks are recorded and \
             scaled; name one of {}",
            names.join(", ")
        )));
    }
    Err(UnknownName::new("lock class", name, spin().map(|class| class.name())).into())
}

/// Parses `CLASS=FACTOR`: holds of spin locks of that class take FACTOR times as long, 0.001 to
/// 100.
///
/// # Errors
/// Another form, another class, or a factor that is out of range.
pub fn hold_scale(text: &str) -> Result<HoldScale, CallError> {
    let wrong =
        |what: &str| CallError::Other(format!("--hold {text}: {what}, as in --hold zone=0.5"));
    let (name, factor) = text.split_once('=').ok_or_else(|| wrong("say CLASS=FACTOR"))?;
    let class = spin_class(name)?;
    let factor: f64 = factor.parse().map_err(|_| wrong("the factor is a number"))?;
    if !(0.001..=100.0).contains(&factor) {
        return Err(wrong("the factor is from 0.001 to 100"));
    }
    Ok(HoldScale { class, factor_1024: (factor * 1024.0).round() as u32 })
}

/// A request for an analysis.
pub struct WhatIfRequest<'a> {
    /// The runs with nothing scaled, of one arm.
    pub plan: &'a Plan,
    /// The metrics to show.
    pub metrics: Vec<&'static str>,
    /// The parts to scale; the holds of all locks that CPUs wait for, and `Handoff` and `Lines`, if
    /// empty.
    pub parts: Vec<Scalable>,
}

/// Place of a set of runs in an analysis, and their number. The number of parts to scale is known
/// after the first set.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The place, from 1.
    pub at: usize,
    /// The number of sets; `None` in the first one.
    pub of: Option<usize>,
}

/// Runs an analysis. `watch` returns the progress display of each set of runs, from its title.
pub fn whatif(
    request: &WhatIfRequest<'_>,
    interrupt: &Interrupt,
    watch: &dyn Fn(&Plan, &str, Step) -> Arc<dyn ProgressSink>,
) -> Result<WhatIf, CallOrRun> {
    let plan = request.plan;
    if plan.on != Target::Sim {
        let what = "only times of a simulated machine can be scaled; use --on sim";
        return Err(CallError::Other(what.to_owned()).into());
    }
    let run =
        |plan: &Plan, title: &str, step: Step| execute(plan, interrupt, &watch(plan, title, step));
    let own = run(plan, "as it is", Step { at: 1, of: None })?;
    let base = &own.arms[0];
    let limits = wait_shares(base);
    let parts = match &request.parts[..] {
        [] => usual_parts(&limits),
        parts => parts.to_vec(),
    };
    let of = Some(1 + parts.len() * FACTORS.len());
    let mut at = 1;
    let mut scaled = Vec::new();
    for part in parts {
        let mut points = Vec::new();
        for factor in FACTORS {
            at += 1;
            let title = format!("{part} x {factor}");
            let document = run(&part.scaled(plan, factor), &title, Step { at, of })?;
            points.push(point(request, &own, &document, factor));
        }
        scaled.push(Scaled { what: part.to_string(), points });
    }
    let metrics = request.metrics.iter().filter_map(|&name| {
        let metric = base.metrics.get(name)?;
        Some(PlainMetric { name: name.to_owned(), unit: metric.unit.clone(), mean: metric.mean })
    });
    Ok(WhatIf {
        schema: WHATIF_SCHEMA.to_owned(),
        build: plan.origin.build.clone(),
        command: plan.origin.command.clone(),
        study: own.study.clone(),
        arm: base.arm.clone(),
        profile: plan.profile_name.clone(),
        profile_hash: plan.profile.as_ref().map_or(String::new(), |p| format!("{:016x}", p.hash)),
        cpus: plan.cpus as u32,
        params: plan.shown_params(),
        seeds: base.seeds.clone(),
        metrics: metrics.collect(),
        limits,
        rounds_min: base.metrics.get(ROUNDS_METRIC).map(|rounds| rounds.mean),
        scaled,
    })
}

/// Why there is no analysis.
#[derive(Debug, thiserror::Error)]
pub enum CallOrRun {
    /// The call is wrong.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A run failed, or the user interrupted the call.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Returns the parts that are scaled if none is named.
fn usual_parts(limits: &[WaitShare]) -> Vec<Scalable> {
    let waited = limits.iter().filter(|limit| limit.share >= WAITED);
    let holds = waited.filter_map(|limit| Some(Scalable::Hold(spin_class(&limit.class).ok()?)));
    holds.chain([Scalable::Handoff, Scalable::Lines]).collect()
}

/// Returns the locks of an arm that are waited for, with shares of the time.
fn wait_shares(arm: &ArmRecord) -> Vec<WaitShare> {
    let busy_ns = arm.cpu_time.map_or(0, |time| time.busy_ns).max(1);
    let share = |of: ClassWaits<'_>| WaitShare { class: of.class.to_owned(), share: of.share };
    class_waits(&arm.locks, busy_ns).into_iter().map(share).collect()
}

/// Compares runs with their pairs of the same seed.
fn point(
    request: &WhatIfRequest<'_>,
    own: &Document,
    scaled: &Document,
    factor: f64,
) -> ScaledPoint {
    let (before, after) = (&own.arms[0], &scaled.arms[0]);
    let percent = request.metrics.iter().filter_map(|&name| {
        let value = |arm: &ArmRecord, seed: u64| {
            let at = arm.seeds.iter().position(|&known| known == seed)?;
            Some(arm.metrics.get(name)?.values.get(at).copied()??.as_f64())
        };
        let pair = |&seed: &u64| Some((value(before, seed)?, value(after, seed)?));
        let pairs: Vec<(f64, f64)> = before.seeds.iter().filter_map(pair).collect();
        Some((name.to_owned(), mmscale_stats::paired(&pairs)?.percent()?))
    });
    ScaledPoint { factor, percent: percent.collect(), limits: wait_shares(after) }
}
