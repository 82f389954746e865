//! The results of the study: metrics, distributions, and the longest sections.
//!
//! On the live kernel, sections with preemption off can be observed only by a tracer that has a
//! cost in each section. There, `resched_delay` replaces them: the time for which a CPU continues
//! after a reschedule request. It covers only sections in which another task was waiting, and only
//! the part after the request.

use super::threads::workers;
use super::{CALLS, Ipi, WAKEUPS, Work};
use mmscale_document::{Call, Durations, Side, Watched};
use mmscale_harness::{
    LiveRun, Measured, Metric, Missing, Seen, Times, higher, lower, metric, value,
};
use mmscale_mm::smp::CallStats;
use mmscale_mm::stack::StackStats;
use mmscale_mm::vmap::VmapStats;
use mmscale_sim::{CpuSections, LoopRow, SECTION_LIMITS_NS};

/// Section lengths that are counted, as indices into [`SECTION_LIMITS_NS`].
pub(super) const OVER_1MS: usize = 0;
pub(super) const OVER_10MS: usize = 1;
const OVER_50MS: usize = 2;
const _: () = assert!(matches!(SECTION_LIMITS_NS, [1_000_000, 10_000_000, 50_000_000]));
/// Functions by which the live kernel makes other CPUs flush translations.
const FLUSHES: [&str; 3] = ["flush_tlb_func", "do_flush_tlb_all", "do_kernel_range_flush"];

