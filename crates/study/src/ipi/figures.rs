//! The figures of the study: their names, which are fixed, and how each is computed.

use super::probe::IpiProbe;
use super::workload::Tally;
use crate::param::Params;
use crate::study::{MetricSpec, SeedResult, TooShort, figure};
use mmscale_document::{CallRow, Histogram, On, PerCpu, SectionRecord, SectionWait};
use mmscale_mm::smp::CallStats;
use mmscale_sim::{CpuSections, LoopRow, SECTION_LIMITS_NS, Section, Waited};

/// Every figure, in the order in which tables show them.
pub(super) const METRICS: &[MetricSpec] = &[
    figure("preempt_off_max_window_p50_ns", "ns", "longest section of a window, median, worst CPU"),
    figure("preempt_off_max_window_p99_ns", "ns", "and its 99th percentile, worst CPU"),
    figure("preempt_off_max_ns", "ns", "the longest section of all"),
    figure("preempt_off_over_1ms", "1", "sections longer than 1 ms, all CPUs"),
    figure("preempt_off_over_10ms", "1", "longer than 10 ms"),
    figure("preempt_off_over_50ms", "1", "longer than 50 ms"),
    figure(
        "preempt_off_over_1ms_for_calls",
        "1",
        "sections that waited for a call longer than 1 ms",
    ),
    figure("preempt_off_in_call_max_ns", "ns", "longest wait for a call within a section"),
    figure("preempt_off_queue_phase_max_ns", "ns", "longest way from a call to its last IPI"),
    figure("wakeup_latency_p50_ns", "ns", "how late the most urgent task runs, worst CPU"),
    figure("wakeup_latency_p99_ns", "ns", "99th percentile, worst CPU"),
    figure("wakeup_latency_max_ns", "ns", "the latest of all"),
    figure("csd_wait_total_ns", "ns", "waits for other CPUs' answers, preemption on or off"),
    figure("csd_wait_max_ns", "ns", "the longest"),
    figure("csd_wait_cpu_ns", "ns", "CPU time spent waiting so: asleep and preempted is not"),
    figure("call_sleeps", "1", "times that a caller went to sleep for its answer"),
    figure("ipis_sent", "1", "interrupts from CPU to CPU for calls and flushes"),
    figure("ipis_elided", "1", "calls queued behind others, without an interrupt"),
    figure("flushes", "1", "invalidations of translations"),
    figure("frames_in_limbo_max", "1", "frames that wait for generations"),
    figure("limbo_age_max_ns", "ns", "the longest that one of them waited"),
    figure("call_memory_bytes", "bytes", "memory for calls: records, queues, masks"),
    figure("ops_per_s", "1/s", "ops of the working CPUs"),
    figure("calls_per_s", "1/s", "calls of these that change translations"),
    figure("call_mean_ns", "ns", "how long such a call took"),
    figure("call_max_ns", "ns", "the longest"),
    figure("op_failures", "1", "ops that had no memory"),
    figure("flush_calls", "1", "times that a CPU was called to forget translations (linux)"),
    figure("other_calls", "1", "times that a CPU was called for something else (linux)"),
    figure("flush_delivery_mean_ns", "ns", "from such a flush to its function (linux)"),
    figure("flush_delivery_max_ns", "ns", "the longest"),
    figure("flush_run_max_ns", "ns", "the longest that the function ran (linux)"),
    figure("resched_delay_mean_ns", "ns", "a CPU is to run another task, until it does (linux)"),
    figure("resched_delay_max_ns", "ns", "the longest"),
];

/// Windows without which a 99th percentile is the largest value.
const NEEDED_WINDOWS: u64 = 100;

/// The figures for which a run has too few windows.
pub(super) fn too_short(params: &Params, on: On) -> Vec<TooShort> {
    let has_windows = on != On::Linux && params.choice("workload") != "flush";
    let few = has_windows && params.count("windows") < NEEDED_WINDOWS;
    let p99 = few.then(|| TooShort {
        metrics: vec!["preempt_off_max_window_p99_ns"],
        needs: format!(
            "windows={NEEDED_WINDOWS} or more: a 99th percentile of fewer is the largest"
        ),
    });
    p99.into_iter().collect()
}

/// Sections of all CPUs that a record keeps.
const KEPT: usize = 8;

/// What one run of the machine left.
pub(super) struct Observed<'a> {
    pub(super) cpus: usize,
    pub(super) window_ns: u64,
    /// Empty where sections cannot be seen.
    pub(super) sections: &'a [CpuSections],
    pub(super) probes: &'a [IpiProbe],
    pub(super) tally: &'a Tally,
    /// What was counted until the time that counts began, and until it ended.
    pub(super) counted: [CallStats; 2],
    /// CPU time by call path; empty where it is not measured.
    pub(super) calls: &'a [CallRow],
}

