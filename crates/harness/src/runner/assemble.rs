//! Assembles a document from the results of single runs.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_document::{
    ArmRecord, Average, BlameRecord, CallRecord, CpuTimeRecord, CriticalPath, Document,
    FailureRecord, Fingerprint, GapRecord, Histogram, Kept, LineRecord, LockRecord, Looks, Metric,
    NamedLockRecord, PerCpu, SCHEMA, Target, Unsettled, Value,
};

use mmscale_kernel::coverage::{CallSet, Gap, Scope};
use mmscale_script::Script;
use mmscale_stats as stats;

use super::Job;
use crate::host::host;
use crate::plan::Plan;
use crate::study::versions::linux_record;
use crate::study::{ArmId, MetricSpec, SeedResult, TooShort};

/// Results of one arm, with their seeds.
type Runs<'a> = [(u64, &'a SeedResult)];

/// Returns the length of the window; `None` if arms have windows of different lengths.
fn common_window(results: &[(Job, SeedResult)]) -> Option<u64> {
    let mut lengths = results.iter().map(|(_, run)| run.window_ns);
    let first = lengths.next()?;
    first.filter(|_| lengths.all(|length| length == first))
}

/// Returns the document of a plan. `results` are ordered by seed, then by arm; runs without a
/// result are in `failures`, and `unsettled` is what a first look left, if there was one.
pub(super) fn document(
    plan: &Plan,
    results: &[(Job, SeedResult)],
    failures: Vec<FailureRecord>,
    unsettled: Option<Vec<Unsettled>>,
) -> Document {
    let of_arm = |&arm: &ArmId| -> Vec<(u64, &SeedResult)> {
        let own = results.iter().filter(|(job, _)| job.arm == arm);
        own.map(|(job, result)| (job.seed, result)).collect()
    };
    let arms: Vec<Vec<(u64, &SeedResult)>> = plan.arms.iter().map(of_arm).collect();
    let means = Means {
        rates: positive_rates(plan.study.metrics(), results),
        first_look: unsettled.as_ref().is_some_and(Vec::is_empty),
    };
    Document {
        schema: SCHEMA.to_owned(),
        build: plan.origin.build.clone(),
        program: plan.origin.program.clone(),
        command: plan.origin.command.clone(),
        study: plan.study.name().to_owned(),
        study_file_hash: plan.study.file_hash().map(str::to_owned),
        script: plan.study.script().map(|script| script.text().to_owned()),
        on: plan.on,
        profile: plan.profile_name.clone(),
        profile_hash: plan.profile.as_ref().map(|profile| format!("{:016x}", profile.hash)),
        profile_bases: plan.profile.as_ref().map_or(vec![], |profile| profile.bases.clone()),
        linux: plan.linux.map(linux_record),
        cpus: plan.cpus as u32,
        topology: plan.topology.clone(),
        hz: plan.hz,
        window_ns: common_window(results),
        params: plan.shown_params(),
        left_out: left_out(plan, results),
        not_simulated: not_simulated(plan, results),
        host: host(),
        fingerprint: fingerprint(&arms, plan.study.script()),
        arms: plan.arms.iter().zip(&arms).map(|(&id, runs)| arm(plan, id, runs, &means)).collect(),
        looks: unsettled.map(looks),
        failures,
        checksum: None,
    }
    .sealed()
}

fn looks(unsettled: Vec<Unsettled>) -> Looks {
    let (first, second) = (stats::FIRST_LOOK as u32, stats::SECOND_LOOK as u32);
    Looks { first, second, margin_percent: stats::MARGIN_PERCENT, unsettled }
}

/// Returns the metrics that no run has, with what each needs: a longer run, or a machine that
/// provides its source.
fn left_out(plan: &Plan, results: &[(Job, SeedResult)]) -> BTreeMap<String, String> {
    let runs = || results.iter().map(|(_, run)| run);
    let missing = runs().flat_map(|run| &run.missing);
    let missing = missing.filter(|(name, _)| !runs().any(|run| run.metrics.contains_key(*name)));
    let mut all: BTreeMap<String, String> =
        missing.map(|(name, needs)| ((*name).to_owned(), (*needs).to_owned())).collect();
    for TooShort { metrics, needs } in plan.study.too_short(&plan.params, plan.on) {
        all.extend(metrics.into_iter().map(|metric| (metric.to_owned(), needs.clone())));
    }
    all
}

