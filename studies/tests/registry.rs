//! Tests of the registered studies, and of one with an error in its file.

use crate::shipped::request;
use mmscale_harness::{Registry, Request, Source, plan};
use mmscale_studies::{churn::Churn, vmstat::Vmstat};

/// A file with an error is found by this test; a program reports it and runs the other studies.
#[test]
fn every_file_is_whole() {
    assert_eq!(mmscale_studies::all().broken(), []);
    assert_eq!(mmscale_studies::all().all().count(), 5);
}

#[test]
fn a_broken_file_is_reported_where_its_study_is_asked_for_and_spares_the_others() {
    let text =
        include_str!("../vmstat/study.toml").replace("tick = \"phased\"", "tick = \"jitter\"");
    let broken = Source::compiled("vmstat", text.leak());
    let registry = Registry::default().with::<Churn>().with_file::<Vmstat>(broken);
    assert!(registry.find("churn").is_ok());
    let why = registry.find("vmstat").unwrap_err().to_string();
    assert_eq!(
        why,
        "study.toml of vmstat, arm `phased`: key `tick`: there is no policy named `jitter` \
         (known: stock, posted, phased)"
    );
}

/// Tests are a development build, which reads files from the source tree and reports a missing
/// file.
#[cfg(debug_assertions)]
#[test]
fn a_development_build_reads_files_from_the_source_tree() {
    let package = env!("CARGO_MANIFEST_DIR");
    let of = |source: &'static str| {
        let file = Source::on_disk("vmstat", source, package);
        Registry::default().with_file::<Vmstat>(file)
    };
    // Compilers name the source of a workspace member relative to the top of the workspace.
    for source in ["vmstat/vmstat.rs", "studies/vmstat/vmstat.rs"] {
        let study = of(source).find("vmstat").expect("its file is there");
        assert!(study.file_hash().is_some(), "it was read");
        let known = mmscale_studies::all().find("vmstat").unwrap();
        assert_eq!(known.file_hash(), study.file_hash());
    }
    let why = of("nowhere/vmstat.rs").find("vmstat").unwrap_err().to_string();
    assert!(why.starts_with("study.toml of vmstat: no study.toml next to"), "{why}");
    assert!(why.contains("build with --release"), "{why}");
}

/// A program's own profile can be chosen by name, is listed, and can be a base.
#[test]
fn a_program_brings_profiles_along() {
    const MINE: &str = "base = \"x86-2\"\ndescription = \"mine\"\n[topology]\n\
        cpus = { value = 4, range = [4, 4], source = \"mine\" }\n\
        cluster = { value = 4, range = [4, 4], source = \"mine\" }\n";
    const SLOWER: &str = "base = \"mine\"\ndescription = \"slower\"\n[costs]\n\
        atomic_ns = { value = 12, range = [12, 12], source = \"assumption: slower\" }\n";
    let registry = Registry::default()
        .with_profile("mine", MINE)
        .with_profile("slower", SLOWER)
        .with::<Churn>();
    let on = |profile: &str| {
        let profile = Some(profile.into());
        plan(&registry, &Request { profile, ..request("churn", &[]) })
    };
    let plans = on("slower").unwrap();
    assert_eq!((plans[0].cpus, plans[0].profile_name.as_str()), (4, "slower"));
    let names = mmscale_harness::profiles(registry.profiles()).unwrap();
    assert!(names.iter().any(|profile| profile.name == "mine" && profile.cpus == 4));
    let why = on("slowr").unwrap_err().to_string();
    assert!(why.contains("did you mean `slower`?"), "{why}");
}
