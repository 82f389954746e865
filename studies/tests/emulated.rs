//! The metrics of an emulated machine.

use mmscale_harness::MetricSpec;

/// Every metric of every study and script is declared to depend on times or not.
#[test]
fn every_metric_depends_on_times_or_not() {
    let registry = mmscale_studies::all();
    let studies = registry.all().chain(registry.scripts());
    let metrics: Vec<MetricSpec> = studies.flat_map(|study| study.metrics().to_vec()).collect();
    assert!(metrics.len() > 100, "{}", metrics.len());
    let unknown: Vec<&str> = metrics
        .iter()
        .filter(|spec| spec.depends_on_times().is_none())
        .map(|spec| spec.name)
        .collect();
    assert!(
        unknown.is_empty(),
        "{unknown:?}: add each to COUNTS or TIMED of crates/harness/src/study/emulated.rs: is it \
         right on a machine whose times mean nothing?"
    );
}