/// The smallest value that `percent` of 100 of the values do not exceed (nearest rank); 0 of none.
fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Fills in every figure of one run.
pub(super) fn measure(seen: &Observed<'_>, result: &mut SeedResult) {
    measure_sections(seen.sections, result);
    measure_wakeups(seen, result);
    measure_calls(seen, result);
    let seconds = seen.window_ns as f64 / 1e9;
    let calls = &seen.tally.call_ns;
    result.metric("ops_per_s", seen.tally.ops as f64 / seconds);
    result.metric("calls_per_s", calls.len() as f64 / seconds);
    if !calls.is_empty() {
        let total: u64 = calls.iter().sum();
        result.metric("call_mean_ns", total as f64 / calls.len() as f64);
        result.metric("call_max_ns", calls.iter().copied().max().unwrap_or(0));
    }
    result.metric("op_failures", seen.tally.failures);
}

/// Whether a loop waits for other CPUs to answer a call, and not for the owner of a lock.
fn is_call(row: &LoopRow) -> bool {
    row.path.iter().any(|step| is_wait(step) || *step == "smp_call_function_many_cond")
}

fn measure_sections(sections: &[CpuSections], result: &mut SeedResult) {
    if sections.is_empty() {
        return;
    }
    let worst = |percent| {
        let each = sections.iter().map(|cpu| percentile(&cpu.window_max_ns, percent));
        each.max().unwrap_or(0)
    };
    result.metric("preempt_off_max_window_p50_ns", worst(50));
    result.metric("preempt_off_max_window_p99_ns", worst(99));
    let all = sections.iter().flat_map(|cpu| &cpu.window_max_ns);
    result.metric("preempt_off_max_ns", all.copied().max().unwrap_or(0));
    let names = ["preempt_off_over_1ms", "preempt_off_over_10ms", "preempt_off_over_50ms"];
    const _: () = assert!(matches!(SECTION_LIMITS_NS, [1_000_000, 10_000_000, 50_000_000]));
    for (at, name) in names.into_iter().enumerate() {
        result.metric(name, sections.iter().map(|cpu| cpu.over[at]).sum::<u64>());
    }
    let calls = || sections.iter().flat_map(|cpu| &cpu.loops).filter(|row| is_call(row));
    let over: u64 = calls().map(|row| row.over[0]).sum();
    result.metric("preempt_off_over_1ms_for_calls", over);
    let longest = calls().map(|row| row.max_ns).max();
    result.metric("preempt_off_in_call_max_ns", longest.unwrap_or(0));
}

fn measure_calls(seen: &Observed<'_>, result: &mut SeedResult) {
    let waits = || seen.probes.iter().flat_map(|probe| &probe.waits_ns).copied();
    result.metric("csd_wait_total_ns", waits().sum::<u64>());
    result.metric("csd_wait_max_ns", waits().max().unwrap_or(0));
    let spins = seen.calls.iter().filter(|row| row.path.iter().any(|step| is_wait(step)));
    if !seen.sections.is_empty() {
        result.metric("csd_wait_cpu_ns", spins.map(|row| row.self_ns).sum::<u64>());
    }
    let [before, after] = seen.counted;
    let counted = |of: fn(&CallStats) -> u64| of(&after).saturating_sub(of(&before));
    result.metric("ipis_sent", counted(|stats| stats.ipis_sent));
    result.metric("ipis_elided", counted(|stats| stats.ipis_elided));
    result.metric("flushes", counted(|stats| stats.flushes));
    result.metric("call_sleeps", counted(|stats| stats.sleeps));
    result.metric("preempt_off_queue_phase_max_ns", after.preempt_off_queue_phase_max_ns);
    result.metric("frames_in_limbo_max", after.frames_in_limbo_max);
    result.metric("limbo_age_max_ns", after.limbo_age_max_ns);
    result.metric("call_memory_bytes", after.call_memory_bytes);
}

/// Whether a function waits for other CPUs to answer, or to be done with a record.
fn is_wait(function: &str) -> bool {
    ["csd_lock", "csd_lock_wait"].contains(&function)
}

/// What a CPU's watchman noted, for each CPU.
fn latencies(seen: &Observed<'_>) -> Vec<Vec<u64>> {
    let mut by_cpu = vec![Vec::new(); seen.cpus];
    for &(cpu, ns) in &seen.tally.latency_ns {
        by_cpu[cpu].push(ns);
    }
    by_cpu
}

