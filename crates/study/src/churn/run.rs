//! One seed of one arm: the machine with all its CPUs, then the same with one.

use super::ChurnArm;
use super::figures::{self, Observed};
use super::probe::ChurnProbe;
use super::workload::{self, Advise, Plan, Tally};
use crate::machine::{self, Counted, HostCost, MachineRun, MachineSpec, Program};
use crate::shipped::set_machine;
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_kernel::Kernel;
use mmscale_mm::arch::{Arch, Probe};
use mmscale_mm::swap::{SwapConfig, Zeromap};
use mmscale_record::On;
use mmscale_system::{Advice, System, ThreadSpec};
use std::sync::{Arc, Mutex};

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
struct Churn {
    plan: Plan,
    per_cpu: usize,
    /// A meddler on every CPU whose number is a multiple of this.
    meddler_every: Option<usize>,
    seed: u64,
    tallies: Arc<Mutex<Vec<(usize, Tally)>>>,
    meddlers: Arc<Mutex<Vec<(usize, Tally)>>>,
}

impl Program for Churn {
    fn run<A: Arch>(self, kernel: &Kernel<A>) {
        let cpus = kernel.cpus();
        let start = |cpu: usize| {
            let (plan, seed, per_cpu) = (self.plan, self.seed, self.per_cpu);
            let tallies = Arc::clone(&self.tallies);
            let starter = move |system: &Kernel<A>| {
                workload::warm(system, &plan);
                let make = |nth: usize| {
                    let (number, tallies) = (nth * cpus + cpu, Arc::clone(&tallies));
                    let body = move |system: &Kernel<A>| {
                        let tally = workload::churner(system, &plan, number, seed);
                        let mut all = tallies.lock().expect("nobody panics while adding");
                        all.push((number, tally));
                    };
                    system.process(ThreadSpec::on(cpu), Box::new(body))
                };
                let made: Vec<_> = (0..per_cpu).map(make).collect();
                for process in made.into_iter().flatten() {
                    let _ = system.wait(process);
                }
            };
            kernel.process(ThreadSpec::on(cpu), Box::new(starter))
        };
        let meddle = |cpu: usize| {
            let (plan, seed, tallies) = (self.plan, self.seed, Arc::clone(&self.meddlers));
            let body = move |system: &Kernel<A>| {
                let tally = workload::meddler(system, &plan, seed ^ (cpu as u64) << 32);
                tallies.lock().expect("nobody panics while adding").push((cpu, tally));
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
    tallies: Vec<Tally>,
    meddlers: Vec<Tally>,
    plan: Plan,
}

fn plan(ctx: &RunContext, arm: ChurnArm, processes: u64) -> Plan {
    let params = &ctx.params;
    let making_ns = if ctx.on == On::Sim { MAKING_SIM_NS } else { MAKING_HOST_NS };
    let warming_ns = WARMING_NS * (params.count("pages") - 1);
    let begin_ns = SETTLE_NS + making_ns * processes + warming_ns;
    let from_ns = begin_ns + if ctx.on == On::Sim { WARM_SIM_NS } else { 0 };
    Plan {
        pages: params.count("pages"),
        populate: params.switch("populate"),
        advise: advise_of(params.choice("madvise")),
        bind: arm.bind,
        user_ns: params.count("user_ns"),
        begin_ns,
        from_ns,
        until_ns: from_ns + (params.real("duration_ms") * 1e6) as u64,
    }
}

fn on_machine(ctx: &RunContext, arm: ChurnArm, seed: u64) -> Result<Ran, StudyError> {
    let params = &ctx.params;
    let per_cpu = params.count("processes_per_cpu") as usize;
    let plan = plan(ctx, arm, (per_cpu * ctx.cpus) as u64);
    let tallies = Arc::new(Mutex::new(Vec::new()));
    let meddlers = Arc::new(Mutex::new(Vec::new()));
    let program = Churn {
        plan,
        per_cpu,
        meddler_every: (params.choice("beside") == "mixed").then_some(MEDDLER_EVERY),
        seed,
        tallies: Arc::clone(&tallies),
        meddlers: Arc::clone(&meddlers),
    };
    let mut spec = MachineSpec::new(ctx, seed);
    spec.mm.lru = arm.lru;
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
    let mut tallies = std::mem::take(&mut *tallies.lock().expect("all processes have ended"));
    tallies.sort_by_key(|&(number, _)| number);
    let tallies: Vec<Tally> = tallies.into_iter().map(|(_, tally)| tally).collect();
    let meddlers = std::mem::take(&mut *meddlers.lock().expect("all processes have ended"));
    let meddlers: Vec<Tally> = meddlers.into_iter().map(|(_, tally)| tally).collect();
    let all = tallies.iter().chain(&meddlers);
    let damaged: u64 = all.map(|tally| tally.damaged).sum();
    if damaged > 0 {
        let what = format!("{damaged} pages did not hold what their process had written, or zeros");
        return Err(StudyError::Check(vec![what]));
    }
    Ok(Ran { machine, probes, tallies, meddlers, plan })
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
            meddlers: &self.meddlers,
        }
    }
}

/// Runs the workload on all CPUs, then on one.
pub(super) fn run(ctx: &RunContext, arm: ChurnArm, seed: u64) -> Result<SeedResult, StudyError> {
    let all = on_machine(ctx, arm, seed)?;
    let mut result = SeedResult::default();
    let cpu_ns = figures::measure(&all.observed(ctx), &mut result);
    if cpu_ns.is_nan() {
        let what = "no op began or ended in the time that counts: give it more (--set duration_ms)";
        return Err(StudyError::Machine(what.to_owned()));
    }
    let mut cost: HostCost = all.machine.cost;
    let begun: u64 = all.tallies.iter().map(|tally| tally.begun).sum();
    let host_ns_per_op = cost.host_ns as f64 / begun.max(1) as f64;
    result.fingerprint = all.machine.fingerprint;
    if ctx.cpus > 1 {
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

/// The same machine with one CPU.
fn one_cpu(ctx: &RunContext) -> Result<RunContext, StudyError> {
    let mut one = ctx.clone();
    one.cpus = 1;
    if let Some(profile) = &ctx.profile {
        let mut small = profile.with_cpus(1).map_err(|why| StudyError::Machine(why.to_string()))?;
        small.hz = ctx.hz;
        one.profile = Some(Arc::new(small));
    }
    Ok(one)
}

/// Slots of the swap area: 4 GiB.
const SWAP_PAGES: u32 = 1 << 20;

fn swap_of(name: &str) -> SwapConfig {
    match name {
        "zeromap" => SwapConfig { pages: SWAP_PAGES, zeromap: Zeromap::On },
        "disk" => SwapConfig { pages: SWAP_PAGES, zeromap: Zeromap::Off },
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
