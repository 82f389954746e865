//! Tests of arms as lists of policies: any policy can be used in any study.

use crate::shipped::{arm, quick, try_run};
use mmscale_document::Document;
use mmscale_harness::{Checks, PolicyArm, Registry, Request, Source, Workload};
use mmscale_studies::{churn::Churn, pcp::Pcp, reap::Reap, vmstat::Vmstat};

/// An arm with a non-default policy for every mechanism, one that chooses nothing, two that choose
/// one.
const ARMS: &str = r#"
[[arm]]
name = "ours"
help = "a policy of this project for every mechanism"
tick = "phased"
lru = "lazy"
caches = "blockmap"
calls = "requests"
exit = "claims"

[[arm]]
name = "plain"
help = "chooses nothing"

[[arm]]
name = "frozen"
help = "chooses one"
lru = "freeze"

[[arm]]
name = "late"
help = "chooses one"
lru = "lazy"
"#;

fn with_arms(study: &'static str, text: &str) -> Source {
    Source::compiled(study, format!("{text}{ARMS}").leak())
}

/// Runs the arms on a small machine, with checkers on.
fn run<W: Workload>(study: &'static str, text: &str, settings: &[&str]) -> Document {
    let registry = Registry::default().with_file::<W>(with_arms(study, text));
    let arms = ["stock", "plain", "ours", "frozen", "late"].map(str::to_owned).into();
    let request = Request { arms, ..quick(study, 1, Checks::On, settings) };
    try_run(&registry, &request).unwrap_or_else(|why| panic!("{why}")).remove(0)
}

/// Returns the results of an arm, except for its cost on the host.
fn results(document: &Document, name: &str) -> String {
    let arm = arm(document, name);
    format!("{:?} {:?}", arm.metrics, arm.locks)
}

/// An arm created by a call gives the same results as an arm of the file with the same choices.
#[test]
fn an_arm_of_a_call_gives_what_the_same_arm_of_the_file_gives() {
    let settings = ["cpus=8", "processes_per_cpu=2", "duration_ms=0.5"];
    let request = quick("churn", 1, Checks::On, &settings);
    let policies = ["mine:lru=lazy", "lru=stock"].map(|text| PolicyArm::parse(text).unwrap());
    let arms = ["lazy", "stock"].map(str::to_owned).into();
    let document = crate::shipped::run(&Request { arms, policies: policies.into(), ..request });
    let of = |name| results(&document, name);
    assert!(of("mine") == of("lazy") && of("lru=stock") != of("lazy"));
    // Its name has the key, so that it is not that of the arm `stock`.
    assert!(of("lru=stock") == of("stock"));
    assert_eq!(document.arms[2].policies, document.arms[0].policies);
}

macro_rules! run {
    ($type:ident, $name:literal, $settings:expr) => {
        ($name, run::<$type>($name, include_str!(concat!("../", $name, "/study.toml")), &$settings))
    };
}

/// `ipi` has such an arm. In the other studies, an arm with these policies must use them.
#[test]
fn each_study_runs_with_a_policy_of_each_mechanism() {
    let runs = [
        run!(Vmstat, "vmstat", ["cpus=8", "duration_s=2.5", "burst_pages=512", "period_ms=500"]),
        run!(Churn, "churn", ["cpus=8", "processes_per_cpu=2", "duration_ms=0.5"]),
        run!(Pcp, "pcp", ["cpus=8", "workload=build", "build_ms=1", "memory_gib=1"]),
        run!(Reap, "reap", ["layout=app", "pages=2048"]),
    ];
    for (name, document) in runs {
        let of = |name| results(&document, name);
        assert!(of("stock") == of("plain"), "{name}: an arm that chooses nothing is Linux");
        assert!(of("plain") != of("ours"), "{name}: policies are read");
        // The LRU policy is a parameter in two studies, and the arm's choice takes precedence. One
        // of the two policies is the study's default, or has no effect on a workload whose pages
        // stay.
        let other = ["frozen", "late"].map(|arm| of(arm) != of("plain"));
        assert!(other.contains(&true), "{name}: one policy is read");
        let policies = |name: &str, key: &str| arm(&document, name).policies[key].clone();
        assert_eq!(policies("frozen", "lru"), "freeze", "{name}");
        assert_eq!(policies("ours", "caches"), "blockmap", "{name}");
        assert_eq!(policies("plain", "caches"), "stock", "{name}");
    }
}
