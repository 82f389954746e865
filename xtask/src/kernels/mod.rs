//! `cargo xtask kernels`: runs `mmscale` on kernel images in virtual machines (`mmscale kernel
//! boot`), each with several numbers of CPUs. A cell of this matrix is one image and one number:
//! does the kernel accept the BPF programs, do its upkeep ticks expire as the simulator's, and,
//! with as many CPUs as the kept ones, are its instructions those that are kept, and is a recording
//! of it? On request also:
//! do studies observe its waits, do all of its counts agree with the simulator's?

mod checks;
mod instructions;
mod lifted;
mod recording;

use checks::{COUNTS, Check, DOCTOR, Job, STUDIES, TICK};
use instructions::Compared;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The images if none is given: the kernels of Debian's releases, and the newest.
const IMAGES: [&str; 3] = ["debian:6.1", "debian:6.12", "debian:7.3"];
/// The numbers of CPUs if none is given.
const CPUS: [usize; 4] = [2, 4, 16, 64];
/// Most CPUs with which studies run: with more, their windows are shorter than the start of their
/// processes takes in an emulator.
const CPUS_OF_STUDIES: usize = 4;
/// The CPU time that a machine may use, and that of each of its CPUs: three times what the largest
/// check takes.
const LIMIT_S: usize = 300;
const LIMIT_OF_CPU_S: usize = 15;

/// The arguments of the command.
#[derive(Clone, clap::Args)]
pub struct KernelsArgs {
    /// Images of kernels; 6.1, 6.12 and 7.3 of Debian if none is given
    #[arg(long = "kernel", value_name = "IMAGE,..", value_delimiter = ',')]
    images: Vec<String>,
    /// CPUs of the machines; 2, 4, 16 and 64 if none is given
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// The program; it is built if none is given
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Only that the first kernel accepts the BPF programs, and what is kept of the second
    #[arg(long)]
    quick: bool,
    /// Also the studies, with 4 CPUs or fewer
    #[arg(long)]
    studies: bool,
    /// All counts, in place of those of the upkeep tick alone
    #[arg(long)]
    counts: bool,
    /// The most minutes for a cell: checks that did not begin until then are skipped
    #[arg(long, value_name = "N", default_value_t = 30)]
    minutes: u64,
    /// Let time pass with instructions
    #[arg(long)]
    icount: bool,
    /// Keep counts of instructions of Debian's kernels, and a recording, in gallery/kernels
    #[arg(long)]
    keep: bool,
    /// Record and replay what gallery/lift.toml lists, and keep the figures
    #[arg(long, conflicts_with = "keep")]
    replays: bool,
    /// Replay only the rows with this word in their item, arm, name or script
    #[arg(long, requires = "replays", value_name = "WORD")]
    only: Option<String>,
}

impl KernelsArgs {
    fn checks(&self, cpus: usize) -> Vec<Check> {
        if self.quick {
            return vec![DOCTOR];
        }
        let ticks = if self.counts { COUNTS } else { TICK };
        let studies: &[Check] = match self.studies && cpus <= CPUS_OF_STUDIES {
            true => &STUDIES,
            false => &[],
        };
        [&[DOCTOR, ticks], studies].concat()
    }
    fn images(&self) -> Vec<String> {
        match self.images.is_empty() {
            false => self.images.clone(),
            true => IMAGES.map(str::to_owned).to_vec(),
        }
    }
    fn cpus(&self) -> Vec<usize> {
        match self.cpus.is_empty() {
            false => self.cpus.clone(),
            true => CPUS.to_vec(),
        }
    }
    /// Returns the cells, each with whether its instructions are compared.
    fn cells(&self) -> Vec<Cell> {
        if self.quick {
            let [first, second, _] = IMAGES.map(str::to_owned);
            let of = |image, boots, counts| Cell { image, cpus: instructions::CPUS, boots, counts };
            return vec![of(first, true, false), of(second, false, true)];
        }
        let cell = |(image, cpus): (&String, usize)| Cell {
            image: image.clone(),
            cpus,
            boots: true,
            counts: cpus == instructions::CPUS && version_of(image).is_some(),
        };
        let images = self.images();
        let all = images.iter().flat_map(|image| self.cpus().into_iter().map(move |n| (image, n)));
        all.map(cell).collect()
    }
}

