//! One seed of one arm: the machine with all its CPUs, then the same with one.

use super::figures::{self, Observed};
use super::probe::ChurnProbe;
use super::workload::{self, Advise, Plan, Tally};
use crate::machine::{self, Counted, HostCost, MachineRun, MachineSpec, Program};
use crate::policies::{Arm, Choice};
use crate::shipped::set_machine;
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_arch::{Machine, Probe};
use mmscale_document::On;
use mmscale_kernel::Kernel;
use mmscale_linux::Shared;
use mmscale_mm::swap::{SwapConfig, Zeromap};
use mmscale_sim::profile::Shape;
use mmscale_system::{Advice, Present, System, ThreadSpec};
use std::sync::Arc;

/// CPUs from meddler to meddler.
const MEDDLER_EVERY: usize = 16;

/// When processes begin: they are made before that, and a process takes this long to make.
const SETTLE_NS: u64 = 20_000_000;
const MAKING_SIM_NS: u64 = 20_000;
const MAKING_HOST_NS: u64 = 200_000;
/// What each further page of an op adds to the time that page caches take to fill, when all CPUs of
/// a node fill theirs at once.
const WARMING_NS: u64 = 400_000;
/// Ops run this long before anything is counted, until as many wait for the locks as ever will.
/// Only where locks can be counted from then on too.
const WARM_SIM_NS: u64 = 1_000_000;

/// The first thread: a starter on each CPU, which makes the processes of its CPU.
#[derive(Clone)]
pub(super) struct Churn {
    plan: Plan,
    per_cpu: usize,
    /// A meddler on every CPU whose number is a multiple of this.
    meddler_every: Option<usize>,
    seed: u64,
    tallies: Sums,
    meddlers: Sums,
}

/// What processes did and how many they were, wherever their memory is.
#[derive(Clone, Default)]
pub(super) struct Sums(Shared<(u64, Tally)>);

impl Sums {
    fn add(&self, tally: &Tally) {
        self.0.change(|(count, sum)| {
            *count += 1;
            sum.add(tally);
        });
    }
    /// The sum, if there was anybody.
    pub(super) fn sum(&self) -> Option<Tally> {
        let (count, sum) = self.0.get();
        (count > 0).then_some(sum)
    }
}

impl Program for Churn {
    fn run<A: Machine>(self, kernel: &Kernel<A>) {
        self.go(kernel);
    }
}

impl Churn {
    pub(super) fn new(ctx: &RunContext, plan: Plan, seed: u64) -> Self {
        let params = &ctx.params;
        Self {
            plan,
            per_cpu: params.count("processes_per_cpu") as usize,
            meddler_every: (params.choice("beside") == "mixed").then_some(MEDDLER_EVERY),
            seed,
            tallies: Sums::default(),
            meddlers: Sums::default(),
        }
    }
    pub(super) fn sums(&self) -> (Sums, Sums) {
        (self.tallies.clone(), self.meddlers.clone())
    }
    /// The same on every machine.
    pub(super) fn go<S: System>(self, kernel: &S) {
        let cpus = kernel.cpus();
        let start = |cpu: usize| {
            let (plan, seed, per_cpu) = (self.plan, self.seed, self.per_cpu);
            let tallies = self.tallies.clone();
            let starter = move |system: &S| {
                workload::warm(system, &plan);
                let make = |nth: usize| {
                    let (number, tallies) = (nth * cpus + cpu, tallies.clone());
                    let body = move |system: &S| {
                        tallies.add(&workload::churner(system, &plan, number, seed));
                    };
                    system.process(ThreadSpec::on(cpu), Box::new(body))
                };
                let made: Vec<_> = (0..per_cpu).map(make).collect();
                let unmade = made.iter().filter(|process| process.is_err()).count() as u64;
                if unmade > 0 {
                    tallies.add(&Tally { unmade, ..Tally::default() });
                }
                for process in made.into_iter().flatten() {
                    let _ = system.wait(process);
                }
            };
            kernel.process(ThreadSpec::on(cpu), Box::new(starter))
        };
        let meddle = |cpu: usize| {
            let (plan, seed, tallies) = (self.plan, self.seed, self.meddlers.clone());
            let body = move |system: &S| {
                tallies.add(&workload::meddler(system, &plan, seed ^ (cpu as u64) << 32));
            };
            kernel.process(ThreadSpec::on(cpu), Box::new(body))
        };
        let starters = (0..cpus).map(start);
        let meddlers = self.meddler_every.map(|every| (0..cpus).step_by(every).map(meddle));
        let all: Vec<_> = starters.chain(meddlers.into_iter().flatten()).collect();
        for process in all.into_iter().flatten() {
            let _ = kernel.wait(process);
        }
    }
}

