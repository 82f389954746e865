//! One seed of one arm: the machine, the program on it, and what they leave.

use super::figures::{self, Observed};
use super::metrics;
use super::probe::TickProbe;
use super::workload::{self, Plan, Tally};
use crate::machine::{self, MachineRun, MachineSpec, Program};
use crate::param::Params;
use crate::policies::Arm;
use crate::shipped::set_machine;
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_arch::{LockClass, Machine, Probe};
use mmscale_document::PerCpu;
use mmscale_kernel::Kernel;
use mmscale_linux::Shared;
use mmscale_mm::upkeep::Requeue;
use mmscale_sim::{HoldScale, SimConfig};
use mmscale_system::{Errno, System, ThreadSpec};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::{Arc, Mutex};

/// Workers of the second run: `high` of a CPU does not depend on how many others decay.
const DECAY_WORKERS: usize = 8;

/// Whether CPUs come and go while the workload runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hotplug {
    Off,
    On,
}

/// The first thread: starts a worker on each CPU, or on some, then waits for them.
pub(super) struct Bursts {
    plan: Plan,
    /// A worker on every CPU whose number is a multiple of this; the others stay idle.
    stride: usize,
    hotplug: Hotplug,
    seed: u64,
    tallies: Arc<Mutex<Vec<Tally>>>,
    /// The same added up, for machines whose processes have nothing else in common.
    sum: Shared<Tally>,
}

impl Program for Bursts {
    fn run<A: Machine>(self, kernel: &Kernel<A>) {
        self.go(kernel);
    }
}

impl Bursts {
    /// A worker on every CPU, and all CPUs stay.
    pub(super) fn new(plan: Plan, seed: u64) -> Self {
        let (tallies, sum) = (Arc::default(), Shared::default());
        Self { plan, stride: 1, hotplug: Hotplug::Off, seed, tallies, sum }
    }
    pub(super) fn sum(&self) -> Shared<Tally> {
        self.sum.clone()
    }
    /// The same on every machine.
    pub(super) fn go<S: System>(self, kernel: &S) {
        let start = |cpu| {
            let (plan, seed, tallies) = (self.plan, self.seed, Arc::clone(&self.tallies));
            let sum = self.sum.clone();
            let body = Box::new(move |system: &S| {
                let tally = workload::vm_worker(system, &plan, cpu, seed);
                sum.change(|sum| sum.add(&tally));
                tallies.lock().expect("no worker panics while it adds").push(tally);
            });
            kernel.process(ThreadSpec::on(cpu), body)
        };
        let workers: Vec<_> = (0..kernel.cpus()).step_by(self.stride).map(start).collect();
        if self.hotplug == Hotplug::On {
            // The run ends under it, which is how it is meant to end.
            let _ = cycle_cpus(kernel, self.plan.until_ns, self.seed);
        }
        for worker in workers.into_iter().flatten() {
            let _ = kernel.wait(worker);
        }
    }
}

/// Takes a random CPU but the first away for 1.5 s (of the program's time), again and again.
fn cycle_cpus<S: System>(system: &S, until_ns: u64, seed: u64) -> Result<(), Errno> {
    const AWAY_NS: u64 = 1_500_000_000;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let others = system.cpus() as u64 - 1;
    while others > 0 && system.clock_ns() + 2 * AWAY_NS < until_ns {
        let cpu = 1 + (rng.next_u64() % others) as usize;
        system.cpu_offline(cpu)?;
        system.sleep_ns(AWAY_NS)?;
        system.cpu_online(cpu)?;
        system.sleep_ns(AWAY_NS / 2)?;
    }
    Ok(())
}

/// One run of the machine with its probes and tallies, in CPU order.
struct Ran {
    machine: MachineRun,
    probes: Vec<TickProbe>,
    tallies: Vec<Tally>,
}

/// The parameters that change the simulated machine, for every arm alike.
fn what_if(ctx: &RunContext, config: &mut SimConfig) {
    let factor = ctx.params.real("hold_scale");
    config.hold_scale =
        Some(HoldScale { class: LockClass::Zone, factor_1024: (factor * 1024.0).round() as u32 });
    set_machine(&ctx.params, config);
}

