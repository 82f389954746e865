//! Runs on the live kernel: one program in real processes, with observation of the kernel.

use super::{LiveRequest, LiveRun, Releases};
use crate::param::Params;
use crate::study::{RunContext, StudyError};
use mmscale_document::{Watch, Watched};
use mmscale_linux::{
    Begun, Config, Failure, LimitedBy, Linux, PROCESS_BYTES, Plan, Sampling, Watching, run_watched,
};

/// Time limit of a run; a hang becomes an error.
const LIMIT_NS: u64 = 600_000_000_000;
/// Memory of a run in addition to that of its processes.
const SPARE_BYTES: u64 = 128 << 20;

/// Returns the memory that a run may use.
fn memory_bytes(look: &LiveRequest) -> u64 {
    SPARE_BYTES + look.needs.processes * PROCESS_BYTES + look.needs.pages * (4096 + 4096 / 128)
}

/// Returns the HZ of the running kernel, from the resolution of its coarse clock. `None` if the
/// value is not one that kernels are built with.
pub(crate) fn hz() -> Option<u32> {
    mmscale_linux::tick_hz()
}

/// Runs `program` as the first process of a run on the live kernel.
pub(crate) fn run(
    ctx: &RunContext,
    look: &LiveRequest,
    program: impl FnOnce(&Linux) + Send + 'static,
) -> Result<LiveRun, StudyError> {
    let mut watching = watch(&ctx.params, look)?;
    let config = Config {
        cpus: ctx.cpus,
        memory_bytes: memory_bytes(look),
        // Each CPU may have an additional process: those that observe and that start others.
        processes: look.needs.processes + ctx.cpus as u64,
        limit_ns: LIMIT_NS,
        interrupt: Some(ctx.interrupt.flag()),
    };
    let mut counting = Ok(());
    let begun = |begun: Begun| {
        let at = |ns: u64| begun.at_ns.saturating_add(ns);
        if let Some(watching) = &mut watching {
            let window = (at(look.window_ns.0), at(look.window_ns.1));
            counting = watching.count(window, Some(begun.session));
        }
    };
    let outcome = run_watched(&config, begun, Box::new(program));
    let failed = |why: mmscale_linux::WatchError| StudyError::Machine(why.to_string());
    counting.map_err(failed)?;
    match outcome {
        Ok(outcome) => {
            let seen = watching.map(|watching| watching.seen()).transpose().map_err(failed)?;
            Ok(LiveRun {
                wall_ns: outcome.wall_ns,
                grouped: outcome.limited_by == LimitedBy::Group,
                cpu: outcome.cpu,
                faults: outcome.faults,
                releases: Releases {
                    count: outcome.releases.count,
                    max_ns: outcome.releases.max_ns,
                },
                locks: seen.as_ref().map(Watched::lock_rows).unwrap_or_default(),
                seen,
            })
        }
        Err(Failure::Interrupted) => Err(StudyError::Interrupted),
        Err(why) => Err(StudyError::Machine(why.to_string())),
    }
}

/// Starts observing the kernel. With `watch=auto`, missing permission is not an error; with an
/// explicit choice it is.
fn watch(params: &Params, look: &LiveRequest) -> Result<Option<Watching>, StudyError> {
    if look.blame {
        return watch_holders(params, look).map(Some);
    }
    let (watches, sampling) = match params.choice("watch") {
        "off" => return Ok(None),
        "locks" => (vec![Watch::Locks], Sampling::Sparse),
        "holders" => (vec![Watch::Locks, Watch::Holders], Sampling::All),
        "all" => (look.watches.to_vec(), Sampling::All),
        _ => (look.watches.to_vec(), Sampling::Sparse),
    };
    match Watching::begin(&Plan { watches, sampling }) {
        Ok(watching) => Ok(Some(watching)),
        Err(_) if params.choice("watch") == "auto" => Ok(None),
        Err(why) => Err(StudyError::Machine(why.to_string())),
    }
}

/// Starts observing the kernel, with the holders of locks. Missing permission is an error.
fn watch_holders(params: &Params, look: &LiveRequest) -> Result<Watching, StudyError> {
    let choice = params.choice("watch");
    if ["off", "locks"].contains(&choice) {
        let what = format!("--blame observes lock holders, watch={choice} does not: leave one out");
        return Err(StudyError::Machine(what));
    }
    let mut watches = look.watches.to_vec();
    let more = [Watch::Locks, Watch::Holders].into_iter().filter(|more| !watches.contains(more));
    watches.extend(more.collect::<Vec<_>>());
    let plan = Plan { watches, sampling: Sampling::All };
    Watching::begin(&plan).map_err(|why| StudyError::Machine(why.to_string()))
}
