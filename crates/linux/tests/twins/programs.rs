//! The three programs that are compared: a script on the live kernel, its twin in C, and a stressor
//! of stress-ng.

use crate::count::{Counter, Counts};
use mmscale_linux::{Config, Linux, Shared, run_watched};
use mmscale_script::{Report, Script, Sink, Times};
use mmscale_system::System;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Operations of a program, and its counts.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Done {
    pub(crate) ops: u64,
    pub(crate) counts: Counts,
    /// Calls per operation as the script counts them.
    pub(crate) counted: f64,
}

/// Time from the start of the counters to the common start of the programs of a script, in ns.
const PREPARE_NS: u64 = 60_000_000;

/// Runs a script on one CPU of the live kernel.
pub(crate) fn script(script: &Script, window_ns: u64) -> Result<Done, String> {
    let config = Config {
        cpus: 1,
        memory_bytes: 1 << 30,
        processes: 64,
        limit_ns: 60_000_000_000,
        interrupt: None,
    };
    let (board, counting) = (Shared::<Report>::default(), Shared::<u64>::default());
    let params: Vec<i64> = script.params().iter().map(|param| param.default).collect();
    let (sum, begun) = (board.clone(), counting.clone());
    let text = (script.name().to_owned(), script.text().to_owned());
    let body = move |system: &Linux| {
        while begun.get() == 0 {
            system.sleep_ns(1_000_000).expect("the run goes on");
        }
        let begin_ns = system.clock_ns() + PREPARE_NS;
        let times = Times { begin_ns, from_ns: begin_ns, until_ns: begin_ns + window_ns };
        let sink: Sink = Arc::new(move |report| sum.change(|sum| *sum += report));
        let script = Script::parse(&text.0, &text.1).expect("it was parsed before");
        script.run(&params, 1, times, sink, system);
    };
    let counter = RefCell::new(None);
    let begin = |begun: mmscale_linux::Begun| {
        counter.replace(Some(first_process(begun.session).and_then(Counter::of)));
        counting.change(|counting| *counting = 1);
    };
    run_watched(&config, begin, Box::new(body)).map_err(|why| why.to_string())?;
    let counter = counter.take().ok_or("the run did not begin")?.map_err(|why| why.to_string())?;
    let report = board.get();
    if let Some(fault) = report.fault {
        return Err(format!("an error of the script: {fault}"));
    }
    let counted = report.calls as f64 / report.ops as f64;
    Ok(Done { ops: report.ops_ever, counts: counter.read(), counted })
}

/// Returns the only child of the warden.
fn first_process(warden: i32) -> std::io::Result<i32> {
    let children = std::fs::read_to_string(format!("/proc/{warden}/task/{warden}/children"))?;
    let first = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
    first.ok_or_else(|| std::io::Error::other("the run has no process"))
}

/// Compiles the twin of a script.
pub(crate) fn compile(source: &Path, folder: &Path) -> Result<PathBuf, String> {
    let name = source.file_stem().expect("a source has a name");
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(source);
    let made = cc.output().map_err(|why| format!("cc: {why}"))?;
    if made.status.success() {
        Ok(program)
    } else {
        Err(String::from_utf8_lossy(&made.stderr).into_owned())
    }
}

/// Runs a command, and counts what it and its children do.
pub(crate) fn counted(command: &mut Command) -> Result<(String, Counts), String> {
    let counter = Counter::of(0).map_err(|why| why.to_string())?;
    let output = command.output().map_err(|why| why.to_string())?;
    if output.status.success() {
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), counter.read()))
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Runs a twin.
pub(crate) fn twin(program: &Path, ops: u64) -> Result<Done, String> {
    let (text, counts) = counted(Command::new(program).arg(ops.to_string()))?;
    let ops = text.split_whitespace().next().and_then(|ops| ops.parse().ok());
    Ok(Done { ops: ops.ok_or("a twin prints its operations")?, counts, counted: 0.0 })
}

/// Runs a stressor of stress-ng on one CPU.
pub(crate) fn stressor(args: &str, ops: u64) -> Result<Done, String> {
    let name = args.split_whitespace().next().unwrap_or_default().trim_start_matches("--");
    let mut command = Command::new("stress-ng");
    command.args(args.split_whitespace()).arg(format!("--{name}-ops")).arg(ops.to_string());
    let (_, counts) = counted(command.args(["--quiet", "--taskset", "0"]))?;
    Ok(Done { ops, counts, counted: 0.0 })
}
