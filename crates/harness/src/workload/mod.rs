//! What the author of a study writes: a [`Workload`]. The harness does the rest.

mod metric;
pub(crate) mod seen;
mod window;

pub use metric::{Measured, Metric, metric, value};
pub use seen::{Locks, Seen};
pub use window::{Window, counted, start_on, wait_for};

use crate::board::{Board, Samples};
use crate::file::Source;
use crate::look::Needs;
use crate::param::{ParamSet, Params};
use crate::policies::{Arm, Choice};
use crate::study::{RunContext, SeedResult, StudyError, TooShort};
use mmscale_arch::{CpuId, Machine, Trace, TraceGroup};
use mmscale_document::{On, Watch};
use mmscale_kernel::Kernel;
use mmscale_mm::mm::MmConfig;
use mmscale_sim::SimConfig;
use mmscale_sim::profile::Shape;
use mmscale_system::{Errno, Plain, System};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

/// A study: programs, the parameters that they take, and the metrics of what they did.
///
/// One run of one seed goes: [`plan`](Workload::plan), [`set_up`](Workload::set_up), boot,
/// [`run`](Workload::run) as the first program, and [`METRICS`](Workload::METRICS) over what is
/// left.
pub trait Workload: Clone + Debug + Send + Sync + 'static {
    /// The study's name and file: its arms, defaults, and profile.
    const FILE: Source;
    /// Every metric, in the order in which tables show them.
    const METRICS: &'static [Metric<Self>];
    /// What the workload itself does differently in some arms.
    const CHOICES: &'static [Choice] = &[];
    /// What the live kernel is watched for.
    const WATCHES: &'static [Watch] = &[Watch::Locks];
    /// How often a run on a real machine is tried until its [`Verdict`] is good.
    const ATTEMPTS: u32 = 3;

    /// The parameters ([`params!`](crate::params)).
    type Params: ParamSet;
    /// What programs do and when, from the parameters and the machine.
    type Plan: Clone + Debug + Send + Sync + 'static;
    /// What all programs count or note together ([`tally!`](crate::tally)).
    type Tally: Plain + Copy + Default + Debug;
    /// What hooks inside this program's memory manager note; `()` for none.
    type Inside: Default + Debug + Send + 'static;
    /// What is made of one CPU's tracepoints; `()` for nothing.
    type Meter: Meter<Self>;

    /// Plans a run. The error says what cannot be and what to change; where it depends on the
    /// parameters alone it comes before anything runs.
    fn plan(env: &Env<Self>) -> Result<Self::Plan, String>;
    /// When the planned run does what.
    fn phases(plan: &Self::Plan) -> Phases;
    /// What the planned run needs of a real computer at most.
    fn needs(env: &Env<Self>, plan: &Self::Plan) -> Needs;
    /// Runs the programs; the first program of the system calls it. On every machine the same.
    fn run<S: System>(run: &Run<Self>, system: &S);
    /// As [`Workload::run`] where the memory manager is this program's, for studies that look into
    /// it.
    fn run_inside<A: Machine>(run: &Run<Self>, kernel: &Kernel<A>) {
        Self::run(run, kernel);
    }
    /// Pages that did not hold what their program had written: any fails the run.
    fn damaged_pages(tally: &Self::Tally) -> u64;
    /// Whether a run shows anything.
    fn verdict(_seen: &Seen<'_, Self>) -> Verdict {
        Verdict::Good
    }

    /// Memory of a simulated machine in GiB, where the study sets it.
    fn memory_gib(_params: &Self::Params) -> Option<u64> {
        None
    }
    /// Sets up the memory manager; the arm's policies come after.
    fn set_up(_env: &Env<Self>, _plan: &Self::Plan, _mm: &mut MmConfig) {}
    /// Sets up a simulated machine.
    fn simulate(_env: &Env<Self>, _plan: &Self::Plan, _sim: &mut SimConfig) {}
    /// Another run with the same seed after the first, to compare with.
    fn second(_env: &Env<Self>) -> Result<Option<Env<Self>>, StudyError> {
        Ok(None)
    }

    /// When the live kernel is watched, in ns of the run's clock.
    fn watched_ns(plan: &Self::Plan) -> (u64, u64) {
        let Phases { from_ns, until_ns, .. } = Self::phases(plan);
        (from_ns, until_ns)
    }
    /// How long the window is of which the metrics are, in ns of the machine's time; `None` where
    /// a run ends when its work is done.
    fn window_ns(plan: &Self::Plan) -> Option<u64> {
        let Phases { from_ns, until_ns, .. } = Self::phases(plan);
        (until_ns != u64::MAX).then(|| until_ns - from_ns)
    }
    /// What a reader of the report must know, one paragraph each.
    fn remarks(_params: &Self::Params, _on: On) -> Vec<String> {
        Vec::new()
    }
    /// Metrics for which runs with these parameters are too short.
    fn too_short(_params: &Self::Params, _on: On) -> Vec<TooShort> {
        Vec::new()
    }
    /// The most tasks that a simulated run has at the same time, without the machine's own.
    fn tasks(_params: &Self::Params, cpus: usize) -> u64 {
        4 * cpus as u64
    }
    /// What a record has besides metrics: figures by CPU, distributions, call trees, host costs.
    fn details(_seen: &Seen<'_, Self>, _result: &mut SeedResult) {}
}

