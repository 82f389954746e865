//! Compares the results of one run in several ways.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::case::Case;
use super::output;

/// Time limit of a run; longer runs are killed.
const LIMIT: Duration = Duration::from_secs(40);

/// The beginning of a `StudyError::Check` of a run with `sched=both`.
const DIFFER: &str = "the lazy and the naive schedule give different results";

/// The result of a case.
pub(crate) enum Verdict {
    /// All ways gave the same result.
    Agree,
    /// The program refused the arguments.
    Refused,
    /// The run failed with the same message under both schedules.
    FailedAlike,
    /// The run exceeded the time limit.
    TooLong,
    /// The results differ, or the program panicked.
    Wrong(String),
}

/// The compared builds: copies, so that a later build of the tree does not replace them.
pub(crate) struct Binaries {
    fast: PathBuf,
    debug: PathBuf,
    _folder: TempDir,
}

impl Binaries {
    /// Builds both, unless there is a `program` with assertions, which is then used for both.
    pub(crate) fn of(root: &Path, program: Option<&Path>) -> Result<Self, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.map_or_else(|| root.join("target"), |target| root.join(target));
        let profiles: &[&str] = if program.is_some() { &[] } else { &["dev", "release"] };
        for profile in profiles {
            let mut command = Command::new(&cargo);
            command.current_dir(root).args(["build", "--quiet", "--package", "mmscale"]);
            let status = command.args(["--profile", profile]).status();
            let status = status.map_err(|why| format!("cannot run {command:?}: {why}"))?;
            if !status.success() {
                return Err(format!("{command:?} failed"));
            }
        }
        let folder = tempfile::tempdir().map_err(|why| format!("cannot create a folder: {why}"))?;
        let copy = |profile: &str| {
            let built = target.join(profile).join("mmscale");
            let (from, to) = (program.unwrap_or(&built), folder.path().join(profile));
            let copied = std::fs::copy(from, &to);
            copied.map(|_| to).map_err(|why| format!("cannot copy {}: {why}", from.display()))
        };
        let debug = copy("debug")?;
        let fast = if program.is_some() { debug.clone() } else { copy("release")? };
        Ok(Self { fast, debug, _folder: folder })
    }
    /// Returns a command that runs the faster build.
    pub(crate) fn fast(&self) -> Command {
        Command::new(&self.fast)
    }
}

/// The output of a run.
enum RunOutput {
    Done { fingerprint: String },
    Failed { code: Option<i32>, said: String },
    TooLong,
}

/// Runs a case in all ways; `asserted`: also in the build with assertions.
pub(crate) fn of(binaries: &Binaries, case: &Case, asserted: bool) -> Verdict {
    let both = match run(&binaries.fast, &case.args("both")) {
        Ok(ran) => ran,
        Err(why) => return Verdict::Wrong(why),
    };
    let RunOutput::Done { fingerprint } = both else { return failed(both) };
    if !asserted {
        return Verdict::Agree;
    }
    match run(&binaries.debug, &case.args("lazy")) {
        Ok(RunOutput::Done { fingerprint: other }) if other == fingerprint => Verdict::Agree,
        Ok(RunOutput::Done { fingerprint: other }) => Verdict::Wrong(format!(
            "release gives {fingerprint}, the build with assertions {other}"
        )),
        // The result is known to be correct; only the slower build exceeded the limit.
        Ok(RunOutput::TooLong) => Verdict::TooLong,
        Ok(RunOutput::Failed { said, .. }) => {
            Verdict::Wrong(format!("only the build with assertions fails: {said}"))
        }
        Err(why) => Verdict::Wrong(why),
    }
}

fn failed(ran: RunOutput) -> Verdict {
    match ran {
        RunOutput::Failed { said, .. } if said.contains(DIFFER) || said.contains("panicked") => {
            Verdict::Wrong(said)
        }
        RunOutput::Failed { code: Some(2), .. } => Verdict::Refused,
        RunOutput::Failed { code: Some(1), .. } => Verdict::FailedAlike,
        RunOutput::Failed { code, said } => Verdict::Wrong(format!("ended with {code:?}: {said}")),
        RunOutput::TooLong | RunOutput::Done { .. } => Verdict::TooLong,
    }
}

/// Runs the program. The fingerprint is that of its document.
fn run(program: &Path, args: &[String]) -> Result<RunOutput, String> {
    let seconds = LIMIT.as_secs().to_string();
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &seconds]).arg(program).args(args);
    command.args(["--format", "json"]).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    let Output { status, stdout, stderr } = output(&mut command)?;
    // `timeout` kills itself together with the program, or reports it by its exit code.
    if status.code().is_none_or(|code| code == 137 || code == 124) {
        return Ok(RunOutput::TooLong);
    }
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr).trim().to_owned();
        return Ok(RunOutput::Failed { code: status.code(), said });
    }
    let document: serde_json::Value = serde_json::from_slice(&stdout)
        .map_err(|why| format!("{args:?} printed no document: {why}"))?;
    let fingerprint = document["fingerprint"].as_str();
    let fingerprint = fingerprint.ok_or_else(|| format!("{args:?}: no fingerprint"))?.to_owned();
    Ok(RunOutput::Done { fingerprint })
}
