//! Runs one seed of one arm of a [`Workload`] and computes its metrics.

use super::seen::{FinishedRun, KernelRan, Source};
use super::{Env, Meter, Phases, Run, Seen, Verdict, Workload};
#[cfg(feature = "live")]
use crate::machine::LiveRequest;
use crate::machine::{self, HostCost, Idle, MachineRun, MachineSpec, set_allocator, set_machine};
use crate::study::{Arm, RunContext, SeedResult, StudyError};
use mmscale_arch::{CpuId, Probe, Trace, TraceGroup};
use mmscale_document::{CpuTimeRecord, CriticalPath, Target};
use mmscale_kernel::Os;
use mmscale_sim::HoldScale;
use std::any::Any;
use std::ops::Range;

/// Runs one seed: once, and a second time if the study compares two runs.
pub(crate) fn run<W: Workload>(
    ctx: &RunContext,
    arm: &Arm,
    seed: u64,
) -> Result<SeedResult, StudyError> {
    let env = Env::<W>::new(ctx, arm, seed);
    let other = W::second(&env)?;
    let [share, other_share] = shares(&env, other.as_ref())?;
    let first = tried(env, share)?;
    let second = other.map(|env| tried(env, other_share)).transpose()?;

    let compared = second.as_ref().map(|ran| Seen::of(ran, None));
    measured(&Seen::of(&first, compared.as_ref()))
}

/// Returns the share of each run in the progress, weighted by its length and CPUs.
fn shares<W: Workload>(
    first: &Env<W>,
    second: Option<&Env<W>>,
) -> Result<[Range<f64>; 2], StudyError> {
    let Some(second) = second else { return Ok([0.0..1.0, 1.0..1.0]) };
    let weights = [weight(first)?, weight(second)?];
    let end = weights[0] / (weights[0] + weights[1]).max(1.0);
    Ok([0.0..end, end..1.0])
}

/// Returns the approximate length of a run times its CPUs.
fn weight<W: Workload>(env: &Env<W>) -> Result<f64, StudyError> {
    let plan = W::plan(env).map_err(StudyError::Machine)?;
    Ok(W::phases(&plan).end_ns as f64 * env.cpus() as f64)
}

/// Runs `env` until its verdict is good or the attempts are used up.
fn tried<W: Workload>(mut env: Env<W>, share: Range<f64>) -> Result<FinishedRun<W>, StudyError> {
    let attempts = if env.on() == Target::Sim { 1 } else { W::ATTEMPTS };
    loop {
        let ran = once(env.clone(), share.clone())?;
        let last = env.attempt + 1 >= attempts;
        match W::verdict(&Seen::of(&ran, None)) {
            Verdict::Good => return Ok(ran),
            Verdict::Poor if last => return Ok(ran),
            Verdict::Hopeless(why) if env.on() == Target::Sim => {
                return Err(StudyError::Hopeless(why));
            }
            Verdict::Useless(why) | Verdict::Hopeless(why) if last => {
                return Err(StudyError::Machine(why));
            }
            Verdict::Poor | Verdict::Useless(_) | Verdict::Hopeless(_) => env.attempt += 1,
        }
    }
}

fn once<W: Workload>(mut env: Env<W>, share: Range<f64>) -> Result<FinishedRun<W>, StudyError> {
    let ran = match env.on() {
        Target::Live => on_live(env)?,
        Target::Sim | Target::Threads => on_kernel(&mut env, share)?,
    };
    match W::damaged_pages(&ran.run.tally.get()) {
        0 => Ok(ran),
        damaged => {
            let what = format!(
                "{damaged} pages did not contain the values that their program had written"
            );
            Err(StudyError::Check(vec![what]))
        }
    }
}

/// Returns the machine for `env`, and stores its number of pages in `env`.
fn machine_of<W: Workload>(env: &mut Env<W>) -> MachineSpec {
    let mut spec = MachineSpec::new(&env.ctx, env.seed);
    env.pages = match W::memory_gib(&env.params) {
        Some(gib) => spec.set_memory_gib(gib),
        None => spec.pages(),
    };
    spec
}