/// Why a metric has no value in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The machine does not have what it is computed from.
    Source(&'static str),
    /// There was nothing to measure, such as the mean of no wait.
    Nothing,
}

impl Missing {
    /// What the metric needs.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Self::Source(source) => source,
            Self::Nothing => "something to measure, which these runs did not have",
        }
    }
}

/// What a run is worth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It shows what it is to show.
    Good,
    /// It can be used, but another try may be better.
    Poor,
    /// It shows nothing; why, and what to do.
    Useless(String),
}

/// When a run does what, in ns of the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phases {
    /// What happens from here on counts: metrics, and on simulated machines locks.
    pub from_ns: u64,
    /// And what happens until here.
    pub until_ns: u64,
    /// About when programs end: for progress.
    pub end_ns: u64,
}

impl Phases {
    /// All of a run of about `end_ns` counts.
    pub fn whole(end_ns: u64) -> Self {
        Self { from_ns: 0, until_ns: u64::MAX, end_ns }
    }
}

/// How long the making of `processes` programs takes, in ns of the machine's clock: what a plan
/// allows before anything begins. A real computer takes longer, and `attempt` times 8 longer yet
/// where others had its CPUs.
pub fn making_ns<W: Workload>(env: &Env<W>, processes: u64) -> u64 {
    const SIM_NS: u64 = 20_000;
    const HOST_NS: u64 = 200_000;
    match env.on() {
        On::Sim => SIM_NS * processes,
        On::Threads | On::Linux => HOST_NS * processes * 8_u64.pow(env.attempt),
    }
}

/// When `processes` programs that a run makes at its beginning are ready to begin together, in ns
/// of the machine's clock.
pub fn ready_ns<W: Workload>(env: &Env<W>, processes: u64) -> u64 {
    SETTLE_NS + making_ns(env, processes)
}

/// Until all programs of most studies have settled, in ns.
pub const SETTLE_NS: u64 = 20_000_000;

/// Asks the system again until there is memory, a thousand times at most: a run may inject
/// failures.
pub fn insist<T>(mut ask: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    const ATTEMPTS: usize = 1000;
    let asked = (1..ATTEMPTS).find_map(|_| match ask() {
        Err(Errno::Nomem) => None,
        answer => Some(answer),
    });
    asked.unwrap_or_else(ask)
}

/// Which of the runs of a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The one that the metrics are of.
    First,
    /// The one to compare with.
    Second,
}

/// What a run is given.
#[derive(Clone, Debug)]
pub struct Env<W: Workload> {
    pub(crate) ctx: RunContext,
    /// The parameters.
    pub params: W::Params,
    /// The arm.
    pub arm: Arm,
    /// The seed.
    pub seed: u64,
    /// Which run of the seed.
    pub part: Part,
    /// Tries before this one.
    pub attempt: u32,
    /// Pages of the machine; `u64::MAX / 2048` where only the run can tell.
    pub pages: u64,
}

