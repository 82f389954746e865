//! The interface of study authors: [`Workload`]. The harness does the rest.

mod board;
mod drive;
mod erased;
mod metric;
mod schedules;
mod seen;
mod spread;
mod window;

pub use board::{Board, Samples, Times};
pub(crate) use erased::Typed;
pub use metric::{Measured, Metric, higher, lower, metric, value};
pub(crate) use schedules::both;
pub use seen::{Locks, Seen};
pub use spread::{Spread, powers_of_two};
pub use window::{Window, counted, start_on, wait_for};

use crate::machine::Needs;
use crate::param::{ParamSet, Params};
use crate::study::{Arm, Choice, RunContext, SeedResult, Source, StudyError, TooShort};
use mmscale_arch::{CpuId, Trace, TraceGroup};
use mmscale_document::{Target, Watch};
use mmscale_kernel::Os;
use mmscale_mm::mm::MmConfig;
use mmscale_sim::SimConfig;
use mmscale_sim::profile::Shape;
use mmscale_system::{Errno, Plain, System};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

/// A study: programs, their parameters, and metrics of what they did.
///
/// One run of one seed consists of [`plan`](Workload::plan), [`set_up`](Workload::set_up), boot,
/// [`run`](Workload::run) as the first program, and the computation of
/// [`METRICS`](Workload::METRICS) from the results.
pub trait Workload: Clone + Debug + Send + Sync + 'static {
    /// The study's name and file, which has its arms, defaults, and profile.
    const FILE: Source;
    /// All metrics, in the order in which tables show them.
    const METRICS: &'static [Metric<Self>];
    /// Variants of the workload that arms can choose.
    const CHOICES: &'static [Choice] = &[];
    /// Events of the live kernel to observe.
    const WATCHES: &'static [Watch] = &[Watch::Locks];
    /// Maximum number of attempts of a run on a real machine until its [`Verdict`] is good.
    const ATTEMPTS: u32 = 3;

    /// The parameters ([`params!`](crate::params)).
    type Params: ParamSet;
    /// The schedule of the programs, derived from the parameters and the machine.
    type Plan: Clone + Debug + Send + Sync + 'static;
    /// The counters of all programs together ([`tally!`](crate::tally)).
    type Tally: Plain + Copy + Default + Debug;
    /// Data recorded by hooks inside this program's memory manager; `()` for none.
    type Inside: Default + Debug + Send + 'static;
    /// The consumer of one CPU's tracepoints; `()` for none.
    type Meter: Meter<Self>;

    /// Plans a run. An error must state what is impossible and what to change. If it depends on the
    /// parameters alone, it is reported before anything runs.
    fn plan(env: &Env<Self>) -> Result<Self::Plan, String>;
    /// Returns the times of the planned run.
    fn phases(plan: &Self::Plan) -> Phases;
    /// Returns the maximum requirements of the planned run on a real computer.
    fn needs(env: &Env<Self>, plan: &Self::Plan) -> Needs;
    /// Runs the programs, identically on every machine. Called as the first program of the system.
    fn run<S: System>(run: &Run<Self>, system: &S);
    /// Like [`Workload::run`] on machines with this program's memory manager, for studies that
    /// inspect it. The default calls [`Workload::run`].
    fn run_inside(run: &Run<Self>, os: &Os) {
        Self::run(run, os);
    }
    /// Returns the number of pages that did not contain the values written to them. If it is not 0,
    /// the run fails.
    fn damaged_pages(tally: &Self::Tally) -> u64;
    /// Returns whether a run is usable.
    fn verdict(_seen: &Seen<'_, Self>) -> Verdict {
        Verdict::Good
    }

    /// Returns the memory of a simulated machine in GiB, if the study sets it.
    fn memory_gib(_params: &Self::Params) -> Option<u64> {
        None
    }
    /// Configures the memory manager; the arm's policies are applied afterwards.
    fn set_up(_env: &Env<Self>, _plan: &Self::Plan, _mm: &mut MmConfig) {}
    /// Configures a simulated machine.
    fn simulate(_env: &Env<Self>, _plan: &Self::Plan, _sim: &mut SimConfig) {}
    /// Returns a second run with the same seed to compare with, if the study needs one.
    fn second(_env: &Env<Self>) -> Result<Option<Env<Self>>, StudyError> {
        Ok(None)
    }

    /// Returns start and end of the observation of the live kernel, in ns of the run's clock.
    fn watched_ns(plan: &Self::Plan) -> (u64, u64) {
        let Phases { from_ns, until_ns, .. } = Self::phases(plan);
        (from_ns, until_ns)
    }
    /// Returns the length of the measured window, in ns of the machine's time. `None` if a run ends
    /// when its work is done.
    fn window_ns(plan: &Self::Plan) -> Option<u64> {
        let Phases { from_ns, until_ns, .. } = Self::phases(plan);
        (until_ns != u64::MAX).then(|| until_ns - from_ns)
    }
    /// Returns remarks for the report, one paragraph each.
    fn remarks(_params: &Self::Params, _on: Target) -> Vec<String> {
        Vec::new()
    }
    /// Returns the metrics for which runs with these parameters are too short.
    fn too_short(_params: &Self::Params, _on: Target) -> Vec<TooShort> {
        Vec::new()
    }
    /// Returns the maximum number of concurrent tasks of a simulated run, without those of the
    /// machine.
    fn tasks(_params: &Self::Params, cpus: usize) -> u64 {
        4 * cpus as u64
    }
    /// Adds the other contents of a document: values by CPU, distributions, call trees, host costs.
    fn details(_seen: &Seen<'_, Self>, _result: &mut SeedResult) {}
}