/// Returns the version of an image with kept counts.
fn version_of(image: &str) -> Option<&str> {
    image.strip_prefix("debian:").filter(|version| instructions::VERSIONS.contains(version))
}

/// One image with one number of CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Cell {
    image: String,
    cpus: usize,
    /// Whether it is booted for checks.
    boots: bool,
    /// Whether its instructions are compared.
    counts: bool,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} CPUs", self.image, self.cpus)
    }
}

/// Runs the checks. Prints a line for each cell, and one for each check that was skipped. A
/// computer without QEMU or the packages skips all.
///
/// # Errors
/// The checks that failed, or why none could be made.
pub fn run(root: &Path, call: &KernelsArgs) -> Result<String, String> {
    let program = match &call.program {
        Some(program) => root.join(program),
        None => built(root)?,
    };
    if call.keep {
        recording::keep(root, &program)?;
        return instructions::keep(root, &program);
    }
    if call.replays {
        return lifted::keep(root, &program, call.only.as_deref());
    }
    let mut results = Vec::new();
    for cell in call.cells() {
        let result = Checked::of(&cell, root, &program, call)?;
        result.print(&cell);
        results.push(result);
    }
    let failed = results.iter().filter(|result| !result.wrong.is_empty()).count();
    let skipped = results.iter().map(|result| result.skipped.len()).sum::<usize>();
    match (failed, skipped) {
        (0, 0) => Ok("kernels: all checks passed".to_owned()),
        (0, _) => Ok(format!("kernels: all checks passed but {skipped} that were skipped")),
        _ => Err(format!("checks failed on {failed} of {} machines", results.len())),
    }
}

/// The outcome of the checks of a cell.
#[derive(Default)]
struct Checked {
    shown: Vec<String>,
    wrong: Vec<String>,
    skipped: Vec<String>,
}

impl Checked {
    /// Makes the checks of a cell. A machine is booted for each.
    fn of(cell: &Cell, root: &Path, program: &Path, call: &KernelsArgs) -> Result<Self, String> {
        let begun = Instant::now();
        let is_late = || begun.elapsed() > Duration::from_secs(call.minutes * 60);
        let late = |what: &str| format!("{what}: the cell has used its {} minutes", call.minutes);
        let mut checked = Self::default();
        let checks = if cell.boots { call.checks(cell.cpus) } else { vec![] };
        for check in checks {
            match is_late() {
                true => checked.skipped.push(late(check.name())),
                false => checked.boot(cell, &check, program, call)?,
            }
        }
        if cell.counts && is_late() {
            checked.skipped.push(late("instructions"));
        } else if let Some(version) = version_of(&cell.image).filter(|_| cell.counts) {
            let options = limit(cell);
            match instructions::check(root, program, version, &options)? {
                Compared::Same => checked.shown.push("instructions: as kept".to_owned()),
                Compared::Different(how) => {
                    checked.wrong.push(format!("instructions differ: {how}"));
                }
                Compared::Skipped(why) => checked.skipped.push(why),
            }
            if version == recording::VERSION {
                match recording::check(root, program)? {
                    Compared::Same => checked.shown.push("recording: as kept".to_owned()),
                    Compared::Different(how) => {
                        checked.wrong.push(format!("recording differs: {how}"));
                    }
                    Compared::Skipped(why) => checked.skipped.push(why),
                }
            }
        }
        let seconds = begun.elapsed().as_secs();
        checked.shown.push(format!("{seconds} s"));
        Ok(checked)
    }

