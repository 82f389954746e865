//! A recording of a real kernel from its begin to its end: an operation, and what limits many CPUs.

use crate::{IMAGE, is_absent, lift, mmscale, skipped, stderr};

/// Returns the standard output of a call that must succeed.
fn said(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "boots a kernel in an emulator"]
fn churn_of_four_virtual_cpus_is_limited_by_the_lru_lock() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("churn.lift");
    // One node: a node of two CPUs does not show what belongs to it.
    let machine = ["--kernel", IMAGE, "--cpus", "4", "--nodes", "1"];
    let mut record = lift(&["record", "churn", "--set", "processes=1", "--ops", "16"]);
    let output = record.args(machine).arg("-o").arg(&file).output().unwrap();
    if is_absent(&stderr(&output)) {
        return skipped("a recording of churn", &stderr(&output));
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let sums = said(lift(&["show", "--format", "json"]).arg(&file));
    let sums: serde_json::Value = serde_json::from_str(&sums).unwrap();
    let instructions = sums["instructions_per_op"].as_f64().unwrap();
    assert!((10_000.0..40_000.0).contains(&instructions), "{instructions}");
    let locks = sums["locks"].as_array().unwrap();
    let of_lruvec = locks.iter().filter(|lock| lock["class"] == "lruvec");
    let taken: f64 = of_lruvec.map(|lock| lock["acquisitions_per_op"].as_f64().unwrap()).sum();
    // A page joins a list at the drain of the batch, and leaves it when it is freed.
    assert!((1.9..3.0).contains(&taken), "{taken} acquisitions of lruvec");
    let mut run = mmscale();
    run.arg("run").arg(&file).args(["--profile", "x86-512", "--cpus", "1,64"]);
    let text = said(run.args(["--seeds", "1", "--quick"]));
    assert!(text.contains("first limit: recorded: lruvec, first with 64 CPUs"), "{text}");
}
