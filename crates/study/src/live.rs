//! Runs on the live kernel: one program in real processes, with what can be measured meanwhile.

use crate::param::{ParamSpec, Params};
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_linux::{
    Begun, CallTimes, Config, Failure, LimitedBy, Linux, PROCESS_BYTES, Plan, Sampling, Seen,
    Watch, Watching, run_watched,
};
use mmscale_linux::{Side, Wait};
use mmscale_system::CpuTime;
use std::collections::btree_map::Entry;

/// What a run left.
pub(crate) struct LiveRun {
    pub(crate) wall_ns: u64,
    pub(crate) limited_by: LimitedBy,
    /// CPU time of all processes of the run, from their forks to their ends.
    pub(crate) cpu: CpuTime,
    /// Calls of process_mrelease that helped.
    pub(crate) releases: CallTimes,
    /// What the kernel told meanwhile; nothing where it may not be asked.
    pub(crate) seen: Option<Seen>,
}

impl LiveRun {
    /// What the run cost, and whether a memory group kept it in bounds (1) or its plan alone (0),
    /// and whether the kernel was watched.
    pub(crate) fn tell_host(&self, result: &mut SeedResult) {
        let limited = f64::from(u8::from(self.limited_by == LimitedBy::Group));
        result.host_metrics.insert("memory_group".to_owned(), limited);
        result.host_metrics.insert("wall_s".to_owned(), self.wall_ns as f64 / 1e9);
        let watched = f64::from(u8::from(self.seen.is_some()));
        result.host_metrics.insert("watched".to_owned(), watched);
        let Some(seen) = &self.seen else { return };
        let (others, _, _) = seen.sum(|wait| wait.side == Side::Other);
        result.host_metrics.insert("waits_of_others".to_owned(), others as f64);
        result.locks = seen.lock_rows();
        for wait in &seen.waits {
            let name = format!("{}_wait_ns", wait.class);
            match result.histograms.entry(name) {
                Entry::Vacant(place) => _ = place.insert(wait.histogram()),
                Entry::Occupied(mut place) => place.get_mut().merge(&wait.histogram()),
            }
        }
        for call in seen.calls.iter().take(CALLS_SHOWN) {
            let name = format!("ipi_delivery_{}_ns", call.function);
            match result.histograms.entry(name) {
                Entry::Vacant(place) => _ = place.insert(call.delivery.histogram()),
                Entry::Occupied(mut place) => place.get_mut().merge(&call.delivery.histogram()),
            }
        }
    }
    /// Waits and their sum and longest; `None` where the kernel may not be asked.
    pub(crate) fn waits(&self, meant: impl Fn(&Wait) -> bool) -> Option<Waited> {
        let (count, total_ns, max_ns) =
            self.seen.as_ref()?.sum(|wait| wait.side != Side::Other && meant(wait));
        Some(Waited { count, total_ns, max_ns })
    }
}

/// Some waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) max_ns: u64,
}

/// Functions called on other CPUs whose times are shown.
const CALLS_SHOWN: usize = 4;

/// What is looked at, and when: in ns of the run's clock.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) watches: Vec<Watch>,
    pub(crate) window: (u64, u64),
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

/// What a run will need at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    processes: u64,
    memory_bytes: u64,
}

/// What `processes` need that have `pages` pages among them.
pub(crate) fn needs(processes: u64, pages: u64) -> Needs {
    let memory_bytes = SPARE_BYTES + processes * PROCESS_BYTES + pages * (4096 + 4096 / 128);
    Needs { processes, memory_bytes }
}

/// Runs `program` as the first process of a run on the live kernel.
pub(crate) fn run(
    ctx: &RunContext,
    needs: Needs,
    look: &Look,
    program: impl FnOnce(&Linux) + Send + 'static,
) -> Result<LiveRun, StudyError> {
    let mut watching = watch(&ctx.params, look)?;
    let config = Config {
        cpus: ctx.cpus,
        memory_bytes: needs.memory_bytes,
        // Each may have some threads; those that watch and start others come on top.
        processes: needs.processes + ctx.cpus as u64,
        limit_ns: LIMIT_NS,
        interrupt: Some(ctx.interrupt.flag()),
    };
    let mut counting = Ok(());
    let begun = |begun: Begun| {
        let at = |ns: u64| begun.at_ns.saturating_add(ns);
        if let Some(watching) = &mut watching {
            let window = (at(look.window.0), at(look.window.1));
            counting = watching.count(window, Some(begun.session));
        }
    };
    let outcome = run_watched(&config, begun, Box::new(program));
    let failed = |why: mmscale_linux::WatchError| StudyError::Machine(why.to_string());
    counting.map_err(failed)?;
    match outcome {
        Ok(outcome) => Ok(LiveRun {
            wall_ns: outcome.wall_ns,
            limited_by: outcome.limited_by,
            cpu: outcome.cpu,
            releases: outcome.releases,
            seen: watching.map(|watching| watching.seen()).transpose().map_err(failed)?,
        }),
        Err(Failure::Interrupted) => Err(StudyError::Interrupted),
        Err(why) => Err(StudyError::Machine(why.to_string())),
    }
}

/// How the kernel is watched.
pub(crate) const WATCH: &[&str] = &["auto", "off", "locks", "holders", "all"];

/// The parameter of all studies on the live kernel.
pub(crate) fn watch_param() -> ParamSpec {
    let help = "what the kernel is asked meanwhile: all that it may, nothing, waits for locks, who \
                holds them too, or all of it and every event (linux)";
    ParamSpec::choice("watch", "auto", WATCH, help)
}

/// Begins to watch as far as that is wanted and allowed. Whoever asks for something in particular
/// is told if it cannot be.
fn watch(params: &Params, look: &Look) -> Result<Option<Watching>, StudyError> {
    let (watches, sampling) = match params.choice("watch") {
        "off" => return Ok(None),
        "locks" => (vec![Watch::Locks], Sampling::Sparse),
        "holders" => (vec![Watch::Locks, Watch::Holders], Sampling::All),
        "all" => (look.watches.clone(), Sampling::All),
        _ => (look.watches.clone(), Sampling::Sparse),
    };
    match Watching::begin(&Plan { watches, sampling }) {
        Ok(watching) => Ok(Some(watching)),
        Err(_) if params.choice("watch") == "auto" => Ok(None),
        Err(why) => Err(StudyError::Machine(why.to_string())),
    }
}
