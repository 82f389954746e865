//! `cargo xtask planted`: which test catches which planted fault.
//!
//! The faults are those of [`mmscale_arch::planted`]. The tests are built once, with all faults
//! compiled in. Then they run for each fault with only this one selected, until a test fails or
//! hangs. Tests of the fault's protocol run first, then all others; in both rounds suites run in
//! ascending order of run time. A fault that no test catches, although it is declared to be caught,
//! is an error. For a fault that is declared as missed, only the first round runs.

pub(crate) mod build;
mod suite;
mod table;

use build::Suite;
use mmscale_arch::planted::{Declared, Expected, Fault};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use suite::{Round, SuiteResult};
use table::FaultRow;

pub(crate) const USAGE: &str = "usage: cargo xtask planted [--only PATTERN] [--quick] [--list]

  --only PATTERN  faults with this in their name or their crate's name
  --quick         faults that the tests of their protocol catch in seconds,
                  and those tests only
  --list          shows the faults and runs nothing";

/// Number of faults that are tested concurrently.
const AT_ONCE: usize = 2;

/// Time without a finished test after which a suite counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);
/// This time for tests that catch their fault in seconds.
const QUICK_PATIENCE: Duration = Duration::from_secs(30);

/// The arguments of the command.
#[derive(Default)]
struct PlantedArgs<'a> {
    only: Option<&'a str>,
    quick: bool,
    list: bool,
}

impl<'a> PlantedArgs<'a> {
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

/// Executes the command.
///
/// # Errors
/// The faults that were not caught although they should be, and those that were caught although
/// they are declared as missed; or the reason why nothing could be run.
pub fn run(root: &Path, args: &[&str]) -> Result<String, String> {
    let asked = PlantedArgs::parse(args).ok_or_else(|| USAGE.to_owned())?;
    let faults: Vec<&Declared> = Fault::ALL.iter().filter(|fault| asked.concerns(fault)).collect();
    if faults.is_empty() {
        return Err("no fault matches this name; `cargo xtask planted --list` shows all".to_owned());
    }
    if asked.list {
        return Ok(table::list(&faults));
    }
    let suites = build::suites(root, asked.quick)?;
    all_name_tests(&suites, &faults)?;
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

/// Fails if a fault names no test: its first round would run nothing.
fn all_name_tests(suites: &[Suite], faults: &[&Declared]) -> Result<(), String> {
    let mut tests = Vec::new();
    for suite in suites {
        tests.push((suite, suite.tests()?));
    }
    let nameless: Vec<String> = faults
        .iter()
        .filter(|fault| !names_one(fault, &tests))
        .map(|fault| format!("{}: no test has `{}` in its name", fault.name, fault.tests))
        .collect();
    if nameless.is_empty() { Ok(()) } else { Err(nameless.join("\n")) }
}

/// Returns whether a test that can reach the fault's crate is one of its protocol.
fn names_one(fault: &Declared, tests: &[(&Suite, Vec<String>)]) -> bool {
    let reached = tests.iter().filter(|(suite, _)| suite.reaches(fault.krate));
    reached.flat_map(|(_, tests)| tests).any(|test| test.contains(fault.tests))
}

/// Runs suites until one catches the fault.
fn judge<'a>(suites: &[Suite], fault: &'a Declared, quick: bool) -> FaultRow<'a> {
    let since = Instant::now();
    // If no test is expected to fail, all tests of all suites would pass, which takes minutes for a
    // known result.
    let rounds: &[Round] = match fault.expected {
        Expected::Caught if !quick => &[Round::Protocol, Round::Others],
        Expected::Quick if !quick => &[Round::Protocol, Round::Others],
        _ => &[Round::Protocol],
    };
    let patience = if quick { QUICK_PATIENCE } else { PATIENCE };
    let caught = rounds.iter().find_map(|round| {
        let mut reached = suites.iter().filter(|suite| suite.reaches(fault.krate));
        reached.find_map(|suite| match suite::run(suite, fault, *round, patience) {
            SuiteResult::Passed => None,
            outcome => Some((suite.name.clone(), outcome)),
        })
    });
    FaultRow { fault, caught, seconds: since.elapsed().as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_choose_faults() {
        let of = |args: &[&'static str]| {
            let asked = PlantedArgs::parse(args)?;
            Some(Fault::ALL.iter().filter(|fault| asked.concerns(fault)).count())
        };
        assert_eq!(of(&[]), Some(Fault::ALL.len()));
        assert_eq!(of(&["--only", "rcu-enough-early"]), Some(1));
        assert!(of(&["--only", "arch"]) > Some(5) && of(&["--quick"]) > Some(0));
        assert!(of(&["--only"]).is_none() && of(&["--fast"]).is_none());
    }

    #[test]
    fn a_fault_of_mm_needs_a_test_that_reaches_it() {
        let fault = Fault::ALL.iter().find(|fault| fault.krate == "mm").expect("mm has some");
        let names = |krate, test: &str| {
            let (program, folder) = Default::default();
            let suite = Suite { name: String::new(), program, folder, krate };
            names_one(fault, &[(&suite, vec!["a::b".to_owned(), test.to_owned()])])
        };
        let of_its_protocol = format!("{}_c", fault.tests);
        assert!(names("mm", &of_its_protocol) && names("interleave", &of_its_protocol));
        assert!(!names("frames", &of_its_protocol) && !names("mm", "c::d"));
    }
}