/// Every metric, in the order in which tables show them.
pub(super) const METRICS: &[Metric<Ipi>] = &[
    lower(
        "preempt_off_max_window_p50_ns",
        "ns",
        "median over windows of the longest section with preemption off, worst CPU",
        |seen| worst_window(seen, 50),
    ),
    lower(
        "preempt_off_max_window_p99_ns",
        "ns",
        "p99 over windows of the longest section with preemption off, worst CPU",
        |seen| worst_window(seen, 99),
    ),
    lower(
        "preempt_off_p50_workers_ns",
        "ns",
        "median over windows of the longest section with preemption off, middle working CPU",
        |seen| middle_window(seen, Group::Workers),
    ),
    lower(
        "preempt_off_p50_pollers_ns",
        "ns",
        "median over windows of the longest section with preemption off, middle polling CPU",
        |seen| middle_window(seen, Group::Pollers),
    ),
    lower("preempt_off_max_ns", "ns", "longest section with preemption off of any CPU", |seen| {
        let all = seen.sections()?.iter().flat_map(|cpu| &cpu.window_max_ns);
        value(all.copied().max().unwrap_or(0))
    }),
    lower(
        "preempt_off_over_1ms",
        "1",
        "sections with preemption off longer than 1 ms, all CPUs",
        |seen| sections_over(seen, OVER_1MS),
    ),
    lower(
        "preempt_off_over_10ms",
        "1",
        "sections with preemption off longer than 10 ms, all CPUs",
        |seen| sections_over(seen, OVER_10MS),
    ),
    lower(
        "preempt_off_over_50ms",
        "1",
        "sections with preemption off longer than 50 ms, all CPUs",
        |seen| sections_over(seen, OVER_50MS),
    ),
    lower(
        "preempt_off_over_1ms_for_calls",
        "1",
        "sections with preemption off that waited more than 1 ms for cross-CPU calls, all CPUs",
        |seen| value(waits_for_calls(seen)?.map(|row| row.over[OVER_1MS]).sum::<u64>()),
    ),
    lower(
        "preempt_off_in_call_max_ns",
        "ns",
        "longest wait for cross-CPU calls within one section with preemption off",
        |seen| value(waits_for_calls(seen)?.map(|row| row.max_ns).max().unwrap_or(0)),
    ),
    lower(
        "preempt_off_queue_phase_max_ns",
        "ns",
        "longest time from the start of a cross-CPU call to its last IPI, with preemption off",
        |seen| value(seen.inside()?[1].calls.preempt_off_queue_phase_max_ns),
    ),
    lower(
        "wakeup_latency_p50_ns",
        "ns",
        "median wake-up latency of the highest-priority task, worst CPU",
        |seen| worst_wakeup(seen, |cpu| cpu.percentile_ns(50)),
    ),
    lower(
        "wakeup_latency_p99_ns",
        "ns",
        "p99 wake-up latency of the highest-priority task, worst CPU",
        |seen| worst_wakeup(seen, |cpu| cpu.percentile_ns(99)),
    ),
    lower(
        "wakeup_latency_max_ns",
        "ns",
        "longest wake-up latency of the highest-priority task of any CPU",
        |seen| worst_wakeup(seen, Times::max_ns),
    ),
    lower(
        "csd_wait_total_ns",
        "ns",
        "total wait of callers for completion of cross-CPU calls, preemption on or off",
        |seen| value(csd_waits(seen)?.total_ns()),
    ),
    lower(
        "csd_wait_max_ns",
        "ns",
        "longest single wait of a caller for completion of a cross-CPU call",
        |seen| value(csd_waits(seen)?.max_ns()),
    ),
    lower(
        "csd_wait_cpu_ns",
        "ns",
        "CPU time spent spinning for completion of cross-CPU calls",
        |seen| {
            seen.sections()?;
            let spins = seen.calls()?.iter().filter(|row| row.path.iter().any(|s| is_wait(s)));
            value(spins.map(|row| row.self_ns).sum::<u64>())
        },
    ),
    metric(
        "call_sleeps",
        "1",
        "number of times that a caller slept until its cross-CPU call completed",
        |seen| counted(seen, |stats| stats.sleeps),
    ),
    lower(
        "ipis_sent",
        "1",
        "inter-processor interrupts sent for cross-CPU calls and TLB flushes",
        |seen| counted(seen, |stats| stats.ipis_sent),
    ),
    metric(
        "ipis_elided",
        "1",
        "cross-CPU calls queued without an IPI, because one was already pending",
        |seen| counted(seen, |stats| stats.ipis_elided),
    ),
    metric("flushes", "1", "TLB flush operations of the memory manager", |seen| {
        counted(seen, |stats| stats.flushes)
    }),
    lower(
        "frames_in_limbo_max",
        "pages",
        "maximum number of frames waiting in limbo until all CPUs have flushed",
        |seen| value(seen.inside()?[1].calls.frames_in_limbo_max),
    ),
    lower(
        "limbo_age_max_ns",
        "ns",
        "longest time that a frame waited in limbo until all CPUs had flushed",
        |seen| value(seen.inside()?[1].calls.limbo_age_max_ns),
    ),
    metric("vmap_purges", "1", "flushes of the kernel's vmap range (spawn)", |seen| {
        let [before, after] = kernel_range(seen)?;
        value(after.purges.saturating_sub(before.purges))
    }),
    lower(
        "vmap_lazy_pages_max",
        "pages",
        "maximum number of lazily freed vmap pages waiting for a flush (spawn)",
        |seen| value(kernel_range(seen)?[1].lazy_pages_max),
    ),
    metric("stacks_given", "1", "task stacks handed out to new threads (spawn)", |seen| {
        let [before, after] = stacks(seen)?;
        value(after.given.saturating_sub(before.given))
    }),
    higher(
        "stack_reuse_share",
        "1",
        "share of task stacks that came from a CPU's stack cache (spawn)",
        |seen| {
            let [before, after] = stacks(seen)?;
            match after.given.saturating_sub(before.given) {
                0 => Err(Missing::Nothing),
                given => value((after.reused - before.reused) as f64 / given as f64),
            }
        },
    ),
    lower(
        "call_memory_bytes",
        "bytes",
        "memory used for cross-CPU calls: records, queues, CPU masks",
        |seen| value(seen.inside()?[1].call_memory_bytes),
    ),
    higher("ops_per_s", "1/s", "ops per second of the working CPUs", |seen| {
        value(seen.tally.ops as f64 / seconds(seen))
    }),
    higher(
        "calls_per_s",
        "1/s",
        "system calls per second of ops that change translations or create a thread",
        |seen| value(call_times(seen)[0] as f64 / seconds(seen)),
    ),
    lower(
        "call_mean_ns",
        "ns",
        "mean duration of system calls that change translations or create a thread",
        |seen| {
            let [count, total_ns, _] = call_times(seen);
            value(total_ns as f64 / count as f64)
        },
    ),
    lower(
        "call_max_ns",
        "ns",
        "longest system call that changes translations or creates a thread",
        |seen| match call_times(seen) {
            [0, ..] => Err(Missing::Nothing),
            [.., max_ns] => value(max_ns),
        },
    ),
    lower("op_failures", "1", "ops that failed for lack of memory", |seen| {
        value(seen.tally.failures)
    }),
    metric(
        "flush_calls",
        "1",
        "cross-CPU calls of the run's processes to flush translations (live)",
        |seen| value(calls(seen, true)?.map(|call| call.total.count).sum::<u64>()),
    ),
    metric(
        "other_calls",
        "1",
        "cross-CPU calls of the run's processes other than flushes (live)",
        |seen| value(calls(seen, false)?.map(|call| call.total.count).sum::<u64>()),
    ),
    lower(
        "flush_delivery_mean_ns",
        "ns",
        "mean time from a flush call until its function starts on the target CPU (live)",
        |seen| {
            let total_ns: u64 = calls(seen, true)?.map(|call| call.delivery.total_ns).sum();
            value(total_ns as f64 / delivered(seen)? as f64)
        },
    ),
    lower(
        "flush_delivery_max_ns",
        "ns",
        "longest time from a flush call until its function starts on the target CPU (live)",
        |seen| {
            delivered(seen)?;
            value(calls(seen, true)?.map(|call| call.delivery.max_ns).max().unwrap_or(0))
        },
    ),
    lower(
        "flush_run_max_ns",
        "ns",
        "longest run time of a flush function on a target CPU (live)",
        |seen| {
            delivered(seen)?;
            value(calls(seen, true)?.map(|call| call.run.max_ns).max().unwrap_or(0))
        },
    ),
    lower(
        "resched_delay_mean_ns",
        "ns",
        "mean time from a reschedule request until the next task runs (live)",
        |seen| value(resched(seen)?.mean_ns()),
    ),
    lower(
        "resched_delay_max_ns",
        "ns",
        "longest time from a reschedule request until the next task runs (live)",
        |seen| value(resched(seen)?.max_ns),
    ),
];