/// Why a metric has no value in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The machine does not provide the source of the metric.
    Source(&'static str),
    /// There was nothing to measure, such as the mean of no waits.
    Nothing,
}

impl Missing {
    /// The live kernel was not observed.
    pub const UNWATCHED: Self =
        Self::Source("permission to observe the live kernel (see `mmscale doctor`)");

    /// Returns what the metric needs.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Self::Source(source) => source,
            Self::Nothing => "events to measure; these runs had none",
        }
    }
}

/// The usability of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The run can be used.
    Good,
    /// The run can be used, but another attempt may be better.
    Poor,
    /// The run cannot be used; with the reason and advice.
    Useless(String),
    /// The run cannot be used, by so much that no other seed changes that; with the reason and
    /// advice. On a simulated machine, the arm's other seeds are not run.
    Hopeless(String),
}

/// Times of a run, in ns of the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phases {
    /// Start of the window in which metrics and, on simulated machines, locks are counted.
    pub from_ns: u64,
    /// End of the window.
    pub until_ns: u64,
    /// Approximate end of the programs, for the progress display.
    pub end_ns: u64,
}

impl Phases {
    /// Phases of a run of about `end_ns` in which everything counts.
    pub fn whole(end_ns: u64) -> Self {
        Self { from_ns: 0, until_ns: u64::MAX, end_ns }
    }
}

/// Returns the time that a plan allows for creating `processes` programs, in ns of the machine's
/// clock. A new address space has counters on every CPU, which are cleared; on a simulated machine
/// the time covers that of 512 CPUs, and a part for each CPU above. It is longer on a real
/// computer, and grows by a factor of 8 with each `attempt`, as other programs may use its CPUs.
pub fn making_ns<W: Workload>(env: &Env<W>, processes: u64) -> u64 {
    const SIM_NS: u64 = 20_000;
    const SIM_CPU_NS: u64 = 75;
    const HOST_NS: u64 = 200_000;
    match env.on() {
        Target::Sim => {
            let above = (env.cpus() as u64).saturating_sub(512);
            (SIM_NS + SIM_CPU_NS * above).saturating_mul(processes)
        }
        Target::Threads | Target::Live => HOST_NS * processes * 8_u64.pow(env.attempt),
    }
}

/// Returns the time at which `processes` programs that a run creates at its beginning are ready to
/// start together, in ns of the machine's clock.
pub fn ready_ns<W: Workload>(env: &Env<W>, processes: u64) -> u64 {
    SETTLE_NS + making_ns(env, processes)
}

