//! How a test says that this computer does not let it run.

use std::io::Write as _;

/// Says on the standard error itself that `what` was left out and `why`: the harness keeps what
/// `println!` and `eprintln!` print in a test that passes, and nobody would know.
pub(crate) fn skipped(what: &str, why: &str) {
    let line = format!("live-test skipped: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("there is a standard error");
}
