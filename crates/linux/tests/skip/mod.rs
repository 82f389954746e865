//! How a test reports that this computer does not allow it to run.

use std::io::Write as _;

/// Writes to the standard error itself that `what` was left out and `why`: the harness captures
/// what `println!` and `eprintln!` print in a test that passes.
pub(crate) fn skipped(what: &str, why: &str) {
    let line = format!("live-test skipped: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("there is a standard error");
}
