//! `cargo xtask kernels`: boots kernels of the distribution in an emulator and runs `mmscale` on
//! them: does each accept the BPF programs, do studies observe its waits, do its counts agree with
//! those of the simulator?
//!
//! | module | what it has |
//! |---|---|
//! | `packages` | kernels, from packages of Debian |
//! | `cpio` | the first file system of a machine |
//! | `machine` | a machine, which ends in bounded time |
//! | `guest` | what its first process reports |
//! | `checks` | what `mmscale` must do there |

mod checks;
mod cpio;
mod guest;
mod machine;
mod packages;

use checks::{COUNTS, Check, DOCTOR, STUDIES};
use cpio::Archive;
use machine::{EMULATOR, Ended, Machine};
use packages::output;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first process of a machine.
const INIT: &str = include_str!("../../kernels_init/main.rs");

/// The options of a call.
struct Call {
    /// Images of kernels; none: those of packages.
    images: Vec<PathBuf>,
    cpus: Vec<usize>,
    /// The program; none: it is built.
    program: Option<PathBuf>,
    /// Only [`DOCTOR`], on the first kernel.
    quick: bool,
    /// See [`Machine::counts_instructions`].
    counts_instructions: bool,
}

impl Call {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let mut call = Self {
            images: vec![],
            cpus: vec![4],
            program: None,
            quick: false,
            counts_instructions: false,
        };
        let mut args = args.iter();
        while let Some(&key) = args.next() {
            match key {
                "--quick" => call.quick = true,
                "--icount" => call.counts_instructions = true,
                _ => {}
            }
            if ["--quick", "--icount"].contains(&key) {
                continue;
            }
            let value = args.next().ok_or_else(|| format!("{key} needs a value"))?;
            match key {
                "--kernel" => call.images.push(value.into()),
                "--program" => call.program = Some(value.into()),
                "--cpus" => {
                    let numbers = value.split(',').map(str::parse);
                    call.cpus = numbers
                        .collect::<Result<_, _>>()
                        .map_err(|_| format!("--cpus {value}: use numbers such as 4,16"))?;
                }
                _ => return Err(format!("unknown option {key}")),
            }
        }
        Ok(call)
    }
    fn checks(&self) -> Vec<Check> {
        match self.quick {
            true => vec![DOCTOR],
            false => [&[DOCTOR][..], &STUDIES, &[COUNTS]].concat(),
        }
    }
    /// The CPU time that a machine may use: several times what it takes.
    fn limit(&self, cpus: usize) -> Duration {
        let seconds = if self.quick { 60 } else { 900 };
        Duration::from_secs(seconds + 30 * cpus as u64)
    }
}

/// Runs the checks. Prints a line for each kernel and number of CPUs. A computer without the
/// emulator or the packages skips them.
///
/// # Errors
/// The checks that failed, or why none could be made.
pub fn run(root: &Path, args: &[&str]) -> Result<String, String> {
    let call = Call::parse(args)?;
    let target = target(root);
    let folder = target.join("kernels");
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    for (tool, package) in [(EMULATOR, "qemu-system-x86"), ("setpriv", "util-linux")] {
        if output(tool, &["--version"], &folder).is_err() {
            return Ok(format!("kernels: skipped: no {tool}: apt-get install {package}"));
        }
    }
    let mut images = call.images.clone();
    if images.is_empty() {
        let versions = if call.quick { &packages::VERSIONS[..1] } else { &packages::VERSIONS };
        for version in versions {
            match packages::image(&folder, version) {
                Ok(image) => images.push(image),
                Err(why) => return Ok(format!("kernels: skipped: {why}")),
            }
        }
    }
    let program = match &call.program {
        Some(program) => root.join(program),
        None => built(root, &target)?,
    };
    let files = folder.join("files");
    let jobs: Vec<&str> = call.checks().iter().map(|check| check.args).collect();
    let archive = files_of(root, &program, &jobs, &folder)?;
    fs::write(&files, archive).map_err(|why| format!("{}: {why}", files.display()))?;
    let mut failed = 0;
    for image in &images {
        for &cpus in &call.cpus {
            let (limit, counts_instructions) = (call.limit(cpus), call.counts_instructions);
            let machine = Machine { image, files: &files, cpus, counts_instructions, limit };
            failed += usize::from(!passes(&machine, &call.checks(), &folder)?);
        }
    }
    match failed {
        0 => Ok("kernels: all checks passed".to_owned()),
        _ => {
            Err(format!("checks failed on {failed} of {} machines", images.len() * call.cpus.len()))
        }
    }
}

