//! The model next to the kernel: the same scripts on one simulated CPU, and the costs of a profile
//! with the functions that do their work.

use anyhow::anyhow;
use mmscale_document::{Document as Run, Target};
use mmscale_harness::{
    Interrupt, Length, Profiles, Registry, Request, Settings, execute_each, linux_version, plan,
};
use mmscale_vm::instructions::Summary;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use super::counts::{Count, counts};
use super::document::{Document, Model, Row};
use super::locks::class;
use super::operations;
use crate::failure::Failure;
use crate::progress;

/// The newest version of Linux whose policies are known; later kernels are compared with it.
const NEWEST: &str = "7.3";

/// Runs the scripts on one CPU of a simulated machine, and compares them with the first image.
pub(super) fn model(
    registry: &Registry,
    document: &Document,
    given: &[String],
    profile: &Path,
    interrupt: &Interrupt,
) -> Result<Model, Failure> {
    let release = document.images.first().map_or("", |side| side.release.as_str());
    let version = version_of(release);
    let linux = Some(linux_version(&version).map_err(|why| Failure::Call(why.into()))?);
    let mut plans = Vec::new();
    for (at, script) in document.scripts.iter().enumerate() {
        let settings = operations::settings(&script.name);
        // A script of the call is its file; an operation is known by its name.
        let name = given.get(at).unwrap_or(&script.name);
        let request = Request {
            on: Some(Target::Sim),
            linux,
            profile: Some(profile.to_owned()),
            settings: Settings::parse(&settings).map_err(|why| Failure::Run(anyhow!("{why}")))?,
            seeds: Some(1),
            length: Length::Quick,
            ..Request::of([name.as_str()])
        };
        plans.extend(plan(registry, &request)?);
    }
    let call = progress::Call::new(&plans);
    let mut runs: Vec<Run> = Vec::new();
    let ended = execute_each(&plans, interrupt, &|place| call.watch(place), |_, run| match run {
        Ok(run) => {
            runs.push(run);
            ControlFlow::Continue(())
        }
        Err(why) => ControlFlow::Break(why),
    });
    if let ControlFlow::Break(why) = ended {
        return Err(Failure::Run(anyhow!("{why}")));
    }
    let rows = document.scripts.iter().zip(&runs).flat_map(|(script, run)| {
        let summary = script.operations.first();
        summary.map(|summary| beside(&script.name, summary, run)).unwrap_or_default()
    });
    Ok(Model {
        profile: profile.display().to_string(),
        linux: version,
        rows: rows.collect(),
        costs: costs(registry.profiles(), document, profile)?,
    })
}

/// The version of Linux to simulate for a release.
fn version_of(release: &str) -> String {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) <= (7, 3) => {
            format!("{major}.{minor}")
        }
        _ => NEWEST.to_owned(),
    }
}

/// An operation, and the holds of each class of locks that both sides have.
fn beside(script: &str, summary: &Summary, run: &Run) -> Vec<Row> {
    let Some(arm) = run.arms.first() else { return vec![] };
    let mean = |name: &str| arm.metrics.get(name).map(|metric| metric.mean);
    let (Some(op_ns), Some(per_s), Some(window_ns)) =
        (mean("cpu_ns_per_op"), mean("ops_per_s"), run.window_ns)
    else {
        return vec![];
    };
    let row = |what: &str, instructions, ns| Row {
        script: script.to_owned(),
        what: what.to_owned(),
        instructions,
        ns,
    };
    let ops = per_s * window_ns as f64 / 1e9;
    let mut rows = vec![row("all", summary.instructions.median, op_ns)];
    let mut held: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for hold in &summary.holds {
        held.entry(class(hold)).or_default()[0] += hold.instructions;
    }
    for lock in &arm.locks {
        held.entry(&lock.class).or_default()[1] += lock.hold_total_ns as f64 / ops;
    }
    let both = held.into_iter().filter(|(_, [kernel, model])| *kernel >= 1.0 && *model > 0.0);
    rows.extend(both.map(|(class, [kernel, model])| row(class, kernel, model)));
    rows
}

/// The operations of the profile whose functions the image has.
fn costs(profiles: &Profiles, document: &Document, profile: &Path) -> Result<Vec<Row>, Failure> {
    let merged = profiles.open(profile).map_err(|why| Failure::Call(why.into()))?;
    let row = |count: &Count| {
        let number = merged.op(count.op)?;
        Some(Row {
            script: String::new(),
            what: count.op.name().to_owned(),
            instructions: count.instructions,
            ns: number.value,
        })
    };
    Ok(counts(document).iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_version() {
        assert_eq!(version_of("6.12.117+deb12-cloud-amd64"), "6.12");
        assert_eq!(version_of("7.3.4+deb13-cloud-amd64"), NEWEST);
        assert_eq!(version_of(""), NEWEST);
    }
}