/// A script without memory groups.
const ONE_GROUP: Gap = Gap {
    name: "memory groups (all processes are in one, and share its lruvec of each node)",
    scope: Scope::Work,
    what: "a group for each container, with LRU lists and a lock of its own on each node",
    file: "mm/memcontrol.c",
    calls: &[],
    once: None,
    unless: None,
};

/// A script with exec on the live kernel.
const NO_NEW_SPACE: Gap = Gap {
    name: "new address spaces at exec() (it unmaps all memory of the program)",
    scope: Scope::Work,
    what: "an address space, with its counts on each CPU, and its end",
    file: "fs/exec.c",
    ..ONE_GROUP
};

/// Returns the locks and mechanisms of Linux that the calls of all runs reach, and that are not
/// simulated.
fn not_simulated(plan: &Plan, results: &[(Job, SeedResult)]) -> Vec<GapRecord> {
    let made = results.iter().fold(CallSet::default(), |all, (_, run)| all.and(run.made));
    let record = |gap: &Gap| GapRecord {
        name: gap.name.to_owned(),
        shared_by: gap.scope.name().to_owned(),
        what: gap.what.to_owned(),
        file: gap.file.to_owned(),
    };
    let of_script = |gap: &'static Gap, has: fn(&Script) -> bool| {
        plan.study.script().filter(|script| has(script)).map(|_| gap)
    };
    let in_one = of_script(&ONE_GROUP, |script| !script.has_memory_groups());
    let no_new_space =
        of_script(&NO_NEW_SPACE, Script::has_exec).filter(|_| plan.on == Target::Live);
    made.gaps().chain(in_one).chain(no_new_space).map(record).collect()
}

/// Returns the fingerprint over all results of the runs. Names chosen by an author are excluded (an
/// arm is represented by its index), and so are the settings of the run, so that equal results have
/// equal fingerprints.
///
/// A script is part of the results: two scripts have different fingerprints unless they differ in
/// comments and blanks only.
fn fingerprint(arms: &[Vec<(u64, &SeedResult)>], script: Option<&Script>) -> String {
    let mut print = Fingerprint::new();
    if let Some(script) = script {
        print.add_str(&script.content());
    }
    for (place, runs) in arms.iter().enumerate() {
        for (seed, run) in runs {
            print.add(place as u64);
            print.add(*seed);
            print.add(run.fingerprint);
            for (name, value) in &run.metrics {
                print.add_str(name);
                match value {
                    Value::Count(n) => print.add(*n),
                    Value::Real(x) => print.add(x.to_bits()),
                }
            }
            for lock in LockRecord::aggregate(&run.locks) {
                print.add_str(&lock.class);
                print.add_str(&lock.site);
                let counts = [lock.acquisitions, lock.contentions];
                let times = [lock.wait_total_ns, lock.wait_max_ns, lock.hold_total_ns];
                counts.into_iter().chain(times).for_each(|n| print.add(n));
            }
            for call in CallRecord::aggregate(&run.calls) {
                call.path.iter().for_each(|step| print.add_str(step));
                [call.entered, call.self_ns].into_iter().for_each(|n| print.add(n));
            }
        }
    }
    print.to_hex()
}

/// Returns the rates that are positive in every run of every arm, whose mean is harmonic. All arms
/// have the same kind of mean, so that they can be compared.
fn positive_rates(specs: &[MetricSpec], results: &[(Job, SeedResult)]) -> BTreeSet<&'static str> {
    let positive = |name: &str| {
        let mut values = results.iter().filter_map(|(_, run)| run.metrics.get(name));
        values.all(|value| value.as_f64() > 0.0)
    };
    let rates = specs.iter().filter(|spec| spec.unit.ends_with("/s"));
    rates.map(|spec| spec.name).filter(|name| positive(name)).collect()
}

/// How the means of a document and their intervals are computed.
struct Means {
    /// The rates whose mean is harmonic.
    rates: BTreeSet<&'static str>,
    /// Whether the runs ended at the first look.
    first_look: bool,
}

