//! Points gathered from the documents of runs that were executed one by one.

use std::collections::BTreeSet;

use mmscale_document::{
    ArmRecord, CpuTimeRecord, Document, Fingerprint, Kept, LineRecord, LockRecord, Metric, Value,
};

use super::assemble::mean_of;

/// Gathers the documents of single runs into those of points: a document for each study, machine
/// and set of parameters, with all arms and seeds, in the order of `runs`.
///
/// A point has metrics, CPU time and locks; call paths and distributions stay in the documents of
/// the runs. Its fingerprint is over those of its runs.
pub fn gathered(runs: Vec<Document>) -> Vec<Document> {
    let mut points: Vec<Vec<Document>> = vec![];
    for run in runs {
        match points.iter_mut().find(|point| is_same_point(&point[0], &run)) {
            Some(point) => point.push(run),
            None => points.push(vec![run]),
        }
    }
    points.into_iter().map(point).collect()
}

fn is_same_point(one: &Document, other: &Document) -> bool {
    let place = |of: &Document| (of.cpus, of.hz, of.on, of.profile_hash.clone());
    let names = |of: &Document| [&of.study, &of.profile].map(String::clone);
    place(one) == place(other)
        && names(one) == names(other)
        && one.params == other.params
        && one.study_file_hash == other.study_file_hash
        && one.topology == other.topology
}

/// Returns the document of the runs of a point; there is at least one.
fn point(runs: Vec<Document>) -> Document {
    let mut fingerprint = Fingerprint::new();
    runs.iter().for_each(|run| fingerprint.add_str(&run.fingerprint));
    let rates = positive_rates(&runs);
    let mut names: Vec<&str> = vec![];
    for arm in runs.iter().flat_map(|run| &run.arms) {
        if !names.contains(&arm.arm.as_str()) {
            names.push(&arm.arm);
        }
    }
    let of_arm = |name: &str| -> Vec<&ArmRecord> {
        runs.iter().flat_map(|run| &run.arms).filter(|arm| arm.arm == name).collect()
    };
    let arms = names.iter().map(|name| arm(&of_arm(name), &rates)).collect();
    let mut not_simulated = runs[0].not_simulated.clone();
    for gap in runs.iter().flat_map(|run| &run.not_simulated) {
        if !not_simulated.contains(gap) {
            not_simulated.push(gap.clone());
        }
    }
    let common =
        runs[0].window_ns.filter(|_| runs.iter().all(|r| r.window_ns == runs[0].window_ns));
    let left_out = runs[0]
        .left_out
        .iter()
        .filter(|(name, _)| runs.iter().all(|run| run.left_out.contains_key(*name)));
    Document {
        fingerprint: fingerprint.to_hex(),
        arms,
        not_simulated,
        window_ns: common,
        left_out: left_out.map(|(name, why)| (name.clone(), why.clone())).collect(),
        failures: runs.iter().flat_map(|run| run.failures.clone()).collect(),
        ..runs[0].clone()
    }
    .sealed()
}

/// Returns the names of rates that are positive in every run, whose mean is harmonic.
fn positive_rates(runs: &[Document]) -> BTreeSet<&str> {
    let metrics = || runs.iter().flat_map(|run| &run.arms).flat_map(|arm| &arm.metrics);
    let rates = metrics().filter(|(_, metric)| metric.unit.ends_with("/s"));
    let positive = |name: &str| {
        let values = metrics().filter(|(other, _)| *other == name);
        values.flat_map(|(_, metric)| metric.present()).all(|value| value > 0.0)
    };
    let names: BTreeSet<&str> = rates.map(|(name, _)| name.as_str()).collect();
    names.into_iter().filter(|name| positive(name)).collect()
}

/// Returns one arm over the seeds of all its records.
fn arm(records: &[&ArmRecord], rates: &BTreeSet<&str>) -> ArmRecord {
    let names: BTreeSet<&String> = records.iter().flat_map(|arm| arm.metrics.keys()).collect();
    let metrics = names.into_iter().map(|name| {
        let mut values: Vec<Option<Value>> = vec![];
        for record in records {
            match record.metrics.get(name) {
                Some(metric) => values.extend(&metric.values),
                None => values.extend(record.seeds.iter().map(|_| None)),
            }
        }
        let first = records.iter().find_map(|arm| arm.metrics.get(name)).expect("an arm has it");
        (name.clone(), metric(first, values, rates.contains(name.as_str())))
    });
    let cpu_time = records.iter().map(|record| record.cpu_time);
    let sum = |a: Option<CpuTimeRecord>, b: Option<CpuTimeRecord>| Some(a?.and(b?));
    ArmRecord {
        arm: records[0].arm.clone(),
        policies: records[0].policies.clone(),
        seeds: records.iter().flat_map(|record| record.seeds.clone()).collect(),
        first_look: false,
        metrics: metrics.collect(),
        cpu_time: cpu_time.reduce(sum).flatten(),
        locks: LockRecord::sum(records.iter().flat_map(|record| &record.locks)),
        blame: vec![],
        named_locks: vec![],
        critical_paths: vec![],
        calls: vec![],
        lines: LineRecord::aggregate(records.iter().flat_map(|record| &record.lines)),
        per_cpu: Default::default(),
        histograms: Default::default(),
        sections: vec![],
        spans: vec![],
        host_metrics: Default::default(),
    }
}

/// Returns a metric with these values, whose mean and interval are those of a run with all seeds.
fn metric(like: &Metric, values: Vec<Option<Value>>, is_rate: bool) -> Metric {
    let (average, mean, ci95) = mean_of(&values, is_rate, false);
    let (unit, better, headline) = (like.unit.clone(), like.better, like.headline);
    Metric { unit, better, headline, average, mean: mean.unwrap_or(like.mean), ci95, values }
}