    fn boot(
        &mut self,
        cell: &Cell,
        check: &Check,
        program: &Path,
        call: &KernelsArgs,
    ) -> Result<(), String> {
        let (job, said) = booted(program, cell, call, check.args)?;
        let refused = said.lines().find_map(|line| line.strip_prefix("error: "));
        if let Some(why) = refused.filter(|why| is_absence(why)) {
            self.skipped.push(format!("{}: {why}", check.name()));
            return Ok(());
        }
        match check.of(&job) {
            Ok(what) => self.shown.push(what),
            Err(why) => {
                println!("{said}");
                self.wrong.push(why);
            }
        }
        Ok(())
    }

    fn print(&self, cell: &Cell) {
        for why in &self.skipped {
            println!("kernels: skipped: {cell}: {why}");
        }
        let all = [&self.wrong[..], &self.shown].concat().join("; ");
        println!("kernels: {cell}: {all}");
    }
}

/// Returns the option with the CPU time that a machine of the cell may use.
fn limit(cell: &Cell) -> [String; 2] {
    ["--limit".to_owned(), format!("{} s", LIMIT_S + LIMIT_OF_CPU_S * cell.cpus)]
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
    cell: &Cell,
    call: &KernelsArgs,
    args: &str,
) -> Result<(Job, String), String> {
    let mut command = Command::new(program);
    command.args(["kernel", "boot", "--emulate", "--kernel", &cell.image]);
    command.args(["--cpus", &cell.cpus.to_string()]).args(limit(cell));
    // Linux before 6.5 does not start its CPUs with it.
    if call.icount && cell.image != IMAGES[0] {
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

/// Builds the program as for users, and returns its path: as for tests, its counts take four times
/// as long in an emulator.
fn built(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(&cargo)
        .args(["build", "--quiet", "--release", "-p", "mmscale"])
        .current_dir(root)
        .status()
        .map_err(|why| format!("cannot run {cargo}: {why}"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), |path| root.join(path));
    match status.success() {
        true => Ok(target.join("release").join("mmscale")),
        false => Err("the program does not build".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> KernelsArgs {
        KernelsArgs {
            images: vec![],
            cpus: vec![],
            program: None,
            quick: false,
            studies: false,
            counts: false,
            minutes: 30,
            icount: false,
            keep: false,
            replays: false,
            only: None,
        }
    }

    #[test]
    fn checks_depend_on_the_number_of_cpus() {
        let whole = args();
        let cells = whole.cells();
        assert_eq!(cells.len(), IMAGES.len() * CPUS.len());
        assert!(cells.iter().all(|cell| cell.boots && cell.counts == (cell.cpus == 4)));
        assert_eq!((whole.checks(4).len(), whole.checks(64).len()), (2, 2));
        let studies = KernelsArgs { studies: true, ..args() };
        assert_eq!(studies.checks(4).len(), 2 + STUDIES.len());
        assert_eq!(studies.checks(64).len(), 2);
    }

    #[test]
    fn the_quick_form_boots_the_oldest_and_counts_the_next() {
        let quick = KernelsArgs { quick: true, ..args() };
        let cells = quick.cells();
        let what: Vec<_> =
            cells.iter().map(|cell| (cell.image.as_str(), cell.boots, cell.counts)).collect();
        assert_eq!(what, [("debian:6.1", true, false), ("debian:6.12", false, true)]);
        assert_eq!(quick.checks(4).len(), 1);
        let own = KernelsArgs { images: vec!["./bzImage".to_owned()], ..args() };
        assert!(own.cells().iter().all(|cell| !cell.counts), "nothing of it is kept");
    }

    #[test]
    fn a_computer_without_packages_or_emulator_is_no_failure() {
        assert!(is_absence("qemu-system-x86_64 is not installed: on Debian apt-get install .."));
        assert!(is_absence("apt knows no kernel 6.1*-cloud-amd64 of Debian"));
        assert!(!is_absence("the kernel panicked: VFS: Unable to mount root fs"));
    }
}
