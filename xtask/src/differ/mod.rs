//! `cargo xtask differ`: random runs of random studies, each in several ways that must give equal
//! results: under the lazy and the naive schedule, and in a build with assertions.
//!
//! Case N of a seed is always the same run. A case that differs, panics or hangs is reduced, then
//! shown as a command to repeat.

mod case;
mod draw;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use case::Case;
use draw::Menu;
use verdict::{Binaries, Verdict};

/// One in this many cases also runs in the build with assertions, which is slower.
const ASSERTED_EVERY: u64 = 8;

/// The arguments of the command.
#[derive(clap::Args)]
pub struct DifferArgs {
    /// How long: 90s, 10m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "10m")]
    #[arg(value_parser = humantime::parse_duration)]
    time: Duration,
    /// How many cases instead
    #[arg(long, value_name = "N", conflicts_with = "time")]
    cases: Option<u64>,
    /// Which cases: the same seed, the same cases
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only this build of mmscale, which has assertions, and only the two schedules
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Counts of verdicts.
#[derive(Default)]
struct VerdictCounts {
    agreed: AtomicU64,
    asserted: AtomicU64,
    refused: AtomicU64,
    failed_alike: AtomicU64,
    too_long: AtomicU64,
}

impl VerdictCounts {
    fn count(&self, verdict: &Verdict, asserted: bool) {
        // Relaxed: statistics, read after all threads were joined, or for a message.
        match verdict {
            Verdict::Agree => {
                self.agreed.fetch_add(1, Relaxed);
                self.asserted.fetch_add(asserted.into(), Relaxed);
            }
            Verdict::Refused => _ = self.refused.fetch_add(1, Relaxed),
            Verdict::FailedAlike => _ = self.failed_alike.fetch_add(1, Relaxed),
            Verdict::TooLong => _ = self.too_long.fetch_add(1, Relaxed),
            Verdict::Wrong(_) => {}
        }
    }
    fn text(&self) -> String {
        let of = |count: &AtomicU64| count.load(Relaxed);
        format!(
            "{} cases agree ({} of them also in a build with assertions), {} failed equally, {} \
             were refused, {} exceeded the time limit",
            of(&self.agreed),
            of(&self.asserted),
            of(&self.failed_alike),
            of(&self.refused),
            of(&self.too_long),
        )
    }
}

/// Executes the search. A case that differs is returned as the error.
///
/// # Errors
/// A build that fails, or a case that differs.
pub fn run(root: &Path, asked: &DifferArgs) -> Result<String, String> {
    let start = Instant::now();
    let binaries = Binaries::of(root, asked.program.as_deref())?;
    let menu = Menu::read(&binaries)?;
    let (tally, next, stop) = (VerdictCounts::default(), AtomicU64::new(0), AtomicBool::new(false));
    let found: Mutex<Option<(Case, String)>> = Mutex::new(None);
    let worker = || {
        while !stop.load(Relaxed) {
            let number = next.fetch_add(1, Relaxed);
            let over = |cases| number >= cases;
            if asked.cases.map_or_else(|| start.elapsed() >= asked.time, over) {
                return;
            }
            let case = menu.draw(asked.seed, number);
            let asserted = asked.program.is_none() && number.is_multiple_of(ASSERTED_EVERY);
            let verdict = verdict::of(&binaries, &case, asserted);
            tally.count(&verdict, asserted || asked.program.is_some());
            if number > 0 && number.is_multiple_of(100) {
                eprintln!("differ: {}", tally.text());
            }
            if let Verdict::Wrong(what) = verdict {
                stop.store(true, Relaxed);
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.get_or_insert((case, what));
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        (0..workers).for_each(|_| _ = scope.spawn(worker));
    });
    match found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(format!("differ: {}", tally.text())),
        Some((case, what)) => Err(report(&binaries, &case, &what, &tally)),
    }
}

/// Returns a report with the given case and the smallest case that is still wrong.
fn report(binaries: &Binaries, case: &Case, what: &str, tally: &VerdictCounts) -> String {
    eprintln!("differ: found {case}\ndiffer: {what}\ndiffer: reducing it");
    let mut smallest = (case.clone(), what.to_owned());
    // Each smaller case that is still wrong is the next starting point.
    'smaller: loop {
        for candidate in smallest.0.smaller() {
            if let Verdict::Wrong(what) = verdict::of(binaries, &candidate, true) {
                smallest = (candidate, what);
                continue 'smaller;
            }
        }
        break;
    }
    let (case, what) = smallest;
    format!("{}\n{what}\nto repeat: {case}", tally.text())
}

/// Returns a command's output; an error contains the command.
fn output(command: &mut Command) -> Result<std::process::Output, String> {
    command.output().map_err(|why| format!("cannot run {command:?}: {why}"))
}