fn measure_wakeups(seen: &Observed<'_>, result: &mut SeedResult) {
    let by_cpu = latencies(seen);
    let Some(max) = by_cpu.iter().flatten().copied().max() else { return };
    let worst = |percent| by_cpu.iter().map(|ns| percentile(ns, percent)).max().unwrap_or(0);
    result.metric("wakeup_latency_p50_ns", worst(50));
    result.metric("wakeup_latency_p99_ns", worst(99));
    result.metric("wakeup_latency_max_ns", max);
}

/// Figures of each CPU, and histograms.
pub(super) fn distributions(seen: &Observed<'_>, result: &mut SeedResult) {
    let mut add = |name: &str, unit: &str, values: Vec<f64>| {
        result.per_cpu.insert(name.to_owned(), PerCpu { unit: unit.to_owned(), values });
    };
    let of = |figure: &dyn Fn(&CpuSections) -> u64| -> Vec<f64> {
        seen.sections.iter().map(|cpu| figure(cpu) as f64).collect()
    };
    if !seen.sections.is_empty() {
        let p99 = of(&|cpu| percentile(&cpu.window_max_ns, 99));
        add("preempt_off_max_window_p99_ns", "ns", p99);
        add("preempt_off_over_1ms", "1", of(&|cpu| cpu.over[0]));
        add("preempt_off_over_10ms", "1", of(&|cpu| cpu.over[1]));
    }
    let by_cpu = latencies(seen);
    if by_cpu.iter().any(|ns| !ns.is_empty()) {
        let p99 = by_cpu.iter().map(|ns| percentile(ns, 99) as f64).collect();
        add("wakeup_latency_p99_ns", "ns", p99);
    }
    let mut sum = vec![0; mmscale_sim::SECTION_BUCKETS];
    for cpu in seen.sections {
        cpu.buckets.iter().zip(&mut sum).for_each(|(count, sum)| *sum += count);
    }
    let mut delays = vec![0; 64];
    by_cpu.iter().flatten().for_each(|ns| delays[ns.max(&1).ilog2() as usize] += 1);
    let mut waits = vec![0; 64];
    let all = seen.probes.iter().flat_map(|probe| &probe.waits_ns);
    all.for_each(|ns| waits[ns.max(&1).ilog2() as usize] += 1);
    let names = ["preempt_off_ns", "wakeup_latency_ns", "csd_wait_ns"];
    for (name, counts) in names.into_iter().zip([sum, delays, waits]) {
        let histogram = histogram(&counts);
        if !histogram.buckets.is_empty() {
            result.histograms.insert(name.to_owned(), histogram);
        }
    }
}

/// Counts by powers of two as a histogram.
fn histogram(counts: &[u64]) -> Histogram {
    let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let low = |bucket: usize| if bucket == 0 { 0 } else { 1 << bucket };
    let buckets = filled.map(|(bucket, &count)| [low(bucket), 2 << bucket, count]).collect();
    Histogram { unit: "ns".to_owned(), buckets }
}

/// The longest sections of all CPUs, longest first.
pub(super) fn longest(sections: &[CpuSections], seed: u64) -> Vec<SectionRecord> {
    let mut all: Vec<&Section> = sections.iter().flat_map(|cpu| &cpu.longest).collect();
    all.sort_by_key(|section| (std::cmp::Reverse(section.ns), section.cpu, section.begin_ns));
    all.into_iter().take(KEPT).map(|section| record(section, seed)).collect()
}

fn record(section: &Section, seed: u64) -> SectionRecord {
    let wait = |&(what, ns): &(Waited, u64)| SectionWait { what: name_of(what), ns };
    let mut waits: Vec<SectionWait> = section.waits.iter().map(wait).collect();
    if let Some(target) = section.target {
        let others = waits.iter_mut().find(|wait| wait.what == name_of(Waited::Loop));
        if let Some(wait) = others {
            wait.what = target.to_string();
        }
    }
    SectionRecord {
        seed,
        cpu: section.cpu.index() as u32,
        begin_ns: section.begin_ns,
        ns: section.ns,
        path: section.path.iter().map(|&step| step.to_owned()).collect(),
        waits,
    }
}

fn name_of(waited: Waited) -> String {
    match waited {
        Waited::Lock(class) => format!("{} lock", class.name()),
        Waited::Loop => "others, in a loop".to_owned(),
        Waited::Stolen => "stolen".to_owned(),
        Waited::Handler => "another handler".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&values, percent)), [50, 99, 100]);
        assert_eq!((percentile(&[7], 99), percentile(&[], 99)), (7, 0));
        assert_eq!(percentile(&[1, 2], 50), 1);
    }

    #[test]
    fn buckets_are_powers_of_two_and_none_is_empty() {
        let filled = histogram(&[3, 0, 5]);
        assert_eq!(filled.buckets, [[0, 2, 3], [4, 8, 5]]);
    }
}