fn arm(plan: &Plan, id: ArmId, runs: &Runs<'_>, means: &Means) -> ArmRecord {
    let (seeds, runs): (Vec<u64>, Vec<&SeedResult>) = runs.iter().copied().unzip();
    let runs = &runs[..];
    let specs = plan.study.metrics();
    for name in runs.iter().flat_map(|run| run.metrics.keys()) {
        let declared = specs.iter().any(|spec| spec.name == *name);
        assert!(declared, "study `{}` does not declare the metric {name}", plan.study.name());
    }
    let metrics = specs.iter().filter_map(|spec| {
        let values: Vec<Option<Value>> =
            runs.iter().map(|run| run.metrics.get(spec.name).copied()).collect();
        let (average, mean, ci95) =
            mean_of(&values, means.rates.contains(spec.name), means.first_look);
        let MetricSpec { name, unit, better, headline, .. } = *spec;
        let (mean, unit) = (mean?, unit.to_owned());
        Some((name.to_owned(), Metric { unit, better, headline, average, mean, ci95, values }))
    });
    ArmRecord {
        arm: plan.study.arms()[id.0].name.to_owned(),
        policies: plan.study.policies(id, &plan.params, plan.on),
        seeds,
        first_look: means.first_look,
        metrics: metrics.collect(),
        cpu_time: cpu_time(runs),
        locks: LockRecord::aggregate(runs.iter().flat_map(|run| &run.locks)),
        blame: BlameRecord::aggregate(runs.iter().flat_map(|run| &run.blame.shares)),
        named_locks: NamedLockRecord::aggregate(runs.iter().flat_map(|run| &run.blame.locks)),
        critical_paths: CriticalPath::aggregate(runs.iter().flat_map(|run| &run.critical_paths)),
        calls: CallRecord::aggregate(runs.iter().flat_map(|run| &run.calls)),
        lines: LineRecord::aggregate(runs.iter().flat_map(|run| &run.lines)),
        per_cpu: per_cpu(runs),
        histograms: histograms(runs),
        sections: runs.iter().flat_map(|run| run.sections.iter().cloned()).collect(),
        spans: runs.iter().flat_map(|run| run.spans.iter().cloned()).collect(),
        host_metrics: host_metrics(runs),
    }
}

/// Returns the mean of the values that are there, with its kind and its interval: that of the first
/// look if the runs ended there.
pub(super) fn mean_of(
    values: &[Option<Value>],
    is_rate: bool,
    first_look: bool,
) -> (Average, Option<f64>, Option<[f64; 2]>) {
    let there: Vec<f64> = values.iter().flatten().map(|value| value.as_f64()).collect();
    let (average, mean) = if is_rate {
        (Average::Harmonic, stats::harmonic_mean(&there))
    } else {
        (Average::Arithmetic, stats::mean(&there))
    };
    (average, mean, stats::mean_interval(&there, is_rate, first_look))
}

/// Returns the sum of the CPU time of all runs. `None` if a run has none.
fn cpu_time(runs: &[&SeedResult]) -> Option<CpuTimeRecord> {
    let times = runs.iter().map(|run| run.cpu_time);
    times.reduce(|sum, time| Some(sum?.and(time?))).flatten()
}

fn per_cpu(runs: &[&SeedResult]) -> BTreeMap<String, PerCpu> {
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.per_cpu.keys()).collect();
    let over_seeds = |name: &String| {
        let figures: Vec<&PerCpu> = runs.iter().filter_map(|run| run.per_cpu.get(name)).collect();
        let cpus = figures[0].values.len();
        assert!(
            figures.iter().all(|f| f.values.len() == cpus),
            "{name}: the number of CPUs differs between seeds"
        );
        let mean = |cpu| figures.iter().map(|f| f.values[cpu]).sum::<f64>() / figures.len() as f64;
        PerCpu { unit: figures[0].unit.clone(), values: (0..cpus).map(mean).collect() }
    };
    names.into_iter().map(|name| (name.clone(), over_seeds(name))).collect()
}

fn histograms(runs: &[&SeedResult]) -> BTreeMap<String, Histogram> {
    let mut sums = BTreeMap::<String, Histogram>::new();
    for (name, histogram) in runs.iter().flat_map(|run| &run.histograms) {
        let empty = || Histogram { unit: histogram.unit.clone(), buckets: Vec::new() };
        sums.entry(name.clone()).or_insert_with(empty).merge(histogram);
    }
    sums
}

fn host_metrics(runs: &[&SeedResult]) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::<&String, Vec<f64>>::new();
    for (name, value) in runs.iter().flat_map(|run| &run.host_metrics) {
        values.entry(name).or_default().push(*value);
    }
    let mean = |all: Vec<f64>| stats::mean(&all).expect("a name has at least one value");
    values.into_iter().map(|(name, all)| (name.clone(), mean(all))).collect()
}
