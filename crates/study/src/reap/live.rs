//! One seed on the live kernel: a real process is killed, and another calls process_mrelease.

use super::run::{Ending, plan_of};
use super::workload::Books;
use crate::live::{self, Look};
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_linux::{OomEvents, Side, Watch};

/// What the out-of-memory killer did meanwhile, on the whole computer: in a run that kills by
/// itself, nothing but what it is told of adjustments.
fn tell_oom(oom: OomEvents, result: &mut SeedResult) {
    let events = [
        ("oom_victims", oom.marked),
        ("oom_reaper_woken", oom.woken),
        ("oom_reaping_begun", oom.started),
        ("oom_reaping_finished", oom.finished),
        ("oom_reaping_skipped", oom.skipped),
        ("oom_score_adj_changed", oom.adjusted),
    ];
    for (name, count) in events.into_iter().filter(|(_, count)| *count > 0) {
        result.host_metrics.insert(name.to_owned(), count as f64);
    }
}

/// Runs it once.
pub(super) fn run(ctx: &RunContext, seed: u64) -> Result<SeedResult, StudyError> {
    let room = mmscale_linux::available_bytes().unwrap_or(u64::MAX) / 4096;
    let plan = plan_of(ctx, seed, room).map_err(StudyError::Machine)?;
    let kill_ns = plan.kill_ns;
    let look = Look {
        watches: vec![Watch::Locks, Watch::Exits, Watch::Oom, Watch::Calls],
        window: (kill_ns, u64::MAX),
    };
    let books = Books::default();
    let program = Ending { plan, books: books.clone() };
    let needs = live::needs(4, ctx.params.count("pages"));
    let ran = live::run(ctx, needs, &look, move |system| {
        // A victim that is not killed has ended by itself, which is told below.
        let _ = program.all(system, || Ok(()));
    })?;
    let happened = books.read();
    let Some((killed_ns, over_ns)) = happened.killed_ns.zip(happened.over_ns) else {
        let what = "the victim was not killed, or has not come to its end";
        return Err(StudyError::Machine(what.to_owned()));
    };
    let mut result = SeedResult::default();
    ran.tell_host(&mut result);
    result.metric("wall_to_end_ns", over_ns - killed_ns);
    if happened.helped > 0
        && let Some(cpu) = happened.killer_cpu
    {
        result.metric("reaper_cpu_ns", cpu.system_ns + cpu.user_ns);
    }
    if ran.releases.count > 0 {
        result.metric("mrelease_call_ns", ran.releases.max_ns);
    }
    result.metric("walkers_too_late", u64::from(happened.too_late));
    let tables = |class: &str| ["pte", "pmd"].contains(&class);
    let both = ran.waits(|wait| tables(wait.class));
    let exit = ran.waits(|wait| tables(wait.class) && wait.side == Side::Exiting);
    if let Some((both, exit)) = both.zip(exit) {
        result.metric("pte_lock_wait_ns", both.total_ns);
        result.metric("exit_pte_lock_wait_ns", exit.total_ns);
        result.metric("reaper_pte_lock_wait_ns", both.total_ns - exit.total_ns);
        result.metric("pte_lock_waits", both.count);
    }
    if let Some(waited) = ran.waits(|wait| wait.side == Side::Exiting && wait.class == "mmap_lock")
    {
        result.metric("exit_mmap_lock_wait_ns", waited.total_ns);
    }
    if let Some(seen) = &ran.seen {
        // The killer exits too, with nothing to take down: the longest is the victim's.
        result.metric("exit_zap_ns", seen.exit_zap.max_ns);
        result.metric("exit_tables_ns", seen.exit_tables.max_ns);
        if happened.helped > 0 {
            result.metric("mrelease_ns", seen.mrelease.total_ns);
            result.metric("mrelease_await_ns", seen.mrelease_await.total_ns);
        }
        tell_oom(seen.oom, &mut result);
    }
    Ok(result)
}
