//! `cargo xtask host-cost`: what runs cost this computer, by the number of simulated CPUs: CPU time
//! and the most memory, as a table for `docs/internals/host-cost.md`.

use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// All studies, and four scripts.
const WHAT: [&str; 9] =
    ["vmstat", "churn", "pcp", "reap", "ipi", "page_fault1", "page_fault3", "mmap1", "stress-fork"];
const CPUS: [&str; 4] = ["8", "64", "512", "4096"];
/// A run that takes longer is ended.
const LIMIT: Duration = Duration::from_secs(300);
/// The time between two looks at a run's memory.
const LOOK: Duration = Duration::from_millis(20);
/// Ticks of `/proc/self/stat` in a second, on every Linux.
const TICKS: f64 = 100.0;

/// The options of the command.
#[derive(Args)]
pub struct HostCostArgs {
    /// The program to run, of a release build
    #[arg(long, value_name = "FILE", default_value = "target/release/mmscale")]
    program: PathBuf,
    /// Only studies and scripts with this word in their names
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
}

/// Runs everything with `--quick --seeds 1` and returns the table.
pub fn run(root: &Path, args: &HostCostArgs) -> Result<String, String> {
    let program = root.join(&args.program);
    if !program.is_file() {
        let path = program.display();
        return Err(format!("{path} does not exist: run `cargo build --release` first"));
    }
    let mut lines =
        vec![format!("| | {} CPUs |", CPUS.join(" CPUs | ")), "|---|---|---|---|---|".into()];
    let mut notes = Vec::new();
    for what in WHAT.iter().filter(|what| what.contains(&args.only)) {
        let mut row = format!("| `{what}` |");
        for cpus in CPUS {
            let cost = cost(&program, what, cpus)?;
            eprintln!("{what} on {cpus} CPUs: {:.1} s, {} MiB", cost.cpu_s, cost.peak_mib);
            row += &match cost.refused {
                None => format!(" {:.1} s, {} MiB |", cost.cpu_s, cost.peak_mib),
                Some(why) => {
                    notes.push(format!("{what} on {cpus} CPUs: {why}"));
                    " refused |".to_owned()
                }
            };
        }
        lines.push(row);
    }
    if lines.len() == 2 {
        return Err(format!("no study or script has `{}` in its name", args.only));
    }
    lines.extend(notes);
    Ok(lines.join("\n"))
}

/// The cost of a run.
struct Cost {
    cpu_s: f64,
    peak_mib: u64,
    /// The last line of a run that gave no result.
    refused: Option<String>,
}

fn cost(program: &Path, what: &str, cpus: &str) -> Result<Cost, String> {
    let errors =
        tempfile::NamedTempFile::new().map_err(|why| format!("a temporary file: {why}"))?;
    let to = errors.reopen().map_err(|why| format!("a temporary file: {why}"))?;
    let before = children_s()?;
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(["run", what, "--quick", "--seeds", "1", "--cpus", cpus])
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(to)
        .spawn()
        .map_err(|why| format!("starting {}: {why}", program.display()))?;
    let (mut peak_mib, mut is_late) = (0, false);
    let status = loop {
        peak_mib = peak_mib.max(peak_kib(child.id()).unwrap_or(0) / 1024);
        is_late |= begin.elapsed() > LIMIT;
        if is_late {
            child.kill().map_err(|why| format!("ending {what}: {why}"))?;
        }
        match child.try_wait().map_err(|why| format!("waiting for {what}: {why}"))? {
            Some(status) => break status,
            None => thread::sleep(LOOK),
        }
    };
    let text = fs::read_to_string(errors.path()).unwrap_or_default();
    let last = text.lines().last().unwrap_or("no message").to_owned();
    let refused = match status.code() {
        _ if is_late => Some(format!("more than {} s", LIMIT.as_secs())),
        Some(0) => None,
        Some(_) => Some(last),
        None => Some(format!("{status}: {last}")),
    };
    Ok(Cost { cpu_s: children_s()? - before, peak_mib, refused })
}

/// The CPU time of all children that have ended, in s.
fn children_s() -> Result<f64, String> {
    let unreadable = || "/proc/self/stat has no times".to_owned();
    let text = fs::read_to_string("/proc/self/stat").map_err(|_| unreadable())?;
    // Fields after the name, which may have spaces: the third and those after it.
    let fields: Vec<&str> =
        text.rsplit(')').next().map(|rest| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |nth: usize| fields.get(nth - 3).and_then(|field| field.parse::<f64>().ok());
    match (ticks(16), ticks(17)) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS),
        _ => Err(unreadable()),
    }
}

/// The most memory that a process has had, in KiB.
fn peak_kib(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_program_is_measured_and_a_failure_has_its_last_line() {
        let shell = |script: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("program");
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            Command::new("chmod").arg("+x").arg(&path).status().unwrap();
            cost(&path, "churn", "8").unwrap()
        };
        let good = shell("sleep 0.1");
        assert!(good.refused.is_none() && good.peak_mib > 0 && good.cpu_s < 60.0);
        let bad = shell("echo first >&2; echo too large >&2; exit 1");
        assert_eq!(bad.refused.as_deref(), Some("too large"));
    }

    #[test]
    fn a_missing_program_and_an_unknown_name_are_errors() {
        let of =
            |program: &str, only: &str| HostCostArgs { program: program.into(), only: only.into() };
        assert!(run(Path::new("/"), &of("nothing", "")).unwrap_err().contains("cargo build"));
        assert!(run(Path::new("/"), &of("bin/sh", "zebra")).unwrap_err().contains("`zebra`"));
    }
}
