//! The tests, one at a time: their run times and the mutants that they reach.

use super::list::Mutant;
use crate::planted::build::Suite;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Limit of a test's address space, in KiB: a mutant that allocates without end must not use up the
/// memory of other processes.
const SPACE_KIB: u64 = 16 << 20;

/// Time limit of a test; ten times its run time without a mutant are added.
const PATIENCE: Duration = Duration::from_secs(15);

/// Interval at which a run is polled.
const LOOK: Duration = Duration::from_millis(5);

/// One test.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) struct Test {
    /// The suite, as tables show it.
    pub(super) suite: String,
    pub(super) name: String,
    /// The run time without a mutant.
    pub(super) seconds: f64,
    /// The mutants whose places the test reaches.
    pub(super) reaches: BTreeSet<usize>,
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Passed,
    Failed,
    /// The run exceeded its time limit.
    Hung,
}

impl Test {
    /// Runs the test with one variable set, or none.
    ///
    /// # Errors
    /// Fails if the test cannot be started.
    pub(super) fn run(&self, suite: &Suite, variable: (&str, &str)) -> Result<End, String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v {SPACE_KIB}; exec \"$0\" \"$@\"")]);
        shell.arg(&suite.program).args(["--exact", &self.name, "--test-threads=1"]);
        shell.current_dir(&suite.folder).env(variable.0, variable.1).env("RUST_BACKTRACE", "0");
        shell.env_remove("MMSCALE_DEPTH").env_remove("SHUTTLE_RANDOM_SEED");
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = shell.spawn().map_err(|why| format!("starting {}: {why}", self.name))?;
        let (since, patience) = (Instant::now(), PATIENCE.mul_f64(1.0 + self.seconds / 1.5));
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(End::Passed),
                Ok(Some(_)) => return Ok(End::Failed),
                Ok(None) if since.elapsed() < patience => std::thread::sleep(LOOK),
                _ => break,
            }
        }
        // The process may have ended by itself in the meantime: then the kill fails.
        let _ = child.kill();
        let _ = child.wait();
        Ok(End::Hung)
    }
}

/// Runs each test of a suite once. Returns the tests with their run times and the mutants that they
/// reach. Tests write those mutants to the file `scratch`.
///
/// # Errors
/// Fails if a test fails without a mutant.
pub(super) fn measure(suite: &Suite, scratch: &Path) -> Result<Vec<Test>, String> {
    let mut tests = Vec::new();
    for name in suite.tests()? {
        let suite_name = suite.name.clone();
        let mut test = Test { suite: suite_name, name, seconds: 30.0, reaches: BTreeSet::new() };
        let _ = std::fs::remove_file(scratch);
        let since = Instant::now();
        let file = scratch.to_string_lossy();
        if test.run(suite, ("MMSCALE_MUTANTS_REACHED", &file))? != End::Passed {
            return Err(format!("{}: {} fails without a mutant", test.suite, test.name));
        }
        test.seconds = since.elapsed().as_secs_f64();
        let reached = std::fs::read_to_string(scratch).unwrap_or_default();
        test.reaches = reached.lines().filter_map(|id| id.parse().ok()).collect();
        tests.push(test);
    }
    Ok(tests)
}

/// Checks that the suites contain these tests: a run of a missing one would pass.
///
/// # Errors
/// Names a test that its suite does not have.
pub(super) fn exist(suites: &[Suite], tests: &[Test]) -> Result<(), String> {
    for suite in suites {
        let names: BTreeSet<String> = suite.tests()?.into_iter().collect();
        let missing = |test: &&Test| test.suite == suite.name && !names.contains(&test.name);
        if let Some(test) = tests.iter().find(missing) {
            return Err(format!("{} has no test {}", suite.name, test.name));
        }
    }
    Ok(())
}

/// Sorts tests for a mutant: those of its crate, then those of the other mutated crates, then those
/// of `interleave`, then those of `conformance`. The shortest of each group is first.
pub(super) fn sort(tests: &mut [(&Suite, &Test)], mutant: &Mutant) {
    tests.sort_by(|(suite, test), (other_suite, other)| {
        let rank = |suite: &Suite| match suite.krate {
            own if own == mutant.krate() => 0,
            "interleave" => 2,
            "conformance" => 3,
            _ => 1,
        };
        rank(suite).cmp(&rank(other_suite)).then(test.seconds.total_cmp(&other.seconds))
    });
}
