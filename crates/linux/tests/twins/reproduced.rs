//! Scripts against the programs in C that are written from them.

use crate::programs::{self, Done};
use mmscale_script::{ProgramSpec, Script};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes the program of a script and compiles it; a warning is an error.
pub(crate) fn compile(script: &Script, folder: &Path) -> Result<PathBuf, String> {
    let params: Vec<i64> = script.params().iter().map(|param| param.default).collect();
    let spec = ProgramSpec {
        name: script.name(),
        params: &params,
        written_by: "mmscale kernel reproduce",
        simulated_by: &[],
        remarks: &[],
    };
    let made = script.reproduce(&spec).map_err(|why| why.to_string())?;
    let program = folder.join(format!("{}-repro", script.name()));
    let source = program.with_extension("c");
    fs::write(&source, made.program).map_err(|why| why.to_string())?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    let made = cc.arg(&program).arg(&source).output().map_err(|why| format!("cc: {why}"))?;
    if made.status.success() {
        Ok(program)
    } else {
        Err(String::from_utf8_lossy(&made.stderr).into_owned())
    }
}

/// Runs a program on one CPU for a time.
pub(crate) fn run(program: &Path, window_ns: u64) -> Result<Done, String> {
    let mut command = Command::new(program);
    let seconds = (window_ns as f64 / 1e9).to_string();
    command.args(["-n", "1", "-w", "0", "-t", &seconds]);
    let (text, counts) = programs::counted(&mut command)?;
    let last = text.lines().last().unwrap_or("");
    let ops = last.strip_suffix(" operations in all").and_then(|ops| ops.parse().ok());
    Ok(Done {
        ops: ops.ok_or_else(|| format!("no number of operations: {text}"))?,
        counts,
        counted: 0.0,
    })
}
