//! One seed on the live kernel: the same processes, with its own clocks and what it tells of locks.

use super::run::{self, Churn};
use super::workload::Tally;
use crate::live::{self, LiveRun, Look};
use crate::policies::Arm;
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_linux::Watch;

/// One run.
struct Ran {
    tallies: Tally,
    meddlers: Option<Tally>,
    window_ns: u64,
    live: LiveRun,
}

impl Ran {
    fn cpu_ns_per_op(&self) -> f64 {
        let cpu = self.tallies.cpu;
        (cpu.user_ns + cpu.system_ns) as f64 / self.tallies.begun.max(1) as f64
    }
}

/// How much longer than usual processes may take to be made, from try to try: others may have the
/// CPUs just then.
const PATIENCE: [u64; 3] = [1, 8, 64];

/// Runs it until all processes were there when they were to begin, or it has been tried enough.
fn on_linux(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<Ran, StudyError> {
    let mut ran = once(ctx, arm, seed, PATIENCE[0])?;
    for &patience in &PATIENCE[1..] {
        if ran.tallies.late == 0 {
            break;
        }
        ran = once(ctx, arm, seed, patience)?;
    }
    if ran.tallies.begun == 0 {
        let Tally { late, unmade, .. } = ran.tallies;
        return Err(StudyError::Machine(format!(
            "no op began in the time that counts ({late} processes came too late, {unmade} could \
             not be made): others have this computer; give it more (--set duration_ms), or try \
             again when they rest"
        )));
    }
    Ok(ran)
}

fn once(ctx: &RunContext, arm: &Arm, seed: u64, patience: u64) -> Result<Ran, StudyError> {
    let processes = ctx.params.count("processes_per_cpu") * ctx.cpus as u64;
    let plan = run::plan(ctx, arm, processes * patience);
    let program = Churn::new(ctx, plan, seed);
    let (tallies, meddlers) = program.sums();
    let needs = live::needs(processes, processes * plan.pages);
    let look = Look {
        watches: vec![Watch::Locks, Watch::Lru, Watch::Calls],
        window: (plan.from_ns, plan.until_ns),
    };
    let live = live::run(ctx, needs, &look, move |system| program.go(system))?;
    let (tallies, meddlers) = (tallies.sum().unwrap_or_default(), meddlers.sum());
    run::undamaged(&tallies, meddlers.as_ref())?;
    Ok(Ran { tallies, meddlers, window_ns: plan.until_ns - plan.from_ns, live })
}

/// Runs the workload on all CPUs, then on one.
pub(super) fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
    let all = on_linux(ctx, arm, seed)?;
    let tally = &all.tallies;
    let mut result = SeedResult::default();
    all.live.tell_host(&mut result);
    result.host_metrics.insert("late_processes".to_owned(), tally.late as f64);
    let ops = tally.halves as f64 / 2.0;
    result.metric("ops_per_s", ops * 1e9 / all.window_ns.max(1) as f64);
    result.metric("op_failures", tally.failures);
    let per_op = |ns: u64| ns as f64 / tally.begun as f64;
    result.metric("cpu_ns_per_op", all.cpu_ns_per_op());
    result.metric("usr_ns_per_op", per_op(tally.cpu.user_ns));
    result.metric("sys_ns_per_op", per_op(tally.cpu.system_ns));
    let all_ns = (ctx.cpus as u64 * all.window_ns) as f64;
    if let Some(waited) = all.live.waits(|wait| wait.class == "lruvec") {
        result.metric("lruvec_waits_per_op", waited.count as f64 / tally.begun as f64);
        result.metric("lruvec_wait_share", waited.total_ns as f64 / all_ns);
        result.metric("lruvec_wait_max_ns", waited.max_ns);
    }
    if let Some(seen) = all.live.seen.as_ref().filter(|seen| seen.lru_batches > 0) {
        let mean = seen.lru_folios as f64 / seen.lru_batches as f64;
        result.metric("lru_batch_size_mean", mean);
        result.metric("lru_batches_per_op", seen.lru_batches as f64 / tally.begun as f64);
    }
    if let Some(meddlers) = all.meddlers {
        result.metric("meddler_rounds", meddlers.begun);
    }
    if run::has_alone(ctx) {
        let one = on_linux(&run::one_cpu(ctx)?, arm, seed)?;
        let alone_ns = one.cpu_ns_per_op();
        if alone_ns > 0.0 {
            result.metric("amplification", all.cpu_ns_per_op() / alone_ns);
            result.metric("cpu_ns_per_op_alone", alone_ns);
        }
    }
    Ok(result)
}