fn on_machine(
    ctx: &RunContext,
    arm: &Arm,
    seed: u64,
    plan: Plan,
    stride: usize,
    hotplug: Hotplug,
) -> Result<Ran, StudyError> {
    let tallies = Arc::new(Mutex::new(Vec::new()));
    let program =
        Bursts { stride, hotplug, tallies: Arc::clone(&tallies), ..Bursts::new(plan, seed) };
    let mut spec = MachineSpec::new(ctx, seed);
    let (first_s, second_s) = (ctx.params.real("duration_s"), ctx.params.real("decay_s"));
    let first = first_s / (first_s + second_s);
    let share = if plan.bursts == 1 { first..1.0 } else { 0.0..first };
    spec.expect_end(ctx, plan.until_ns, share);
    arm.configure(&mut spec.mm);
    spec.mm.interval_ns = ctx.params.count("interval_ms") * 1_000_000;
    spec.mm.requeue = match ctx.params.choice("requeue") {
        "always" => Requeue::Always,
        _ => Requeue::Needed,
    };
    spec.simulated(|config| what_if(ctx, config));
    let early_until_ns = figures::EARLY_INTERVALS * spec.mm.interval_ns;
    let probe = |cpu| TickProbe::new(cpu, early_until_ns, plan.until_ns);
    let mut machine = machine::run(spec, |cpu| Box::new(probe(cpu)) as _, program)?;
    let end_ns = machine.end_ns;
    let probes = machine.probes.drain(..);
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<TickProbe>();
    let mut probes: Vec<TickProbe> =
        probes.map(|probe| *own(probe).expect("made by this function")).collect();
    TickProbe::settle(&mut probes);
    probes.iter_mut().for_each(|probe| probe.finish(end_ns));
    let mut tallies = std::mem::take(&mut *tallies.lock().expect("all workers have returned"));
    tallies.sort_by_key(|tally: &Tally| tally.cpu);
    let damaged: u64 = tallies.iter().map(|t| t.damaged).sum();
    if damaged > 0 {
        return Err(StudyError::Check(vec![format!(
            "{damaged} pages did not hold what their owner had written"
        )]));
    }
    Ok(Ran { machine, probes, tallies })
}

/// What every worker does.
pub(super) fn plan(params: &Params) -> Plan {
    Plan {
        burst_pages: params.count("burst_pages") as usize,
        period_ns: params.count("period_ms") * 1_000_000,
        duty_percent: params.count("duty_percent"),
        bursts: u64::MAX,
        until_ns: (params.real("duration_s") * 1e9) as u64,
    }
}

/// Runs the workload, then the decay, with one seed.
pub(super) fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
    let params = &ctx.params;
    let plan = plan(params);
    let hotplug = if params.switch("hotplug") { Hotplug::On } else { Hotplug::Off };
    let ran = on_machine(ctx, arm, seed, plan, 1, hotplug)?;
    let mut result = SeedResult::default();
    figures::measure(
        &Observed {
            end_ns: ran.machine.end_ns,
            until_ns: plan.until_ns,
            interval_ns: params.count("interval_ms") * 1_000_000,
            hz: ctx.hz,
            locks: &ran.machine.locks,
            probes: &ran.probes,
            tallies: &ran.tallies,
        },
        &mut result,
    );
    per_cpu(&ran, params.count("interval_ms") * 1_000_000, &mut result);
    let mut cost = ran.machine.cost;
    result.fingerprint = ran.machine.fingerprint;
    result.locks = ran.machine.locks;
    let decay_ns = (params.real("decay_s") * 1e9) as u64;
    if decay_ns > 0 {
        let plan = Plan { bursts: 1, until_ns: plan.period_ns * 2 + decay_ns, ..plan };
        let stride = ctx.cpus.div_ceil(DECAY_WORKERS);
        let ran = on_machine(ctx, arm, seed, plan, stride, Hotplug::Off)?;
        let decay_ns = metrics::high_decay_mean_ns(&ran.probes, &ran.tallies, plan.until_ns);
        if decay_ns.is_finite() {
            result.metric("high_decay_ns", decay_ns);
        }
        cost.add(&ran.machine.cost);
        result.fingerprint = result.fingerprint.rotate_left(1) ^ ran.machine.fingerprint;
    }
    result.host_metrics.insert("host_ns_per_event".to_owned(), cost.ns_per_event());
    Ok(result)
}

fn per_cpu(ran: &Ran, interval_ns: u64, result: &mut SeedResult) {
    let mut add = |name: &str, unit: &str, of: &dyn Fn(&TickProbe) -> f64| {
        let values = ran.probes.iter().map(of).collect();
        result.per_cpu.insert(name.to_owned(), PerCpu { unit: unit.to_owned(), values });
    };
    add("tick_firings_per_interval", "1", &|p| {
        metrics::firing_rate_of(p, interval_ns).unwrap_or(0.0)
    });
    add("tick_pages_returned", "pages", &|p| p.pages_returned as f64);
    add("pcp_refill_pages_mean", "pages", &|p| p.refill_pages as f64 / p.refills.max(1) as f64);
    add("pcp_drain_pages_mean", "pages", &|p| p.drain_pages as f64 / p.drains.max(1) as f64);
}
