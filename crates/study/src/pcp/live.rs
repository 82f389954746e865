//! One seed on the live kernel: the workloads that are programs of any system.

use super::plan::{Load, Plan, Through};
use super::run::{Caches, Started, Ways};
use super::workload::exit::GiveBack;
use super::workload::{Books, purger};
use crate::live::{self, Look};
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_linux::{Linux, Watch};
use mmscale_system::System;
use std::sync::Arc;

/// CPUs of a real machine see each other's stores in order by themselves.
fn no_turn() {}

/// Runs it once.
pub(super) fn run(ctx: &RunContext, seed: u64) -> Result<SeedResult, StudyError> {
    let available = mmscale_linux::available_bytes().unwrap_or(u64::MAX) / 4096;
    let plan = Plan::of(ctx, available).map_err(StudyError::Machine)?;
    if matches!(plan.load, Load::Edge(_)) || plan.through == Through::Frames {
        let what = "only the memory manager of this program hands out frames by themselves: choose \
                    another workload (build, purger, exit, mixed) and through=system";
        return Err(StudyError::Machine(what.to_owned()));
    }
    let books = Books::default();
    let caches = Caches { plan, seed, books: books.clone(), counted: Arc::default() };
    let program = move |system: &Linux| {
        let mut started = Started::default();
        let ways = Ways { make: purger::mapped, give_back: GiveBack::Exit, turn: no_turn };
        // Whoever could be started is waited for.
        let _ = caches.start_processes(system, &mut started, ways);
        for process in started.processes {
            let _ = system.wait(process);
        }
    };
    let look = Look { watches: vec![Watch::Locks], window: (plan.at.begin_ns, u64::MAX) };
    let processes = 8 * ctx.cpus as u64;
    let needs = live::needs(processes, plan.wants_pages);
    let ran = live::run(ctx, needs, &look, program)?;
    let counts = books.counts();
    if counts.damaged > 0 {
        let what = format!("{} pages did not hold what their program had written", counts.damaged);
        return Err(StudyError::Check(vec![what]));
    }
    if counts.pages == 0 {
        let what = "no page was touched: make it longer";
        return Err(StudyError::Machine(what.to_owned()));
    }
    let mut result = SeedResult::default();
    ran.tell_host(&mut result);
    let pages = counts.pages as f64;
    let active_ns = plan.at.until_ns - plan.at.begin_ns;
    // `exit` touches its pages once, before the time that counts.
    if !matches!(plan.load, Load::Exit(_)) {
        result.metric("pages_per_s", pages * 1e9 / active_ns as f64);
    }
    result.metric("system_ns_per_page", ran.cpu.system_ns as f64 / pages);
    if let Some(waited) = ran.waits(|wait| wait.class == "zone") {
        let cpu_ns = (ran.cpu.user_ns + ran.cpu.system_ns).max(1);
        result.metric("zone_lock_wait_share", waited.total_ns as f64 / cpu_ns as f64);
        result.metric("zone_lock_waits_per_page", waited.count as f64 / pages);
    }
    result.metric("alloc_failures", counts.failures);
    Ok(result)
}