/// Time until the programs of most studies have settled, in ns.
pub const SETTLE_NS: u64 = 20_000_000;

/// Repeats a call until it does not fail with `Nomem`, at most a thousand times: a run may inject
/// failures.
pub fn insist<T>(mut ask: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    const ATTEMPTS: usize = 1000;
    let asked = (1..ATTEMPTS).find_map(|_| match ask() {
        Err(Errno::Nomem) => None,
        answer => Some(answer),
    });
    asked.unwrap_or_else(ask)
}

/// The runs of a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The run that is measured.
    First,
    /// The run that is compared with.
    Second,
}

/// The inputs of a run.
#[derive(Clone, Debug)]
pub struct Env<W: Workload> {
    pub(crate) ctx: RunContext,
    /// The parameters.
    pub params: W::Params,
    /// The arm.
    pub arm: Arm,
    /// The seed.
    pub seed: u64,
    /// The run of the seed.
    pub part: Part,
    /// Number of failed attempts before this one.
    pub attempt: u32,
    /// Number of pages of the machine; `u64::MAX / 2048` if it is not known before the run.
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
    /// Returns the machine.
    pub fn on(&self) -> Target {
        self.ctx.on
    }
    /// Returns the number of CPUs of the machine.
    pub fn cpus(&self) -> usize {
        self.ctx.cpus
    }
    /// Returns the timer interrupts per second.
    pub fn hz(&self) -> u32 {
        self.ctx.hz
    }
    /// Returns the factor on the costs of the profile; 1 on real machines, which have none.
    pub fn cost_scale(&self) -> f64 {
        if self.on() == Target::Sim { self.common().real("cost_scale") } else { 1.0 }
    }
    /// Returns the time of an operation on the slowest kind of core next to that on a large one.
    pub fn slowest_times(&self) -> f64 {
        self.ctx.profile.as_ref().map_or(1.0, |profile| profile.clock.slowest_times())
    }
    /// Returns the bytes of a page of a simulated machine.
    pub fn page_bytes(&self) -> Option<u64> {
        self.ctx.profile.as_ref().map(|profile| profile.page_bytes.into())
    }
    /// Returns the second run of the seed, with otherwise equal inputs.
    pub fn second(&self) -> Self {
        Self { part: Part::Second, attempt: 0, ..self.clone() }
    }
    /// Returns the second run of the seed on one CPU of the same kind.
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
    /// Returns the parameters that every machine has.
    pub(crate) fn common(&self) -> &Params {
        &self.ctx.params
    }
}

/// Data shared by the programs of a run.
#[derive(Debug)]
pub struct Run<W: Workload> {
    /// The parameters.
    pub params: W::Params,
    /// The schedule of the programs.
    pub plan: W::Plan,
    /// The seed of the programs' random numbers.
    pub seed: u64,
    /// The common counters.
    pub tally: Board<W::Tally>,
    /// Times by CPU that the programs record. Their meaning is up to the study.
    pub samples: [Samples; SAMPLES],
    pub(crate) inside: Arc<Mutex<W::Inside>>,
}

/// Number of kinds of times that a study may record.
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
    /// Records data that is available only inside this program's memory manager.
    pub fn inside<R>(&self, note: impl FnOnce(&mut W::Inside) -> R) -> R {
        note(&mut self.inside.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The consumer of one CPU's tracepoints.
pub trait Meter<W: Workload>: Debug + Send + Sized + 'static {
    /// Creates the meters of a run, one per CPU.
    fn of_cpus(env: &Env<W>, plan: &W::Plan) -> impl FnMut(CpuId) -> Self;
    /// Returns whether the meter subscribes to the events of `group`. It may receive events of
    /// other groups, too.
    fn hears(&self, group: TraceGroup) -> bool;
    /// Processes `event`, which occurred at `now_ns` on the meter's CPU.
    fn event(&mut self, now_ns: u64, event: &Trace);
    /// Completes the meters of all CPUs, in their order, at the end of a run.
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
