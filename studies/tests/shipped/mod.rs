//! Runs studies with user-level requests, and reads values from their documents.

use mmscale_document::{ArmRecord, Document, Target};
use mmscale_harness::{
    Checks, Interrupt, Length, ProgressSink, Registry, Request, RunError, RunEvent, Settings,
    execute, plan,
};
use std::sync::Arc;

/// Returns a request at full length, with checks, on the simulated machine: all arms, one seed.
pub(crate) fn request(study: &str, settings: &[&str]) -> Request {
    Request {
        on: Some(Target::Sim),
        settings: Settings::parse(settings).expect("the test's settings are spelt well"),
        seeds: Some(1),
        checks: Checks::On,
        ..Request::of([study])
    }
}

/// Returns a request for a quick run.
pub(crate) fn quick(study: &str, seeds: u64, checks: Checks, settings: &[&str]) -> Request {
    let seeds = Some(seeds);
    Request { on: None, seeds, length: Length::Quick, checks, ..request(study, settings) }
}

struct Silent;

impl ProgressSink for Silent {
    fn event(&self, _: RunEvent) {}
}

/// Returns all documents of a request for studies of this registry, or an error if one of them
/// lacks a run.
pub(crate) fn try_run(registry: &Registry, request: &Request) -> Result<Vec<Document>, String> {
    let plans = plan(registry, request).map_err(|why| why.to_string())?;
    let sink: Arc<dyn ProgressSink> = Arc::new(Silent);
    let reason = |why: RunError| {
        let source = std::error::Error::source(&why).map(ToString::to_string);
        format!("{why}: {}", source.unwrap_or_default())
    };
    let run = |plan| {
        let document = execute(plan, &Interrupt::default(), &sink).map_err(reason)?;
        document.failures.first().map_or(Ok(()), |failure| Err(format!("{failure:?}")))?;
        Ok(document)
    };
    plans.iter().map(run).collect()
}

/// Returns the only document of a request.
#[track_caller]
pub(crate) fn run(request: &Request) -> Document {
    let documents = try_run(mmscale_studies::all(), request).unwrap_or_else(|why| panic!("{why}"));
    let [document] = <[Document; 1]>::try_from(documents).expect("the request is one plan");
    document
}

#[track_caller]
pub(crate) fn arm<'a>(document: &'a Document, name: &str) -> &'a ArmRecord {
    let arm = document.arms.iter().find(|arm| arm.arm == name);
    arm.unwrap_or_else(|| panic!("no arm {name}"))
}

#[track_caller]
pub(crate) fn mean(arm: &ArmRecord, name: &str) -> f64 {
    arm.metrics.get(name).unwrap_or_else(|| panic!("{}: no metric {name}", arm.arm)).mean
}
