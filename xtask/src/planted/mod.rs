//! `cargo xtask planted`: which test catches which planted fault.
//!
//! `testing/faults.toml` declares the faults as changes of sources. All of them are woven into a
//! copy of the tree ([`weave`]), each behind a switch, and the tests are built once. Then they run
//! for each fault with only this one selected, until a test fails or hangs. Tests of the fault's
//! protocol run first, then all others; in both rounds suites run in ascending order of run time. A
//! fault that no test catches, although it is declared to be caught, is an error. For a fault that
//! is declared as missed, only the first round runs.

mod build;
pub(crate) mod fault;
mod search;
mod suite;
mod table;
mod tree_copy;
pub(crate) mod weave;

use build::Suite;
use fault::{Expected, Fault};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use suite::{Round, SuiteResult};
use table::FaultRow;
use tree_copy::TreeCopy;

/// The module that selects a fault.
const SELECTED: &str = include_str!("selected.rs.in");
/// The source to which [`SELECTED`] is appended.
const SELECTED_IN: &str = "crates/arch/src/lib.rs";

/// Number of faults that are tested concurrently.
const AT_ONCE: usize = 2;

/// Time without a finished test after which a suite counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);
/// This time for tests that catch their fault in seconds.
const QUICK_PATIENCE: Duration = Duration::from_secs(30);

/// The arguments of the command.
#[derive(clap::Args, Default)]
pub struct PlantedArgs {
    /// Only faults with this in their name, or those of this crate
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Only faults that the tests of their protocol catch in seconds, and those tests
    #[arg(long)]
    quick: bool,
    /// List the faults and run nothing
    #[arg(long)]
    list: bool,
}

impl PlantedArgs {
    fn concerns(&self, fault: &Fault) -> bool {
        let named = |pattern: &str| fault.name.contains(pattern) || fault.krate() == pattern;
        self.only.as_deref().is_none_or(named) && (!self.quick || fault.expected == Expected::Quick)
    }
    /// Returns the faults to test, with their number.
    ///
    /// # Errors
    /// The most similar name if no fault matches.
    fn chosen<'f>(&self, faults: &'f [Fault]) -> Result<Vec<(usize, &'f Fault)>, String> {
        let chosen: Vec<_> =
            faults.iter().enumerate().filter(|(_, fault)| self.concerns(fault)).collect();
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let asked = self.only.as_deref().unwrap_or_default();
        let names = faults.iter().map(|fault| fault.name.as_str());
        let nearest = names.min_by_key(|name| strsim::damerau_levenshtein(name, asked));
        Err(format!(
            "no such fault is called `{asked}`: did you mean `{}`? \
             `cargo xtask planted --list` shows all",
            nearest.unwrap_or_default()
        ))
    }
}

/// Executes the command.
///
/// # Errors
/// The faults that were not caught although they should be, and those that were caught although
/// they are declared as missed; or the reason why nothing could be run.
pub fn run(root: &Path, asked: &PlantedArgs) -> Result<String, String> {
    let all = fault::parse(&read(root, fault::DECLARED)?)?;
    let faults = asked.chosen(&all)?;
    if asked.list {
        return Ok(table::list(&faults));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let folder = root.join(target).join("planted");
    let copy = woven(root, &folder, &all)?;
    let suites = build::suites(&copy, &folder.join("build"), asked.quick)?;
    all_name_tests(&suites, &faults)?;
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(&(number, fault)) = faults.get(next.fetch_add(1, Relaxed)) {
                    let row = judge(&suites, number, fault, asked.quick);
                    eprintln!("planted: {}", row.short());
                    rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|row| row.number);
    println!("{}", table::markdown(&rows));
    table::verdict(&rows)
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    fs::read_to_string(root.join(file)).map_err(|why| format!("{file}: {why}"))
}

/// Copies the tree to `folder` and weaves all faults into the copy, so that it stays the same
/// whichever of them are tested.
fn woven(root: &Path, folder: &Path, faults: &[Fault]) -> Result<TreeCopy, String> {
    let by_file = fault::by_file(faults);
    let files: BTreeSet<&str> = by_file.keys().copied().chain([SELECTED_IN]).collect();
    let copy = TreeCopy::new(root, folder, |file| files.contains(file))?;
    for file in files {
        let own = by_file.get(file).map_or(&[][..], Vec::as_slice);
        let on = weave::switch(file);
        let mut source = weave::weave(&read(root, file)?, on, own).map_err(|problems| {
            let lines =
                problems.iter().map(|problem| format!("{}: {}", problem.fault, problem.what));
            format!("{file}\n{}", lines.collect::<Vec<_>>().join("\n"))
        })?;
        if file == SELECTED_IN {
            let names: Vec<String> =
                faults.iter().map(|fault| format!("{:?}", fault.name)).collect();
            source += &SELECTED.replace("FAULTS", &names.join(", "));
        }
        copy.write(file, source.as_bytes())?;
    }
    Ok(copy)
}

/// Fails if a fault names no test: its first round would run nothing.
fn all_name_tests(suites: &[Suite], faults: &[(usize, &Fault)]) -> Result<(), String> {
    let mut tests = Vec::new();
    for suite in suites {
        tests.push((suite, suite.tests()?));
    }
    let nameless: Vec<String> = faults
        .iter()
        .filter(|(_, fault)| !names_one(fault, &tests))
        .map(|(_, fault)| format!("{}: no test has `{}` in its name", fault.name, fault.tests))
        .collect();
    if nameless.is_empty() { Ok(()) } else { Err(nameless.join("\n")) }
}

/// Returns whether a test that can reach the fault's crate is one of its protocol.
fn names_one(fault: &Fault, tests: &[(&Suite, Vec<String>)]) -> bool {
    let reached = tests.iter().filter(|(suite, _)| suite.reaches(fault.krate()));
    reached.flat_map(|(_, tests)| tests).any(|test| test.contains(&fault.tests))
}

/// Runs suites until one catches the fault.
fn judge<'a>(suites: &[Suite], number: usize, fault: &'a Fault, quick: bool) -> FaultRow<'a> {
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
        let mut reached = suites.iter().filter(|suite| suite.reaches(fault.krate()));
        reached.find_map(|suite| match suite::run(suite, fault, *round, patience) {
            SuiteResult::Passed => None,
            outcome => Some((suite.name.clone(), outcome)),
        })
    });
    FaultRow { number, fault, caught, seconds: since.elapsed().as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_choose_faults() {
        let faults = fault::some();
        let of = |only: &str, quick| {
            let only = (!only.is_empty()).then(|| only.to_owned());
            PlantedArgs { only, quick, list: false }.chosen(&faults).map(|chosen| chosen.len())
        };
        assert_eq!((of("", false), of("", true)), (Ok(3), Ok(1)));
        assert_eq!((of("grace", false), of("arch", false)), (Ok(2), Ok(1)));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let faults = fault::some();
        let unknown = PlantedArgs { only: Some("grace-laet".into()), ..PlantedArgs::default() };
        let refused = unknown.chosen(&faults).unwrap_err();
        assert!(refused.contains("did you mean `grace-late`?"), "{refused}");
    }

    #[test]
    fn a_fault_of_mm_needs_a_test_that_reaches_it() {
        let faults = fault::some();
        let fault = faults.iter().find(|fault| fault.krate() == "mm").expect("mm has some");
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
