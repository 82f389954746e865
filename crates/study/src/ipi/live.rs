//! One seed on the live kernel: the same programs as real processes, and what the kernel tells of
//! calls between its CPUs.
//!
//! Sections without preemption cannot be seen there without a tracer that costs a part of every
//! section. What stands in for them is how long a CPU goes on after it is to run another task: a
//! section that nobody waited for is not in that, and one that somebody waited for is in it from
//! then on.

use super::run::plan_of;
use super::spread::Spread;
use super::workload::{self, Books, Plan, Sink, Tally};
use crate::live::{self, LiveRun, Look};
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_document::PerCpu;
use mmscale_linux::{Call, Linux, Shared, Side, Watch};
use mmscale_system::{System, ThreadSpec};
use std::sync::Arc;

/// Functions by which the kernel has other CPUs forget translations.
const FLUSHES: [&str; 3] = ["flush_tlb_func", "do_flush_tlb_all", "do_kernel_range_flush"];
/// Pages that the programs of a CPU have at most, those of processes that end included.
const PAGES_OF_CPU: u64 = 1024;

/// What threads of different processes did, added up where all of them see it.
struct Together {
    sum: Shared<Sum>,
    calls: Shared<Spread>,
    /// By CPU.
    latency: Vec<Shared<Spread>>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    ops: u64,
    failures: u64,
    damaged: u64,
    /// 1: watchmen go before everybody else.
    urgent: u64,
}

mmscale_linux::plain!(Sum { ops, failures, damaged, urgent });

impl Together {
    fn new(cpus: usize) -> Self {
        let latency = (0..cpus).map(|_| Shared::default()).collect();
        Self { sum: Shared::default(), calls: Shared::default(), latency }
    }
}

impl Sink for Together {
    fn add(&self, tally: Tally) {
        self.sum.change(|sum| {
            sum.ops += tally.ops;
            sum.failures += tally.failures;
            sum.damaged += tally.damaged;
        });
        self.calls.change(|calls| tally.call_ns.iter().for_each(|&ns| calls.add(ns)));
        for (cpu, latency) in self.latency.iter().enumerate() {
            let of = tally.latency_ns.iter().filter(|(at, _)| *at == cpu);
            latency.change(|spread| of.for_each(|&(_, ns)| spread.add(ns)));
        }
    }
}

/// The first process: starts the service and those who watch, and waits for both. Watchmen that may
/// not go before others watch as they may.
fn program(system: &Linux, plan: Plan, books: &Books, urgent: &Shared<Sum>) {
    let (tasks, urgent) = (books.clone(), urgent.clone());
    let watch = move |system: &Linux| {
        // Asked of a thread that does nothing: one that may not be so urgent does not start.
        let first = workload::watchman_on(0);
        let may = system.spawn(first, Box::new(|_| {})).and_then(|thread| system.join(thread));
        urgent.change(|sum| sum.urgent = u64::from(may.is_ok()));
        let on = if may.is_ok() { workload::watchman_on } else { ThreadSpec::on };
        let _ = workload::watch(system, plan, &tasks, on);
    };
    for process in workload::start(system, plan, books, watch) {
        let _ = system.wait(process);
    }
}

/// Runs it once.
pub(super) fn run(ctx: &RunContext, seed: u64) -> Result<SeedResult, StudyError> {
    if ctx.params.choice("workload") == "reclaim" && !has_swap() {
        let what = "this computer has no swap, so no page of a program can be reclaimed: turn some \
                    on, or choose another workload";
        return Err(StudyError::Machine(what.to_owned()));
    }
    let (plan, _) = plan_of(ctx, seed);
    let look =
        Look { watches: vec![Watch::Calls, Watch::Resched], window: (plan.from_ns, plan.until_ns) };
    let together = Arc::new(Together::new(ctx.cpus));
    let books = Books::into(Arc::clone(&together) as Arc<dyn Sink>);
    let urgent = together.sum.clone();
    let needs = live::needs(8, PAGES_OF_CPU * ctx.cpus as u64);
    let ran = live::run(ctx, needs, &look, move |system| {
        program(system, plan, &books, &urgent);
    })?;
    let sum = together.sum.get();
    workload::check(sum.ops, sum.damaged)?;
    let mut result = SeedResult::default();
    ran.tell_host(&mut result);
    let seconds = (plan.until_ns - plan.from_ns) as f64 / 1e9;
    tell_programs(&together, sum, seconds, &mut result);
    tell_kernel(&ran, &mut result);
    Ok(result)
}

/// Whether there is anything to swap to.
fn has_swap() -> bool {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().count() > 1
}

fn tell_programs(together: &Together, sum: Sum, seconds: f64, result: &mut SeedResult) {
    let calls = together.calls.get();
    result.metric("ops_per_s", sum.ops as f64 / seconds);
    result.metric("op_failures", sum.failures);
    result.metric("calls_per_s", calls.count() as f64 / seconds);
    if calls.count() > 0 {
        result.metric("call_mean_ns", calls.mean());
        result.metric("call_max_ns", calls.max());
    }
    let latency: Vec<Spread> = together.latency.iter().map(Shared::get).collect();
    if latency.iter().all(|spread| spread.count() == 0) {
        return;
    }
    let worst = |percent| latency.iter().map(|cpu| cpu.percentile(percent)).max().unwrap_or(0);
    result.metric("wakeup_latency_p50_ns", worst(50));
    result.metric("wakeup_latency_p99_ns", worst(99));
    result.metric("wakeup_latency_max_ns", latency.iter().map(Spread::max).max().unwrap_or(0));
    result.host_metrics.insert("watchmen_urgent".to_owned(), sum.urgent as f64);
    let values = latency.iter().map(|cpu| cpu.percentile(99) as f64).collect();
    let row = PerCpu { unit: "ns".to_owned(), values };
    result.per_cpu.insert("wakeup_latency_p99_ns".to_owned(), row);
    let mut all = Spread::default();
    latency.iter().for_each(|cpu| all.merge(cpu));
    result.histograms.insert("wakeup_latency_ns".to_owned(), all.histogram());
}

/// What the kernel has told of calls and of switches between tasks, if it was asked.
fn tell_kernel(ran: &LiveRun, result: &mut SeedResult) {
    let Some(seen) = &ran.seen else { return };
    let ours = |call: &&Call| matches!(call.side, Side::Ours | Side::Exiting);
    let calls = || seen.calls.iter().filter(ours);
    let flushes = || calls().filter(|call| FLUSHES.contains(&call.function.as_str()));
    result.metric("flush_calls", flushes().map(|call| call.total.count).sum::<u64>());
    result.metric(
        "other_calls",
        calls().map(|call| call.total.count).sum::<u64>()
            - flushes().map(|call| call.total.count).sum::<u64>(),
    );
    let count: u64 = flushes().map(|call| call.delivery.count).sum();
    if count > 0 {
        let total: u64 = flushes().map(|call| call.delivery.total_ns).sum();
        result.metric("flush_delivery_mean_ns", total as f64 / count as f64);
        let longest = flushes().map(|call| call.delivery.max_ns).max();
        result.metric("flush_delivery_max_ns", longest.unwrap_or(0));
        let longest = flushes().map(|call| call.run.max_ns).max();
        result.metric("flush_run_max_ns", longest.unwrap_or(0));
    }
    if seen.resched.count > 0 {
        result.metric("resched_delay_mean_ns", seen.resched.mean_ns());
        result.metric("resched_delay_max_ns", seen.resched.max_ns);
        result.histograms.insert("resched_delay_ns".to_owned(), seen.resched.histogram());
    }
}
