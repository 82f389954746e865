//! One seed on the live kernel: the same workers, and what the kernel tells of zone->lock.

use super::run::Bursts;
use super::workload::Plan;
use crate::live::{self, Look, Waited};
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_linux::Watch;

/// Runs the workload. How page caches come to rest after it cannot be seen from outside.
pub(super) fn run(ctx: &RunContext, plan: Plan, seed: u64) -> Result<SeedResult, StudyError> {
    let look = Look { watches: vec![Watch::Locks], window: (0, plan.until_ns) };
    let program = Bursts::new(plan, seed);
    let sum = program.sum();
    let pages = (plan.burst_pages * ctx.cpus) as u64;
    let needs = live::needs(ctx.cpus as u64, pages);
    let ran = live::run(ctx, needs, &look, move |system| program.go(system))?;
    let sum = sum.get();
    if sum.damaged > 0 {
        let what = format!("{} pages did not hold what their owner had written", sum.damaged);
        return Err(StudyError::Check(vec![what]));
    }
    let mut result = SeedResult::default();
    ran.tell_host(&mut result);
    let seconds = plan.until_ns as f64 / 1e9;
    result.metric("pages_allocated_per_s", sum.pages_allocated as f64 / seconds);
    result.metric("allocation_failures", sum.failures);
    let zone = |function: &'static str| {
        ran.waits(move |wait| {
            let freeing = wait.passes_through("free_pcppages_bulk");
            wait.class == "zone" && freeing && wait.passes_through(function)
        })
    };
    let mean = |waited: &Waited| waited.total_ns as f64 / waited.count.max(1) as f64;
    if let Some(waited) = zone("free_pcppages_bulk") {
        result.metric("zone_lock_contentions", waited.count);
        result.metric("zone_lock_wait_total_ns", waited.total_ns);
        result.metric("zone_lock_wait_max_ns", waited.max_ns);
        result.metric("zone_lock_wait_mean_ns", mean(&waited));
    }
    if let Some(waited) = zone("vmstat_update") {
        result.metric("tick_zone_lock_contentions", waited.count);
        result.metric("tick_zone_lock_wait_total_ns", waited.total_ns);
        result.metric("tick_zone_lock_wait_max_ns", waited.max_ns);
        result.metric("tick_zone_lock_wait_mean_ns", mean(&waited));
    }
    Ok(result)
}
