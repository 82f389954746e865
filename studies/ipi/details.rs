//! Contents of a document without metrics: values of single CPUs, distributions, the longest
//! sections.

use super::Ipi;
use super::metrics::{OVER_1MS, OVER_10MS, csd_waits, resched, wakeups, window_percentile};
use mmscale_document::{Histogram, PerCpu, SectionRecord, SectionWait};
use mmscale_harness::{SeedResult, Seen, powers_of_two};
use mmscale_sim::{CpuSections, SECTION_BUCKETS, Section, Waited};

/// Number of sections that a document contains, over all CPUs.
const KEPT: usize = 8;

/// Adds values of single CPUs, histograms, and the longest sections.
pub(super) fn details(seen: &Seen<'_, Ipi>, result: &mut SeedResult) {
    let mut add = |name: &str, unit: &str, values: Vec<u64>| {
        let values = values.into_iter().map(|n| n as f64).collect();
        result.per_cpu.insert(name.to_owned(), PerCpu { unit: unit.to_owned(), values });
    };
    let sections = seen.sections().unwrap_or_default();
    if !sections.is_empty() {
        let of = |figure: &dyn Fn(&CpuSections) -> u64| sections.iter().map(figure).collect();
        add("preempt_off_max_window_p50_ns", "ns", of(&|cpu| window_percentile(cpu, 50)));
        add("preempt_off_max_window_p99_ns", "ns", of(&|cpu| window_percentile(cpu, 99)));
        add("preempt_off_over_1ms", "1", of(&|cpu| cpu.over[OVER_1MS]));
        add("preempt_off_over_10ms", "1", of(&|cpu| cpu.over[OVER_10MS]));
    }
    let mut delays = Histogram { unit: "ns".to_owned(), buckets: Vec::new() };
    if let Ok(by_cpu) = wakeups(seen) {
        let p99 = by_cpu.iter().map(|cpu| cpu.percentile_ns(99)).collect();
        add("wakeup_latency_p99_ns", "ns", p99);
        by_cpu.iter().for_each(|cpu| delays.merge(&cpu.histogram()));
        if seen.live().is_ok() {
            let urgent = seen.tally.urgent as f64;
            result.host_metrics.insert("watchmen_urgent".to_owned(), urgent);
        }
    }
    let mut buckets = [0; SECTION_BUCKETS];
    for cpu in sections {
        cpu.buckets.iter().zip(&mut buckets).for_each(|(count, sum)| *sum += count);
    }
    let histograms = [
        ("preempt_off_ns", Ok(powers_of_two(&buckets))),
        ("wakeup_latency_ns", Ok(delays)),
        ("csd_wait_ns", csd_waits(seen).map(|waits| waits.histogram())),
        ("resched_delay_ns", resched(seen).map(|delays| delays.histogram())),
    ];
    let known = histograms.into_iter().filter_map(|(name, of)| Some((name.to_owned(), of.ok()?)));
    result.histograms.extend(known.filter(|(_, histogram)| !histogram.buckets.is_empty()));
    result.sections = longest(sections, seen.env.seed);
}

/// Returns the longest sections of all CPUs, in descending order.
fn longest(sections: &[CpuSections], seed: u64) -> Vec<SectionRecord> {
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
        path: section.path.clone(),
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
