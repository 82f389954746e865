//! The studies on the shelf, and one whose file is broken.

use mmscale_harness::{Registry, Shelf, Source, Workload};
use mmscale_studies::{churn::Churn, vmstat::Vmstat};

/// A file that is broken is found here; a program with one reports it and runs the other studies.
#[test]
fn every_file_is_whole() {
    assert_eq!(mmscale_studies::all().broken(), []);
    assert_eq!(mmscale_studies::all().all().count(), 5);
}

#[test]
fn a_broken_file_is_reported_where_its_study_is_asked_for_and_spares_the_others() {
    let mut shelf = Shelf::default();
    shelf.add::<Churn>();
    let text = Vmstat::FILE.text.replace("tick = \"phased\"", "tick = \"jitter\"").leak();
    shelf.add_of::<Vmstat>(Source { text, ..Vmstat::FILE });
    let registry = Registry::of(Box::leak(Box::new(shelf)));
    assert!(registry.find("churn").is_ok());
    let why = registry.find("vmstat").unwrap_err().to_string();
    assert_eq!(
        why,
        "studies/vmstat/study.toml, arm `phased`: key `tick`: there is no policy named `jitter` \
         (known: stock, posted, phased)"
    );
}
