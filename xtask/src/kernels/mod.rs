//! `cargo xtask kernels`: runs `mmscale` on kernel images in virtual machines (`mmscale kernel
//! boot`): does each accept the BPF programs, do studies observe its waits, do its counts agree
//! with those of the simulator?

mod checks;
mod instructions;

use checks::{COUNTS, Check, DOCTOR, Job, STUDIES};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The images if none is given: the kernels of Debian's releases, and the newest.
const IMAGES: [&str; 3] = ["debian:6.1", "debian:6.12", "debian:7.3"];
/// Most CPUs with which studies run: with more, their windows are shorter than the start of their
/// processes takes in an emulator.
const CPUS_OF_STUDIES: usize = 4;

/// The arguments of the command.
#[derive(Clone, clap::Args)]
pub struct KernelsArgs {
    /// Images of kernels; 6.1, 6.12 and 7.3 of Debian if none is given
    #[arg(long = "kernel", value_name = "IMAGE,..", value_delimiter = ',')]
    images: Vec<String>,
    /// CPUs of the machines
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "4")]
    cpus: Vec<usize>,
    /// The program; it is built if none is given
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Only that the first kernel accepts the BPF programs
    #[arg(long)]
    quick: bool,
    /// Let time pass with instructions
    #[arg(long)]
    icount: bool,
    /// Count the instructions of Debian's kernels, and keep the counts in gallery/kernels
    #[arg(long)]
    keep: bool,
}

impl KernelsArgs {
    fn checks(&self, cpus: usize) -> Vec<Check> {
        match (self.quick, cpus <= CPUS_OF_STUDIES) {
            (true, _) => vec![DOCTOR],
            (false, true) => [&[DOCTOR][..], &STUDIES, &[COUNTS]].concat(),
            (false, false) => vec![DOCTOR, COUNTS],
        }
    }
    fn images(&self) -> Vec<String> {
        match (self.images.is_empty(), self.quick) {
            (false, _) => self.images.clone(),
            (true, true) => vec![IMAGES[0].to_owned()],
            (true, false) => IMAGES.map(str::to_owned).to_vec(),
        }
    }
}

/// Runs the checks. Prints a line for each kernel and number of CPUs. A computer without QEMU or
/// the packages skips them.
///
/// # Errors
/// The checks that failed, or why none could be made.
pub fn run(root: &Path, call: &KernelsArgs) -> Result<String, String> {
    let program = match &call.program {
        Some(program) => root.join(program),
        None => built(root)?,
    };
    if call.keep {
        return instructions::keep(root, &program);
    }
    let (mut machines, mut failed) = (0, 0);
    for image in call.images() {
        for &cpus in &call.cpus {
            machines += 1;
            match passes(&program, &image, cpus, call)? {
                Passed::Yes => {}
                Passed::No => failed += 1,
                Passed::Skipped(why) => return Ok(format!("kernels: skipped: {why}")),
            }
        }
    }
    if call.images.is_empty() {
        machines += 1;
        match instructions::check(root, &program, call)? {
            Passed::Yes => {}
            Passed::No => failed += 1,
            Passed::Skipped(why) => return Ok(format!("kernels: skipped: {why}")),
        }
    }
    match failed {
        0 => Ok("kernels: all checks passed".to_owned()),
        _ => Err(format!("checks failed on {failed} of {machines} machines")),
    }
}

enum Passed {
    Yes,
    No,
    /// Why nothing can be checked here.
    Skipped(String),
}

/// Makes the checks on one machine, which is booted for each.
fn passes(program: &Path, image: &str, cpus: usize, call: &KernelsArgs) -> Result<Passed, String> {
    let mut shown = Vec::new();
    let mut wrong = Vec::new();
    for check in call.checks(cpus) {
        let (job, said) = booted(program, image, cpus, call, check.args)?;
        let refused = said.lines().find_map(|line| line.strip_prefix("error: "));
        if let Some(why) = refused.filter(|why| is_absence(why)) {
            return Ok(Passed::Skipped(why.to_owned()));
        }
        match check.of(&job) {
            Ok(what) => shown.push(what),
            Err(why) => {
                println!("{said}");
                wrong.push(why);
            }
        }
    }
    let all = [&shown[..], &wrong].concat().join("; ");
    println!("kernels: {image}, {cpus} CPUs: {all}");
    Ok(if wrong.is_empty() { Passed::Yes } else { Passed::No })
}

/// Whether a message says that QEMU or a package cannot be had.
fn is_absence(why: &str) -> bool {
    ["is not installed", "apt knows no kernel", "without apt", "apt-get failed", "apt-cache failed"]
        .iter()
        .any(|words| why.contains(words))
}

/// Boots a machine for a call of the program. Returns the call, and what was said meanwhile.
fn booted(
    program: &Path,
    image: &str,
    cpus: usize,
    call: &KernelsArgs,
    args: &str,
) -> Result<(Job, String), String> {
    let mut command = Command::new(program);
    command.args(["kernel", "boot", "--emulate", "--kernel", image, "--cpus", &cpus.to_string()]);
    command.args(["--limit", &format!("{} s", 900 + 30 * cpus)]);
    // Linux before 6.5 does not start its CPUs with it.
    if call.icount && image != IMAGES[0] {
        command.arg("--icount");
    }
    command.arg("--").args(args.split(' ')).stdin(Stdio::null());
    let output =
        command.output().map_err(|why| format!("cannot run {}: {why}", program.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ended =
        output.status.code().map_or_else(|| output.status.to_string(), |code| code.to_string());
    let job = Job { args: args.to_owned(), ended, output: text(&output.stdout) };
    Ok((job, text(&output.stderr)))
}

/// Builds the program as for tests, and returns its path.
fn built(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(&cargo)
        .args(["build", "--quiet", "-p", "mmscale-cli"])
        .current_dir(root)
        .status()
        .map_err(|why| format!("cannot run {cargo}: {why}"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), |path| root.join(path));
    match status.success() {
        true => Ok(target.join("debug").join("mmscale")),
        false => Err("the program does not build".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_depend_on_the_number_of_cpus() {
        let args = |quick| KernelsArgs {
            images: vec![],
            cpus: vec![],
            program: None,
            quick,
            icount: false,
            keep: false,
        };
        let whole = args(false);
        assert_eq!((whole.images().len(), whole.checks(4).len()), (3, 2 + STUDIES.len()));
        assert_eq!(whole.checks(64).len(), 2);
        let quick = args(true);
        assert_eq!((quick.images().len(), quick.checks(4).len()), (1, 1));
    }

    #[test]
    fn a_computer_without_packages_or_emulator_is_no_failure() {
        assert!(is_absence("qemu-system-x86_64 is not installed: on Debian apt-get install .."));
        assert!(is_absence("apt knows no kernel 6.1*-cloud-amd64 of Debian"));
        assert!(!is_absence("the kernel panicked: VFS: Unable to mount root fs"));
    }
}
