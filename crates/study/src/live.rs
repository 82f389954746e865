//! Runs on the live kernel: one program in real processes, with what can be measured meanwhile.

use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_linux::{Config, Failure, LimitedBy, Linux, PROCESS_BYTES};
use mmscale_record::ParamValue;
use mmscale_system::CpuTime;

/// What a run left.
pub(crate) struct LiveRun {
    pub(crate) wall_ns: u64,
    pub(crate) limited_by: LimitedBy,
    /// CPU time of all processes of the run, from their forks to their ends.
    pub(crate) cpu: CpuTime,
}

impl LiveRun {
    /// What the run cost, and whether a memory group kept it in bounds (1) or its plan alone (0).
    pub(crate) fn tell_host(&self, result: &mut SeedResult) {
        let limited = f64::from(u8::from(self.limited_by == LimitedBy::Group));
        result.host_metrics.insert("memory_group".to_owned(), limited);
        result.host_metrics.insert("wall_s".to_owned(), self.wall_ns as f64 / 1e9);
    }
}

/// The longest a run may take: a hang becomes an error.
const LIMIT_NS: u64 = 600_000_000_000;
/// Memory of a run besides what its processes have.
const SPARE_BYTES: u64 = 128 << 20;

/// HZ of the kernel that runs here, if kernels are built with it: its coarse clock moves once a
/// tick.
pub(crate) fn hz() -> Option<u32> {
    mmscale_linux::tick_hz()
}

/// Memory for `processes` that have `pages` pages among them, in bytes.
pub(crate) fn memory_bytes(processes: u64, pages: u64) -> u64 {
    SPARE_BYTES + processes * PROCESS_BYTES + pages * (4096 + 4096 / 128)
}

/// Refuses parameters that mean nothing here, where they are not at their defaults.
pub(crate) fn refuse(
    ctx: &RunContext,
    meaningless: &[(&str, ParamValue)],
) -> Result<(), StudyError> {
    let set = |(name, default): &&(&str, ParamValue)| {
        ctx.params.values().get(*name).is_some_and(|value| value != default)
    };
    match meaningless.iter().find(set) {
        None => Ok(()),
        Some((name, _)) => Err(StudyError::Machine(format!(
            "`{name}` describes a simulated machine, and the live kernel is as it is: leave it out"
        ))),
    }
}

/// Runs `program` as the first process of a run on the live kernel.
pub(crate) fn run(
    ctx: &RunContext,
    memory_bytes: u64,
    program: impl FnOnce(&Linux) + Send + 'static,
) -> Result<LiveRun, StudyError> {
    let config = Config {
        cpus: ctx.cpus,
        memory_bytes,
        limit_ns: LIMIT_NS,
        interrupt: Some(ctx.interrupt.flag()),
    };
    match mmscale_linux::run(&config, Box::new(program)) {
        Ok(outcome) => Ok(LiveRun {
            wall_ns: outcome.wall_ns,
            limited_by: outcome.limited_by,
            cpu: outcome.cpu,
        }),
        Err(Failure::Interrupted) => Err(StudyError::Interrupted),
        Err(why) => Err(StudyError::Machine(why.to_string())),
    }
}
