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

pub(crate) const USAGE: &str = "usage:
  cargo xtask differ [--for TIME | --cases N] [--seed N] [--program FILE]

  --for TIME      how long: 90s, 10m, 2h; 10m if nothing is given
  --cases N       how many cases instead
  --seed N        which cases: the same seed, the same cases; 1 if not given
  --program FILE  this build of mmscale alone, which has assertions; nothing is
                  built, and only the two schedules are compared";

/// One in this many cases also runs in the build with assertions, which is slower.
const ASSERTED_EVERY: u64 = 8;

/// The end of a search.
enum End {
    At(Instant),
    After(u64),
}

/// The arguments of the command.
struct DifferArgs {
    end: End,
    seed: u64,
    /// A build with assertions, if it alone runs.
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
/// A wrong call, a build that fails, or a case that differs.
pub fn run(root: &Path, args: &[&str]) -> Result<String, String> {
    if let ["--help" | "-h"] = args {
        return Ok(USAGE.to_owned());
    }
    let asked = parse(args)?;
    let binaries = Binaries::of(root, asked.program.as_deref())?;
    let menu = Menu::read(&binaries)?;
    let (tally, next, stop) = (VerdictCounts::default(), AtomicU64::new(0), AtomicBool::new(false));
    let found: Mutex<Option<(Case, String)>> = Mutex::new(None);
    let worker = || {
        while !stop.load(Relaxed) {
            let number = next.fetch_add(1, Relaxed);
            let over = match asked.end {
                End::At(when) => Instant::now() >= when,
                End::After(cases) => number >= cases,
            };
            if over {
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

fn parse(args: &[&str]) -> Result<DifferArgs, String> {
    let wrong = |what: String| format!("{what}\n{USAGE}");
    let mut asked = DifferArgs { end: after("10m").map_err(wrong)?, seed: 1, program: None };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let value = args.next().ok_or_else(|| wrong(format!("{arg} needs a value")))?;
        let whole =
            || value.parse::<u64>().map_err(|_| wrong(format!("{arg} {value}: not a number")));
        match arg {
            "--for" => asked.end = after(value).map_err(wrong)?,
            "--cases" => asked.end = End::After(whole()?),
            "--seed" => asked.seed = whole()?,
            "--program" => asked.program = Some(value.into()),
            _ => return Err(wrong(format!("unknown option {arg}"))),
        }
    }
    Ok(asked)
}

fn after(time: &str) -> Result<End, String> {
    let unit = |suffix: &str, seconds: u64| {
        let count: u64 = time.strip_suffix(suffix)?.parse().ok()?;
        count.checked_mul(seconds)
    };
    let seconds = unit("s", 1).or_else(|| unit("m", 60)).or_else(|| unit("h", 3600));
    let seconds = seconds.filter(|&seconds| seconds <= 1_000_000);
    let seconds = seconds
        .ok_or_else(|| format!("--for {time}: not a time; allowed: such as 90s, 10m or 2h"))?;
    Ok(End::At(Instant::now() + Duration::from_secs(seconds)))
}

/// Returns a command's output; an error contains the command.
fn output(command: &mut Command) -> Result<std::process::Output, String> {
    command.output().map_err(|why| format!("cannot run {command:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_calls_are_refused_with_the_usage() {
        for args in [&["--for"][..], &["--for", "10"], &["--cases", "x"], &["--fore", "1m"]] {
            let error = parse(args).err().expect("it is wrong");
            assert!(error.contains("cargo xtask differ [--for"), "{error}");
        }
        let plain = parse(&["--cases", "3"]);
        assert!(matches!(plain, Ok(DifferArgs { end: End::After(3), seed: 1, program: None })));
        let given = parse(&["--program", "there", "--seed", "4", "--cases", "3"]).unwrap();
        assert_eq!((given.program, given.seed), (Some("there".into()), 4));
    }
}