/// Returns an error if runs with these parameters can never give a result. On a real computer the
/// available resources are not known before the run.
pub(crate) fn refuse<W: Workload>(ctx: &RunContext) -> Result<(), String> {
    let mut env = Env::<W>::new(ctx, &Arm::default(), 0);
    if ctx.on != Target::Live {
        let mut spec = machine_of(&mut env);
        set_allocator(env.common(), &mut spec.mm)?;
    }
    W::plan(&env).map(|_| ())
}

fn on_kernel<W: Workload>(
    env: &mut Env<W>,
    share: Range<f64>,
) -> Result<FinishedRun<W>, StudyError> {
    let mut spec = machine_of(env);
    let plan = W::plan(env).map_err(StudyError::Machine)?;
    let Phases { from_ns, until_ns, end_ns } = W::phases(&plan);
    spec.expect_end(&env.ctx, end_ns, share);
    spec.measure(from_ns, until_ns);
    W::set_up(env, &plan, &mut spec.mm);
    set_allocator(env.common(), &mut spec.mm).map_err(StudyError::Machine)?;
    env.arm.configure(&mut spec.mm);
    let mut scale = Ok(None);
    spec.simulated(|config| {
        set_machine(env.common(), config);
        W::simulate(env, &plan, config);
        scale = combined_hold(config.hold_scale, env.ctx.hold_scale);
        config.hold_scale = scale.clone().ok().flatten();
    });
    scale.map_err(StudyError::Machine)?;
    let run = Run::new(env, plan);
    let mut meters = W::Meter::of_cpus(env, &run.plan);
    let mut probe = move |cpu: CpuId| {
        let idle = Idle::within((from_ns, until_ns));
        Box::new(CpuProbe::<W> { idle, meter: meters(cpu) }) as Box<dyn Probe>
    };
    let programs = run.clone();
    let first = Box::new(move |os: &Os| W::run_inside(&programs, os));
    let mut machine = machine::run(spec, &mut probe, first)?;
    drop(probe);
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<CpuProbe<W>>();
    let probes = machine.probes.drain(..).map(|probe| *own(probe).expect("made above"));
    let (mut idle, mut meters): (Vec<Idle>, Vec<W::Meter>) =
        probes.map(|probe| (probe.idle, probe.meter)).unzip();
    idle.iter_mut().for_each(|idle| idle.finish(machine.end_ns));
    W::Meter::close(&mut meters, machine.end_ns);
    let source = Source::Kernel(Box::new(KernelRan { machine, idle, meters }));
    Ok(FinishedRun { env: env.clone(), run, source })
}

/// Returns the scale of a run whose study has one of its own.
///
/// # Errors
/// Both scale another class: a machine scales one.
fn combined_hold(
    own: Option<HoldScale>,
    asked: Option<HoldScale>,
) -> Result<Option<HoldScale>, String> {
    let own = own.filter(|own| own.factor_1024 != 1024);
    let (Some(own), Some(asked)) = (own, asked) else { return Ok(asked.or(own)) };
    if own.class != asked.class {
        return Err(format!(
            "the parameters of the study scale the holds of {} already, and a run scales one class \
             only: leave them at their defaults, or leave out those of {}",
            own.class.name(),
            asked.class.name()
        ));
    }
    let factor_1024 = (u64::from(own.factor_1024) * u64::from(asked.factor_1024)) >> 10;
    Ok(Some(HoldScale { factor_1024: u32::try_from(factor_1024).unwrap_or(u32::MAX), ..own }))
}

#[cfg(feature = "live")]
fn on_live<W: Workload>(mut env: Env<W>) -> Result<FinishedRun<W>, StudyError> {
    env.pages = crate::host::available_bytes().unwrap_or(u64::MAX) / 4096;
    let plan = W::plan(&env).map_err(StudyError::Machine)?;
    let needs = W::needs(&env, &plan);
    let (watches, blame) = (W::WATCHES, env.ctx.blame);
    let look = LiveRequest { watches, window_ns: W::watched_ns(&plan), needs, blame };
    let run = Run::new(&env, plan);
    let programs = run.clone();
    let live = machine::live::run(&env.ctx, &look, move |system| W::run(&programs, system))?;
    Ok(FinishedRun { env, run, source: Source::Live(Box::new(live)) })
}

/// Never called: planning refuses such runs.
#[cfg(not(feature = "live"))]
fn on_live<W: Workload>(_: Env<W>) -> Result<FinishedRun<W>, StudyError> {
    Err(StudyError::Machine(
        "this program was built without the feature `live`, which --on live needs".to_owned(),
    ))
}