/// Returns whether a machine passes all checks. An emulator that ended before its jobs did is
/// started once more: it may have failed, and not the kernel.
fn passes(machine: &Machine<'_>, checks: &[Check], folder: &Path) -> Result<bool, String> {
    let mut ended = machine.run(folder)?;
    if !ended.transcript.complete && ended.killed.is_none() {
        println!("kernels: the machine ended early and is started again:\n{}", ended.console);
        ended = machine.run(folder)?;
    }
    let Ended { transcript, console, cpu_time, killed } = ended;
    let mut shown = Vec::new();
    let mut wrong = Vec::new();
    for check in checks {
        let job = transcript.jobs.iter().find(|job| job.args == check.args);
        match job.map(|job| check.of(job)) {
            Some(Ok(what)) => shown.push(what),
            Some(Err(why)) => wrong.push(why),
            None => wrong.push(format!("`{}` did not end", check.args)),
        }
    }
    wrong.extend(killed.map(|why| format!("the machine was ended: {why}")));
    let release = match transcript.release.as_str() {
        "" => machine.image.display().to_string(),
        release => format!("Linux {release}"),
    };
    let cpus = machine.cpus;
    println!(
        "kernels: {release}, {cpus} CPUs, {:.0} CPU s: {}",
        cpu_time.as_secs_f64(),
        [&shown[..], &wrong].concat().join("; ")
    );
    if !wrong.is_empty() {
        println!("{console}");
    }
    Ok(wrong.is_empty())
}

/// The first file system of a machine: the first process, the program, their libraries, the jobs.
fn files_of(root: &Path, program: &Path, jobs: &[&str], folder: &Path) -> Result<Vec<u8>, String> {
    let (source, init) = (folder.join("init.rs"), folder.join("init"));
    let write = |why: std::io::Error| format!("{}: {why}", source.display());
    fs::write(&source, INIT).map_err(write)?;
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let options = ["--edition=2024", "-Copt-level=1", "-Cpanic=abort", "-Cstrip=symbols"];
    output(&rustc, &[&options[..], &["-o", "init", "init.rs"]].concat(), folder)?;
    let stripped = folder.join("mmscale");
    let [from, to] = [program, &stripped].map(|path| path.to_string_lossy().into_owned());
    output("strip", &["-o", &to, &from], folder)?;
    let mut archive = Archive::default();
    // Rust programs open it at their start.
    archive.device("dev/null", (1, 3));
    archive.device("dev/console", (5, 1));
    archive.file("jobs", jobs.join("\n").as_bytes());
    // A development build reads them from the source tree.
    for study in fs::read_dir(root.join("studies")).into_iter().flatten().flatten() {
        let path = study.path().join("study.toml");
        if let Ok(text) = fs::read(&path) {
            archive.file(path.to_string_lossy().trim_start_matches('/'), &text);
        }
    }
    let mut libraries = Vec::new();
    for (path, name) in [(&init, "init"), (&stripped, "mmscale")] {
        archive.file(name, &read(path)?);
        // A static program has none.
        let listed = output("ldd", &[&path.to_string_lossy()], folder).unwrap_or_default();
        let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
        libraries.extend(paths.map(str::to_owned));
    }
    libraries.sort_unstable();
    libraries.dedup();
    for library in libraries {
        archive.file(library.trim_start_matches('/'), &read(Path::new(&library))?);
    }
    Ok(archive.finish())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|why| format!("{}: {why}", path.display()))
}

/// Builds the program as for tests, and returns its path.
fn built(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    output(&cargo, &["build", "--quiet", "-p", "mmscale-cli"], root)?;
    Ok(target.join("debug").join("mmscale"))
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_kernels_cpus_and_program() {
        let call = Call::parse(&["--cpus", "4,16", "--kernel", "a", "--program", "b"]).unwrap();
        assert_eq!((call.cpus.as_slice(), call.images.len(), call.quick), (&[4, 16][..], 1, false));
        assert_eq!(call.checks().len(), 2 + STUDIES.len());
        assert_eq!(Call::parse(&["--quick"]).unwrap().checks().len(), 1);
        for wrong in [&["--cpus"][..], &["--cpus", "many"], &["--fast", "1"]] {
            assert!(Call::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
