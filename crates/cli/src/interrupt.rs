//! Signals that stop a command.

use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use mmscale_harness::Interrupt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::output;

/// Time that a command has to end by itself after the first signal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grace {
    /// The command only computes.
    Computing,
    /// The command has processes to end and kernel settings to restore. If this tool ends first,
    /// their guardians do both.
    Live,
}

impl Grace {
    const fn time(self) -> Duration {
        match self {
            Self::Computing => Duration::from_millis(700),
            Self::Live => Duration::from_secs(8),
        }
    }
}

/// Additional time for a document that is being written.
const WRITING: Duration = Duration::from_secs(2);
/// Time limit of the last message, because stderr may be a full pipe.
const MESSAGE: Duration = Duration::from_millis(100);

/// Held while a document is written, so that the process does not end in the middle of it.
static DOCUMENT: Mutex<()> = Mutex::new(());

/// Executes `write`, which writes a document, without being ended in between.
pub(crate) fn whole<R>(write: impl FnOnce() -> R) -> R {
    // The lock protects no data that a panic could leave inconsistent.
    let _writing = DOCUMENT.lock().unwrap_or_else(PoisonError::into_inner);
    write()
}

/// Returns an interrupt that is set by the first Ctrl-C, SIGTERM or SIGHUP. A command that has not
/// ended after `grace` is terminated; a second signal ends the process immediately.
pub(crate) fn on_signals(grace: Grace) -> io::Result<Interrupt> {
    let stop = Arc::new(AtomicBool::new(false));
    // Separate from `stop`: a comparison that has lost its guardian also sets `stop`, and a signal
    // after that must still count as the first.
    let signalled = Arc::new(AtomicBool::new(false));
    let (watched, told) = UnixStream::pair()?;
    let hangup = (!ignores_hangup()).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        // The order matters: the flag is still clear when the first signal reaches this handler.
        flag::register_conditional_default(signal, Arc::clone(&signalled))?;
        flag::register(signal, Arc::clone(&signalled))?;
        flag::register(signal, Arc::clone(&stop))?;
        low_level::pipe::register(signal, told.try_clone()?)?;
    }
    let flag = Arc::clone(&stop);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || end_late(watched, &flag, grace))?;
    Ok(Interrupt::new(stop))
}

/// Returns whether SIGHUP is ignored, as in a process that was started by `nohup`.
fn ignores_hangup() -> bool {
    // tidy: opened: a file of /proc
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (SIGHUP - 1) & 1 != 0)
}

/// Waits for the first signal, then ends the process unless it ends by itself.
fn end_late(mut told: UnixStream, stop: &AtomicBool, grace: Grace) {
    // Relaxed: the flag publishes no data. It is checked because a forked child shares the pipe and
    // may write to it without a signal to this process.
    while !stop.load(Ordering::Relaxed) {
        if told.read(&mut [0]).is_err() {
            return;
        }
    }
    thread::sleep(grace.time());
    let step = Duration::from_millis(10);
    let mut left = WRITING;
    while matches!(DOCUMENT.try_lock(), Err(TryLockError::WouldBlock)) && !left.is_zero() {
        thread::sleep(step);
        left = left.saturating_sub(step);
    }
    let message = "error: interrupted: unfinished documents were not written, complete ones were";
    let message = thread::spawn(move || output::tell(message));
    left = MESSAGE;
    while !message.is_finished() && !left.is_zero() {
        thread::sleep(step);
        left = left.saturating_sub(step);
    }
    low_level::exit(1);
}
