//! Kernel images in an emulator. Tests that boot machines need QEMU, packages of Debian and
//! minutes: `.ci/run --deep` runs them, or `cargo test -p mmscale --test images -- --ignored`.
#![cfg(feature = "live")]

mod changed;
mod full;
mod killed;
mod planted;
mod replayed;
mod wrong;

use std::io::Write as _;
use std::process::{Command, Output};

/// The image of the tests that boot one.
const IMAGE: &str = "debian:6.12";

/// Reports a skipped test directly on standard error, because the test harness captures printed
/// output.
fn skipped(what: &str, why: &str) {
    let line = format!("live-test skipped: {what}: {}\n", why.trim());
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn mmscale() -> Command {
    Command::new(env!("CARGO_BIN_EXE_mmscale"))
}

/// A call of `mmscale kernel`.
fn kernel(args: &[&str]) -> Command {
    let mut command = mmscale();
    command.arg("kernel").args(args);
    command
}

/// A call of `mmscale lift`.
fn lift(args: &[&str]) -> Command {
    let mut command = mmscale();
    command.arg("lift").args(args);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether QEMU or the package cannot be had here.
fn is_absent(said: &str) -> bool {
    said.contains("is not installed") || said.contains("apt")
}