/// One run of the machine, its probes closed.
struct Ran {
    machine: MachineRun,
    probes: Vec<ChurnProbe>,
    tallies: Tally,
    meddlers: Option<Tally>,
    plan: Plan,
}

pub(super) fn plan(ctx: &RunContext, arm: &Arm, processes: u64) -> Plan {
    let params = &ctx.params;
    let making_ns = if ctx.on == On::Sim { MAKING_SIM_NS } else { MAKING_HOST_NS };
    let warming_ns = WARMING_NS * (params.count("pages") - 1);
    let begin_ns = SETTLE_NS + making_ns * processes + warming_ns;
    let from_ns = begin_ns + if ctx.on == On::Sim { WARM_SIM_NS } else { 0 };
    Plan {
        pages: params.count("pages"),
        populate: params.switch("populate"),
        advise: advise_of(params.choice("madvise")),
        bind: bind_of(arm),
        user_ns: params.count("user_ns"),
        begin_ns,
        from_ns,
        until_ns: from_ns + (params.real("duration_ms") * 1e6) as u64,
    }
}

fn on_machine(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<Ran, StudyError> {
    let params = &ctx.params;
    let per_cpu = params.count("processes_per_cpu") as usize;
    let plan = plan(ctx, arm, (per_cpu * ctx.cpus) as u64);
    let program = Churn::new(ctx, plan, seed);
    let (tallies, meddlers) = program.sums();
    let mut spec = MachineSpec::new(ctx, seed);
    // The run on one CPU takes next to no time.
    spec.expect_end(ctx, plan.until_ns, if ctx.cpus == 1 { 1.0..1.0 } else { 0.0..1.0 });
    arm.configure(&mut spec.mm);
    spec.mm.swap = swap_of(params.choice("swap"));
    spec.simulated(|config| {
        let mb_per_s = params.real("swap_mb_per_s");
        if mb_per_s > 0.0 {
            config.profile.swap.bytes_per_us = (mb_per_s.round() as u64).max(1);
        }
        set_machine(params, config);
        config.locks_ns = (plan.from_ns, plan.until_ns);
    });
    let window = (plan.from_ns, plan.until_ns);
    let mut machine = machine::run(spec, |_| Box::new(ChurnProbe::new(window)) as _, program)?;
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<ChurnProbe>();
    let probes = machine.probes.drain(..);
    let mut probes: Vec<ChurnProbe> =
        probes.map(|probe| *own(probe).expect("made by this function")).collect();
    probes.iter_mut().for_each(|probe| probe.finish(machine.end_ns));
    let (tallies, meddlers) = (tallies.sum().unwrap_or_default(), meddlers.sum());
    undamaged(&tallies, meddlers.as_ref())?;
    Ok(Ran { machine, probes, tallies, meddlers, plan })
}

/// Whether all pages held what they should.
pub(super) fn undamaged(tallies: &Tally, meddlers: Option<&Tally>) -> Result<(), StudyError> {
    let damaged = tallies.damaged + meddlers.map_or(0, |tally| tally.damaged);
    if damaged == 0 {
        return Ok(());
    }
    let what = format!("{damaged} pages did not hold what their process had written, or zeros");
    Err(StudyError::Check(vec![what]))
}

impl Ran {
    fn observed<'a>(&'a self, ctx: &RunContext) -> Observed<'a> {
        Observed {
            cpus: ctx.cpus,
            window_ns: self.plan.until_ns - self.plan.from_ns,
            locks_counted: Counted::on(ctx.on),
            locks: &self.machine.locks,
            probes: &self.probes,
            tallies: &self.tallies,
            meddlers: self.meddlers.as_ref(),
        }
    }
}