fn worst_window(seen: &Seen<'_, Ipi>, percent: u64) -> Measured {
    let of_cpu = seen.sections()?.iter().map(|cpu| window_percentile(cpu, percent));
    value(of_cpu.max().unwrap_or(0))
}
/// The CPUs that work, or the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Workers,
    Pollers,
}

/// Returns the median over windows of the longest section, of the CPU in the middle of a group.
fn middle_window(seen: &Seen<'_, Ipi>, group: Group) -> Measured {
    let sections = seen.sections()?;
    let working = workers(sections.len());
    let of_group = sections.iter().enumerate().filter(|(cpu, _)| {
        let works = seen.plan.work == Work::Flush || working.contains(cpu);
        works == (group == Group::Workers)
    });
    let mut medians_ns: Vec<u64> = of_group.map(|(_, cpu)| window_percentile(cpu, 50)).collect();
    medians_ns.sort_unstable();
    value(*medians_ns.get(medians_ns.len() / 2).ok_or(Missing::Nothing)?)
}
pub(super) fn window_percentile(cpu: &CpuSections, percent: u64) -> u64 {
    Times::of(cpu.window_max_ns.clone()).percentile_ns(percent)
}
fn sections_over(seen: &Seen<'_, Ipi>, limit: usize) -> Measured {
    value(seen.sections()?.iter().map(|cpu| cpu.over[limit]).sum::<u64>())
}
/// Returns whether a function waits until other CPUs complete a call or release its record.
fn is_wait(function: &str) -> bool {
    ["csd_lock", "csd_lock_wait"].contains(&function)
}
/// Returns the wait loops with preemption off for completion of calls, excluding waits for a lock
/// owner.
fn waits_for_calls<'a>(seen: &Seen<'a, Ipi>) -> Result<impl Iterator<Item = &'a LoopRow>, Missing> {
    let is_call = |step: &String| is_wait(step) || step == "smp_call_function_many_cond";
    let all = seen.sections()?.iter().flat_map(|cpu| &cpu.loops);
    Ok(all.filter(move |row| row.path.iter().any(is_call)))
}
/// Returns the wake-up latencies of watchmen, by CPU. [`Missing`] if none was recorded.
pub(super) fn wakeups(seen: &Seen<'_, Ipi>) -> Result<Vec<Times>, Missing> {
    let by_cpu = seen.samples(WAKEUPS);
    let any = by_cpu.iter().any(|cpu| cpu.count() > 0);
    if any { Ok(by_cpu) } else { Err(Missing::Nothing) }
}
fn worst_wakeup(seen: &Seen<'_, Ipi>, of: fn(&Times) -> u64) -> Measured {
    value(wakeups(seen)?.iter().map(of).max().unwrap_or(0))
}
pub(super) fn csd_waits(seen: &Seen<'_, Ipi>) -> Result<Times, Missing> {
    Ok(Times::of(seen.meters()?.iter().flat_map(|cpu| &cpu.waits_ns).copied().collect()))
}
/// Returns the increase of a counter of calls during the windows.
fn counted(seen: &Seen<'_, Ipi>, of: fn(&CallStats) -> u64) -> Measured {
    let [before, after] = *seen.inside()?;
    value(of(&after.calls).saturating_sub(of(&before.calls)))
}
/// Returns the stack counters at the start and at the end of the windows. [`Missing`] if tasks have
/// no stacks of their own.
fn stacks(seen: &Seen<'_, Ipi>) -> Result<[StackStats; 2], Missing> {
    let counted = seen.inside()?.map(|counted| counted.stacks);
    if counted[1].given > 0 { Ok(counted) } else { Err(Missing::Nothing) }
}
/// The kernel's own range when the windows began, and when they ended; [`Missing`] where no stack
/// is mapped there.
fn kernel_range(seen: &Seen<'_, Ipi>) -> Result<[VmapStats; 2], Missing> {
    stacks(seen)?;
    Ok(seen.inside()?.map(|counted| counted.kernel_range))
}
fn seconds(seen: &Seen<'_, Ipi>) -> f64 {
    seen.window_ns() as f64 / 1e9
}
/// Returns number, total and maximum (in ns) of the calls of ops.
fn call_times(seen: &Seen<'_, Ipi>) -> [u64; 3] {
    seen.samples(CALLS).iter().fold([0; 3], |[count, total_ns, max_ns], cpu| {
        [count + cpu.count(), total_ns + cpu.total_ns(), max_ns.max(cpu.max_ns())]
    })
}
fn watched(live: &LiveRun) -> Result<&Watched, Missing> {
    live.seen.as_ref().ok_or(Missing::UNWATCHED)
}
/// Returns the cross-CPU calls of the run's processes on the live kernel: flushes, or all others.
fn calls<'a>(
    seen: &Seen<'a, Ipi>,
    flushes: bool,
) -> Result<impl Iterator<Item = &'a Call>, Missing> {
    let ours = |call: &&Call| matches!(call.side, Side::Ours | Side::Exiting);
    let wanted = move |call: &&Call| FLUSHES.contains(&call.function.as_str()) == flushes;
    Ok(watched(seen.live()?)?.calls.iter().filter(ours).filter(wanted))
}
/// Returns the number of flushes whose function started. [`Missing`] if none did.
fn delivered(seen: &Seen<'_, Ipi>) -> Result<u64, Missing> {
    match calls(seen, true)?.map(|call| call.delivery.count).sum() {
        0 => Err(Missing::Nothing),
        count => Ok(count),
    }
}
pub(super) fn resched<'a>(seen: &Seen<'a, Ipi>) -> Result<&'a Durations, Missing> {
    let resched = &watched(seen.live()?)?.resched;
    if resched.count > 0 { Ok(resched) } else { Err(Missing::Nothing) }
}
