//! The process that executes cases, and prints a line for each.

use std::backtrace::Backtrace;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::call::Calls;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::target::{Input, Target};
use crate::targets;

/// The first panic of the case in progress, in whichever thread it was.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Cases of one target.
pub(crate) struct Cases<'a> {
    pub(crate) target: &'a str,
    pub(crate) seed: u64,
    pub(crate) numbers: Range<u64>,
}

impl Cases<'_> {
    /// Returns the input of a case, and the random numbers that follow.
    fn input(&self, target: &dyn Target, number: u64) -> (Input, Random) {
        let mut random = Random::of(self.target, self.seed, number);
        let input = target.input(&mut random);
        (input, random)
    }

    fn target(&self, seeds: &Path) -> io::Result<Box<dyn Target>> {
        targets::of(self.target, &crate::root(), seeds)
            .ok_or_else(|| io::Error::other(format!("there is no target `{}`", self.target)))
    }

    /// Writes the input of a case next to `place`, which has no extension. Returns its name.
    pub(crate) fn keep(&self, number: u64, seeds: &Path, place: &Path) -> io::Result<String> {
        let (input, _) = self.input(&*self.target(seeds)?, number);
        let file = place.with_extension(input.extension);
        std::fs::write(&file, input.bytes)?;
        Ok(file.display().to_string())
    }

    /// Executes the cases. The folder is this worker's alone.
    pub(crate) fn work(&self, folder: &Path, seeds: &Path) -> io::Result<()> {
        let mut lines = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let target = self.target(seeds)?;
        let calls = Calls::new(folder)?;
        limit_memory()?;
        let is_one = self.numbers.end - self.numbers.start == 1;
        std::panic::set_hook(Box::new(move |info| {
            let message = info.payload_as_str().unwrap_or("not a text");
            let place = info.location().map_or(String::new(), ToString::to_string);
            let mut first = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
            if is_one && first.is_none() {
                // The frame shows it; an error means only that it is not shown.
                let _ = writeln!(io::stderr(), "{}", Backtrace::force_capture());
            }
            first.get_or_insert(format!("panic at {place}: {message}"));
        }));
        for number in self.numbers.clone() {
            let (input, mut random) = self.input(&*target, number);
            calls.clear();
            let done = catch_unwind(AssertUnwindSafe(|| target.check(&calls, &input, &mut random)));
            let panic = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
            let outcome = match (panic, done) {
                (Some(what), _) => Outcome::Wrong(what),
                (None, Ok(outcome)) => outcome,
                (None, Err(_)) => Outcome::Wrong("a panic without a message".to_owned()),
            };
            lines.write_all(format!("{number} {outcome}\n").as_bytes())?;
        }
        Ok(())
    }
}

/// Ends the process at an absurd allocation. The frame looks at what is used, which is far less:
/// records of frames that no run touches are only reserved.
fn limit_memory() -> io::Result<()> {
    let maximum = getrlimit(Resource::Data).maximum;
    setrlimit(Resource::Data, Rlimit { current: Some(64 * crate::MOST_MEMORY), maximum })?;
    Ok(())
}