/// Runs the workload on all CPUs, then on one.
pub(super) fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
    let all = on_machine(ctx, arm, seed)?;
    let mut result = SeedResult::default();
    let cpu_ns = figures::measure(&all.observed(ctx), &mut result);
    if cpu_ns.is_nan() {
        let what = "no op began or ended in the time that counts: give it more (--set duration_ms)";
        return Err(StudyError::Machine(what.to_owned()));
    }
    let mut cost: HostCost = all.machine.cost;
    let host_ns_per_op = cost.host_ns as f64 / all.tallies.begun.max(1) as f64;
    result.fingerprint = all.machine.fingerprint;
    if has_alone(ctx) {
        let one = one_cpu(ctx)?;
        let ran = on_machine(&one, arm, seed)?;
        let alone_ns = figures::cpu_ns_per_op(&ran.observed(&one));
        // A computer that is busy elsewhere may give a run no time at all.
        if alone_ns.is_finite() && alone_ns > 0.0 && cpu_ns.is_finite() {
            result.metric("amplification", cpu_ns / alone_ns);
            result.metric("cpu_ns_per_op_alone", alone_ns);
        }
        cost.add(&ran.machine.cost);
        result.fingerprint = result.fingerprint.rotate_left(1) ^ ran.machine.fingerprint;
    }
    result.locks = all.machine.locks;
    result.host_metrics.insert("host_ns_per_event".to_owned(), cost.ns_per_event());
    result.host_metrics.insert("host_ns_per_op".to_owned(), host_ns_per_op);
    Ok(result)
}

/// Whether there is a machine with one CPU to compare with: beside others an op has no CPU time of
/// its own, and one CPU would be shared with as many of them as sixteen are.
pub(super) fn has_alone(ctx: &RunContext) -> bool {
    ctx.cpus > 1 && ctx.params.choice("beside") == "none"
}

/// The same machine with one CPU.
pub(super) fn one_cpu(ctx: &RunContext) -> Result<RunContext, StudyError> {
    let mut one = ctx.clone();
    one.cpus = 1;
    if let Some(profile) = &ctx.profile {
        let mut small = profile
            .with_cpus(1, Shape::Keep)
            .map_err(|why| StudyError::Machine(why.to_string()))?;
        small.hz = ctx.hz;
        one.profile = Some(Arc::new(small));
    }
    Ok(one)
}

/// What an arm may do differently: have the pages of an op moved.
pub(super) const CHOICES: &[Choice] = &[Choice { key: "bind", values: &["stay", "move"] }];

fn bind_of(arm: &Arm) -> Present {
    match arm.chosen("bind") {
        Some("move") => Present::Move,
        _ => Present::Stay,
    }
}

/// Slots of the swap area: 4 GiB.
const SWAP_PAGES: u32 = 1 << 20;

fn swap_of(name: &str) -> SwapConfig {
    match name {
        "zeromap" => SwapConfig { pages: SWAP_PAGES, ..SwapConfig::default() },
        "disk" => SwapConfig { pages: SWAP_PAGES, zeromap: Zeromap::Off, ..SwapConfig::default() },
        _ => SwapConfig::default(),
    }
}

/// The names of `madvise`.
pub(super) const ADVISE: &[&str] = &[
    "none",
    "mix",
    "dontneed",
    "free",
    "cold",
    "pageout",
    "populate_read",
    "populate_write",
    "willneed",
    "collapse",
    "hugepage",
    "nohugepage",
    "dontfork",
    "dofork",
    "wipeonfork",
    "keeponfork",
];

fn advise_of(name: &str) -> Advise {
    match ADVISE.iter().position(|&known| known == name) {
        Some(0) | None => Advise::Never,
        Some(1) => Advise::Mix,
        Some(at) => Advise::Only(Advice::ALL[at - 2]),
    }
}

const _: () = assert!(ADVISE.len() == Advice::ALL.len() + 2);
