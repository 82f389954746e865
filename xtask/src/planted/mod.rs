//! `cargo xtask planted`: which test catches which planted fault.
//!
//! The faults are those of [`mmscale_arch::planted`]. The tests are built once, with all faults
//! compiled in; then they run for each fault with that one selected, until a test fails or hangs.
//! First come the tests that are about the fault's protocol, then all others; in both rounds the
//! suites come in the order of what they cost. A fault that no test catches, although it is
//! declared to be caught, is an error. For one that is declared as missed the first round is all.

mod build;
mod suite;
mod table;

use build::Suite;
use mmscale_arch::planted::{Declared, Expected, Fault};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use suite::{Outcome, Round};
use table::Row;

pub(crate) const USAGE: &str = "usage: cargo xtask planted [--only PATTERN] [--quick] [--list]

  --only PATTERN  faults with this in their name or their crate's name
  --quick         faults that the tests of their protocol catch in seconds,
                  and those tests only
  --list          shows the faults and runs nothing";

/// Faults that are looked at side by side.
const AT_ONCE: usize = 2;

/// How long no test may end before the suite counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same for tests that catch their fault in seconds.
const QUICK_PATIENCE: Duration = Duration::from_secs(30);

/// What was asked for.
#[derive(Default)]
struct Asked<'a> {
    only: Option<&'a str>,
    quick: bool,
    list: bool,
}

impl<'a> Asked<'a> {
    fn parse(args: &[&'a str]) -> Option<Self> {
        let (mut asked, mut args) = (Self::default(), args.iter());
        while let Some(&arg) = args.next() {
            match arg {
                "--only" => asked.only = Some(args.next()?),
                "--quick" => asked.quick = true,
                "--list" => asked.list = true,
                _ => return None,
            }
        }
        Some(asked)
    }
    fn concerns(&self, fault: &Declared) -> bool {
        let named = |pattern: &str| fault.name.contains(pattern) || fault.krate == pattern;
        self.only.is_none_or(named) && (!self.quick || fault.expected == Expected::Quick)
    }
}

/// Runs what `args` ask for.
///
/// # Errors
/// The faults that were not caught although they should, and those that were although they are
/// declared to be missed; or why nothing could be run.
pub fn run(root: &Path, args: &[&str]) -> Result<String, String> {
    let asked = Asked::parse(args).ok_or_else(|| USAGE.to_owned())?;
    let faults: Vec<&Declared> = Fault::ALL.iter().filter(|fault| asked.concerns(fault)).collect();
    if faults.is_empty() {
        return Err("no fault has such a name: see `cargo xtask planted --list`".to_owned());
    }
    if asked.list {
        return Ok(table::list(&faults));
    }
    let suites = build::suites(root, asked.quick)?;
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(&fault) = faults.get(next.fetch_add(1, Relaxed)) {
                    let row = judge(&suites, fault, asked.quick);
                    eprintln!("planted: {}", row.short());
                    rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|row| row.fault.fault as usize);
    println!("{}", table::markdown(&rows));
    table::verdict(&rows)
}

/// Runs suites until one catches the fault.
fn judge<'a>(suites: &[Suite], fault: &'a Declared, quick: bool) -> Row<'a> {
    let since = Instant::now();
    // All tests of all suites would pass where none is expected to fail: minutes for an answer that
    // is known.
    let rounds: &[Round] = match fault.expected {
        Expected::Caught if !quick => &[Round::Protocol, Round::Others],
        Expected::Quick if !quick => &[Round::Protocol, Round::Others],
        _ => &[Round::Protocol],
    };
    let patience = if quick { QUICK_PATIENCE } else { PATIENCE };
    let caught = rounds.iter().find_map(|round| {
        let mut reached = suites.iter().filter(|suite| suite.reaches(fault.krate));
        reached.find_map(|suite| match suite::run(suite, fault, *round, patience) {
            Outcome::Passed => None,
            outcome => Some((suite.name.clone(), outcome)),
        })
    });
    Row { fault, caught, seconds: since.elapsed().as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_choose_faults() {
        let of = |args: &[&'static str]| {
            let asked = Asked::parse(args)?;
            Some(Fault::ALL.iter().filter(|fault| asked.concerns(fault)).count())
        };
        assert_eq!(of(&[]), Some(Fault::ALL.len()));
        assert_eq!(of(&["--only", "rcu-enough-early"]), Some(1));
        assert!(of(&["--only", "arch"]) > Some(5) && of(&["--quick"]) > Some(0));
        assert!(of(&["--only"]).is_none() && of(&["--fast"]).is_none());
    }
}