impl<W: Workload> Env<W> {
    pub(crate) fn new(ctx: &RunContext, arm: &Arm, seed: u64) -> Self {
        Self {
            ctx: ctx.clone(),
            params: W::Params::read(&ctx.params),
            arm: arm.clone(),
            seed,
            part: Part::First,
            attempt: 0,
            pages: u64::MAX / 2048,
        }
    }
    /// The machine.
    pub fn on(&self) -> On {
        self.ctx.on
    }
    /// Its CPUs.
    pub fn cpus(&self) -> usize {
        self.ctx.cpus
    }
    /// Timer interrupts a second.
    pub fn hz(&self) -> u32 {
        self.ctx.hz
    }
    /// By how much the costs of the profile are multiplied; 1 on real machines, which have none.
    pub fn cost_scale(&self) -> f64 {
        if self.on() == On::Sim { self.common().real("cost_scale") } else { 1.0 }
    }
    /// The second run of the seed, which is the same but for that.
    pub fn second(&self) -> Self {
        Self { part: Part::Second, attempt: 0, ..self.clone() }
    }
    /// The second run of the seed on one CPU of the same kind.
    pub fn second_on_one_cpu(&self) -> Result<Self, StudyError> {
        let mut one = self.second();
        one.ctx.cpus = 1;
        if let Some(profile) = &self.ctx.profile {
            let small = profile.with_cpus(1, Shape::Keep);
            let mut small = small.map_err(|why| StudyError::Machine(why.to_string()))?;
            small.hz = self.ctx.hz;
            one.ctx.profile = Some(Arc::new(small));
        }
        Ok(one)
    }
    /// The parameters that every machine has.
    pub(crate) fn common(&self) -> &Params {
        &self.ctx.params
    }
}

/// What the programs of a run share.
#[derive(Debug)]
pub struct Run<W: Workload> {
    /// The parameters.
    pub params: W::Params,
    /// What they do.
    pub plan: W::Plan,
    /// Where their random numbers begin.
    pub seed: u64,
    /// What they count.
    pub tally: Board<W::Tally>,
    /// Times that they note by CPU; what these are is the study's.
    pub samples: [Samples; SAMPLES],
    pub(crate) inside: Arc<Mutex<W::Inside>>,
}

/// How many kinds of times a study may note.
pub const SAMPLES: usize = 2;

impl<W: Workload> Clone for Run<W> {
    fn clone(&self) -> Self {
        Self {
            params: self.params.clone(),
            plan: self.plan.clone(),
            seed: self.seed,
            tally: self.tally.clone(),
            samples: self.samples.clone(),
            inside: Arc::clone(&self.inside),
        }
    }
}

impl<W: Workload> Run<W> {
    pub(crate) fn new(env: &Env<W>, plan: W::Plan) -> Self {
        let samples = || Samples::on(env.on(), env.cpus());
        Self {
            params: env.params.clone(),
            plan,
            seed: env.seed,
            tally: Board::on(env.on()),
            samples: [samples(), samples()],
            inside: Arc::default(),
        }
    }
    /// Notes what only the inside of this program's memory manager shows.
    pub fn inside<R>(&self, note: impl FnOnce(&mut W::Inside) -> R) -> R {
        note(&mut self.inside.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a study makes of one CPU's tracepoints.
pub trait Meter<W: Workload>: Debug + Send + Sized + 'static {
    /// Makes the meters of a run, one for each CPU.
    fn of_cpus(env: &Env<W>, plan: &W::Plan) -> impl FnMut(CpuId) -> Self;
    /// Whether it wants the events of `group`. Events of others may come, too.
    fn hears(&self, group: TraceGroup) -> bool;
    /// `event` happened at `now_ns` on this meter's CPU.
    fn event(&mut self, now_ns: u64, event: &Trace);
    /// Closes the meters of all CPUs, in their order, at the end of a run.
    fn close(_meters: &mut [Self], _end_ns: u64) {}
}

impl<W: Workload> Meter<W> for () {
    fn of_cpus(_: &Env<W>, _: &W::Plan) -> impl FnMut(CpuId) {
        |_| ()
    }
    fn hears(&self, _: TraceGroup) -> bool {
        false
    }
    fn event(&mut self, _: u64, _: &Trace) {}
}
