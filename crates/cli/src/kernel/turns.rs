//! `mmscale kernel turns`: a script on all CPUs, whose programs take turns, between marks; in a
//! virtual machine.

use anyhow::{Context, anyhow};
use mmscale_harness::{CallError, Registry, Settings, script_values};
use mmscale_live::rounds::Marks;
use mmscale_live::turns::run;
use mmscale_vm::marks;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::args::TurnsArgs;
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

/// Runs the script, and prints the operations of each round.
pub(super) fn turns(registry: &Registry, args: &TurnsArgs) -> Result<(), Failure> {
    if let Some(program) = &args.program {
        return run_program(program);
    }
    let study = registry.find(&args.script).map_err(CallError::from)?;
    let study = registry.script_like(&study).unwrap_or(study);
    let settings = Settings::parse(&args.set).map_err(CallError::from)?;
    let mut values = script_values(&study, &settings).map_err(CallError::from)?;
    let (Some(params), None) = (values.pop(), values.pop()) else {
        return Err(Failure::Call(anyhow!("--set: give each parameter one value")));
    };
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let marks = Marks { arm: marks::arm, begin: marks::begin, end: marks::end };
    let turns = run(&study, &params, args.ops, marks, &interrupt)
        .map_err(|why| Failure::Run(anyhow!("{why}")))?;
    let line = serde_json::to_string(&turns).expect("plain data");
    output::print(&format!("{line}\n"))
}

/// Runs a program that takes turns, and prints what it prints.
fn run_program(program: &Path) -> Result<(), Failure> {
    let output = Command::new(program).stdin(Stdio::null()).output();
    let output =
        output.map_err(|why| Failure::Run(anyhow!("cannot run {}: {why}", program.display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Run(anyhow!("{}", said.trim())));
    }
    output::print(&String::from_utf8_lossy(&output.stdout))
}