/// Passes the tracepoints of one CPU to the harness and to the study's meter.
struct CpuProbe<W: Workload> {
    idle: Idle,
    meter: W::Meter,
}

impl<W: Workload> Probe for CpuProbe<W> {
    fn hears(&self, group: TraceGroup) -> bool {
        group == TraceGroup::Idle || self.meter.hears(group)
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        match event {
            Trace::Idle(_) => self.idle.event(now_ns, event),
            _ => self.meter.event(now_ns, event),
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Returns the CPU time in the window in which a simulated machine counted locks.
fn cpu_time<W: Workload>(seen: &Seen<'_, W>, run: &MachineRun) -> Option<CpuTimeRecord> {
    let simulated = seen.on() == Target::Sim;
    let busy_ns = seen.busy_ns().ok().filter(|_| simulated)? as u64;
    let lines_ns = run.calls.iter().map(|row| row.lines_ns).sum();
    let (all_ns, stranded_ns) = (seen.cpu_time_ns() as u64, run.stranded_ns);
    Some(CpuTimeRecord { all_ns, busy_ns, lines_ns, stranded_ns })
}

/// Returns where the time of each operation went, if the run recorded what holders did.
fn critical_paths(run: &MachineRun) -> Vec<CriticalPath> {
    let recorded = !run.blame.locks.is_empty();
    let of = || CriticalPath::of(&run.calls, &run.locks, &run.blame.shares);
    if recorded { of() } else { vec![] }
}

/// Computes all metrics and the additional results.
fn measured<W: Workload>(seen: &Seen<'_, W>) -> Result<SeedResult, StudyError> {
    let window_ns = W::window_ns(seen.plan);
    let mut result = SeedResult { window_ns, ..SeedResult::default() };
    for metric in W::METRICS {
        match (metric.measure)(seen) {
            Ok(value) => {
                metric.spec.check(value)?;
                result.metric(metric.spec.name, value);
            }
            Err(missing) => _ = result.missing.insert(metric.spec.name, missing.needs()),
        }
    }
    match &seen.ran.source {
        Source::Live(live) => {
            live.add_host_metrics(&mut result);
            if let Some(watched) = live.seen.as_ref().filter(|_| seen.ran.env.ctx.blame) {
                result.blame = watched.blame_rows();
            }
        }
        Source::Kernel(kernel) => {
            result.locks.clone_from(&kernel.machine.locks);
            result.blame.clone_from(&kernel.machine.blame);
            result.critical_paths = critical_paths(&kernel.machine);
            result.made = kernel.machine.made;
            result.cpu_time = cpu_time(seen, &kernel.machine);
            result.lines = kernel.machine.lines.clone();
            result.fingerprint = kernel.machine.fingerprint;
        }
    }
    let mut cost = seen.cost();
    if let Some((second, Source::Kernel(kernel))) = seen.second.map(|seen| (seen, &seen.ran.source))
    {
        result.fingerprint = result.fingerprint.rotate_left(1) ^ kernel.machine.fingerprint;
        let sum = |mut cost: HostCost| {
            cost.add(&second.cost().unwrap_or_default());
            cost
        };
        cost = cost.map(sum);
    }
    if let Some(cost) = cost {
        result.host_metrics.insert("host_ns_per_event".to_owned(), cost.ns_per_event());
    }
    W::details(seen, &mut result);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use mmscale_arch::LockClass;

    use super::*;

    fn scale(class: LockClass, factor: u32) -> HoldScale {
        HoldScale { class, factor_1024: factor * 512 }
    }

    #[test]
    fn scales_of_one_class_multiply_and_those_of_two_are_refused() {
        let zone = |halves| Some(scale(LockClass::Zone, halves));
        let lruvec = Some(scale(LockClass::Lruvec, 4));
        assert_eq!(combined_hold(zone(12), zone(1)), Ok(zone(6)));
        assert_eq!(combined_hold(zone(12), None), Ok(zone(12)));
        assert_eq!(combined_hold(zone(2), lruvec), Ok(lruvec), "a factor of 1 scales nothing");
        let why = combined_hold(zone(12), lruvec).unwrap_err();
        assert!(why.contains("zone") && why.contains("lruvec"), "{why}");
    }
}
