//! The command: chooses cases, starts workers, and sums up.

mod args;
mod counts;
mod watch;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Parser;
use tempfile::TempDir;

pub use counts::Counts;

use crate::worker::Cases;
use args::{End, FuzzArgs, Order};
use watch::{Finding, Watched};

/// Cases of a worker. A new process then starts, so that what one case leaves does not add up.
const CHUNK: u64 = 250;
/// CPU time of a case. A run is interrupted after a tenth of it.
const LONGEST: Duration = Duration::from_secs(20);

/// Executes the command line.
pub fn command() -> ExitCode {
    let args = FuzzArgs::parse();
    let done = match &args.order {
        Some(Order::Worker { target, seed, from, until, folder, seeds }) => {
            let cases = Cases { target, seed: *seed, numbers: *from..*until };
            cases.work(folder, seeds).map(|()| String::new()).map_err(|why| why.to_string())
        }
        Some(Order::Prepare { seeds }) => {
            crate::targets::prepare(seeds);
            Ok(String::new())
        }
        None => searched(&args.search()),
    };
    match done {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("fuzz: {why}");
            ExitCode::FAILURE
        }
    }
}

fn searched(search: &Search) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|why| why.to_string())?;
    let all = search.run(&program, &folder())?;
    let text = counts::table(&all);
    if all.iter().all(|(_, counts)| counts.failed() == 0) { Ok(text) } else { Err(text) }
}

/// A search for inputs that cause something that must not happen.
pub struct Search {
    /// The targets.
    pub targets: Vec<&'static str>,
    /// Which cases.
    pub seed: u64,
    /// The first case.
    pub first: u64,
    /// CPU time after which a case is one that does not end.
    pub longest: Duration,
    end: End,
}

/// The state of a search.
struct Progress<'a> {
    search: &'a Search,
    program: &'a Path,
    folder: &'a Path,
    seeds: PathBuf,
    /// The next chunk: targets take turns.
    next: AtomicU64,
    counts: Mutex<Vec<Counts>>,
}

impl Search {
    /// Creates a search of a number of cases of each target, from the first one.
    pub fn of(targets: &[&'static str], seed: u64, cases: u64) -> Self {
        Self { targets: targets.to_vec(), seed, first: 0, longest: LONGEST, end: End::Cases(cases) }
    }

    /// Whether a single case is executed again, which then tells everything.
    fn is_one(&self) -> bool {
        self.end == End::Cases(1)
    }

    /// Executes the search, with workers of `program`. Inputs are kept in `folder`.
    ///
    /// # Errors
    /// A folder that cannot be written, or a worker that cannot be started.
    pub fn run(
        &self,
        program: &Path,
        folder: &Path,
    ) -> Result<Vec<(&'static str, Counts)>, String> {
        let seeds = folder.join("seeds");
        std::fs::create_dir_all(&seeds)
            .map_err(|why| format!("cannot create {}: {why}", seeds.display()))?;
        if self.targets.contains(&"document") {
            let made = Command::new(program).arg("prepare").arg(&seeds).output();
            let made = made.map_err(|why| format!("cannot run {}: {why}", program.display()))?;
            if !made.status.success() {
                let said = String::from_utf8_lossy(&made.stderr);
                return Err(format!("cannot make documents: {said}"));
            }
        }
        let counts = Mutex::new(self.targets.iter().map(|_| Counts::default()).collect());
        let next = AtomicU64::new(0);
        let progress = Progress { search: self, program, folder, seeds, next, counts };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let each = std::thread::scope(|scope| {
            let all: Vec<_> = (0..workers).map(|_| scope.spawn(|| progress.chunks())).collect();
            all.into_iter().map(|one| one.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
        });
        each?;
        let counts = progress.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(self.targets.iter().copied().zip(counts).collect())
    }
}

impl Progress<'_> {
    /// Executes chunks until the end.
    fn chunks(&self) -> Result<(), String> {
        let folder = scratch().map_err(|why| format!("cannot create a folder: {why}"))?;
        let started = Instant::now();
        loop {
            let turn = self.next.fetch_add(1, Relaxed);
            let targets = self.search.targets.len() as u64;
            let from = turn / targets * CHUNK;
            let until = match self.search.end {
                End::Cases(cases) if from >= cases => return Ok(()),
                End::Cases(cases) => cases.min(from + CHUNK),
                End::After(time) if started.elapsed() >= time => return Ok(()),
                End::After(_) => from + CHUNK,
            };
            let first = self.search.first;
            let cases = Cases {
                target: self.search.targets[(turn % targets) as usize],
                seed: self.search.seed,
                numbers: first + from..first + until,
            };
            self.chunk(cases, (turn % targets) as usize, folder.path())?;
        }
    }

    /// Executes some cases, with a new worker after each that ended early.
    fn chunk(&self, mut cases: Cases<'_>, target: usize, folder: &Path) -> Result<(), String> {
        while !cases.numbers.is_empty() {
            let watched = Watched::start(self.program, &cases, folder, &self.seeds);
            let mut watched = watched.map_err(|why| format!("cannot start a worker: {why}"))?;
            while let Some((number, finding)) = watched.next(folder, self.search.longest) {
                cases.numbers.start = number + 1;
                if self.search.is_one() {
                    let said = std::fs::read(folder.join(crate::STDERR)).unwrap_or_default();
                    let said = String::from_utf8_lossy(&said);
                    said.lines().for_each(|line| println!("{}", line.escape_debug()));
                    println!("{finding}");
                }
                self.count(&cases, number, target, finding);
            }
        }
        Ok(())
    }

    fn count(&self, cases: &Cases<'_>, number: u64, target: usize, finding: Finding) {
        let mut all = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut all[target];
        let (name, seed) = (cases.target, cases.seed);
        let new = counts.add(&finding);
        if let (true, Some(what)) = (new, finding.text()) {
            let place = self.folder.join(format!("{name}-{seed}-{number}"));
            let kept = cases.keep(number, &self.seeds, &place);
            let kept = kept.unwrap_or_else(|why| format!("nowhere: {why}"));
            eprintln!(
                "fuzz: {name} {seed}/{number}: {what}\n  kept in {kept}; to repeat: cargo xtask \
                 fuzz {name} --case {seed}/{number}"
            );
        }
        if counts.cases().is_multiple_of(100_000) {
            eprintln!("fuzz: {name}: {counts}");
        }
    }
}

/// Returns the folder of inputs that are kept, which is not one of cargo's profiles.
fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| crate::root().join("target")).join("fuzzed")
}

/// Returns a folder in memory, where there is one: each case writes files.
fn scratch() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
