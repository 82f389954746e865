//! One run of a suite with one fault selected, which ends at the first test that fails.

use super::build::Suite;
use super::fault::Fault;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The tests of a suite that run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Round {
    /// Tests of the fault's protocol.
    Protocol,
    /// All other tests.
    Others,
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SuiteResult {
    /// No test failed.
    Passed,
    /// A test failed, with the schedule if the model checker reported one.
    Failed { test: String, schedule: Option<String> },
    /// A test did not end.
    Hung { test: String },
    /// The program ended during a test, or did not start.
    Died { test: String },
}

/// Polling interval of a run.
const LOOK: Duration = Duration::from_millis(20);

/// The output of a program so far.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<String>>);

impl Text {
    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Reads until the other side closes.
    fn fill(&self, mut from: impl Read + Send + 'static) -> JoinHandle<()> {
        let text = Self(Arc::clone(&self.0));
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(len) = from.read(&mut some)
                && len > 0
            {
                let new = String::from_utf8_lossy(&some[..len]);
                text.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&new);
            }
        })
    }
}

/// Runs a suite with `fault` selected, one test at a time. `patience` is the maximum time without a
/// finished test.
pub(super) fn run(suite: &Suite, fault: &Fault, round: Round, patience: Duration) -> SuiteResult {
    let mut tests = Command::new(&suite.program);
    tests.current_dir(&suite.folder).arg("--test-threads=1").env("MMSCALE_PLANTED", &fault.name);
    tests.env("RUST_BACKTRACE", "0").env_remove("MMSCALE_DEPTH").env_remove("SHUTTLE_RANDOM_SEED");
    if round == Round::Others {
        tests.arg("--skip");
    }
    tests.arg(&fault.tests).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let died = || SuiteResult::Died { test: String::new() };
    let Ok(mut child) = tests.spawn() else { return died() };
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return died();
    };
    let (out, err) = (Text::default(), Text::default());
    let readers = [out.fill(stdout), err.fill(stderr)];
    let (mut seen, mut since) = (0, Instant::now());
    let (status, hung) = loop {
        let text = out.get();
        if text.len() > seen {
            (seen, since) = (text.len(), Instant::now());
        }
        let ended = child.try_wait().ok().flatten();
        let hung = since.elapsed() > patience;
        if ended.is_some() || hung || failed_test(&text).is_some() {
            break (ended, hung);
        }
        std::thread::sleep(LOOK);
    };
    if status.is_none() {
        // The program may have ended by itself; then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }
    for reader in readers {
        let _ = reader.join();
    }
    let text = out.get();
    match (failed_test(&text), status) {
        (Some(test), _) => {
            SuiteResult::Failed { test: test.to_owned(), schedule: schedule(&err.get()) }
        }
        (None, Some(status)) if status.success() => SuiteResult::Passed,
        _ if hung => SuiteResult::Hung { test: last_test(&text).to_owned() },
        _ => SuiteResult::Died { test: last_test(&text).to_owned() },
    }
}

/// Returns the first test that failed.
fn failed_test(text: &str) -> Option<&str> {
    let failed = |line: &&str| line.starts_with("test ") && line.ends_with(" ... FAILED");
    text.lines().find(failed).map(name_of)
}

/// Returns the test that started last.
fn last_test(text: &str) -> &str {
    text.lines().rfind(|line| line.starts_with("test ")).map_or("", name_of)
}

fn name_of(line: &str) -> &str {
    let name = line.trim_start_matches("test ");
    let name = name.split(" ... ").next().unwrap_or(name);
    name.trim_end_matches(" - should panic").trim_end_matches(" ...")
}

/// Returns the schedule that the model checker reports.
fn schedule(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.split_once("failed in ").map(|(_, said)| said))?;
    Some(line.replace("schedule ", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\nrunning 3 tests\ntest a::b ... ok\ntest c - should panic ... FAILED\n\
                        test d::e ... ";

    #[test]
    fn the_first_failure_and_the_last_test_are_read() {
        assert_eq!((failed_test(TEXT), last_test(TEXT)), (Some("c"), "d::e"));
        assert_eq!(failed_test("test a::b ... ok\ntest result: FAILED. 1 passed\n"), None);
    }

    #[test]
    fn the_schedule_is_read() {
        let said = "thread panicked\nfailed in random schedule 7 of 300\n";
        assert_eq!(schedule(said).as_deref(), Some("random 7 of 300"));
        assert_eq!(schedule("thread panicked\n"), None);
    }
}
