//! A worker and its limits: time of the CPU for a case, and memory.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::worker::Cases;

/// Time without CPU time, after which a case waits for something that never comes.
const PATIENCE: Duration = Duration::from_secs(600);
/// Time between two looks at a worker.
const TICK: Duration = Duration::from_millis(20);
/// Bytes of a page, and ticks of CPU time in a second, as /proc counts them.
const PAGE_BYTES: u64 = 4096;
const TICKS_PER_S: u64 = 100;

/// The result of a case, as the frame learns it.
#[derive(Debug)]
pub(super) enum Finding {
    /// The worker has told the outcome.
    Done(Outcome),
    /// The worker has ended.
    Ended(String),
    /// The case did not end.
    Hang(String),
    /// The case took too much memory.
    Memory(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(outcome) => outcome.fmt(f),
            Self::Ended(what) | Self::Hang(what) | Self::Memory(what) => f.write_str(what),
        }
    }
}

impl Finding {
    /// Returns what must not happen, if it is that.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Done(Outcome::Accepted | Outcome::Refused(_)) => None,
            Self::Done(Outcome::Wrong(what)) => Some(what),
            Self::Ended(what) | Self::Hang(what) | Self::Memory(what) => Some(what),
        }
    }
}

/// A worker in progress.
pub(super) struct Watched {
    child: Child,
    lines: Receiver<String>,
    /// The case in progress, and the case behind the last one.
    number: u64,
    until: u64,
    /// Since when it is in progress: CPU time of the worker, and time of the host.
    since: Option<(Duration, Instant)>,
    looked: Instant,
    /// Why it was killed.
    killed: Option<Finding>,
}

impl Watched {
    pub(super) fn start(
        program: &Path,
        cases: &Cases<'_>,
        folder: &Path,
        seeds: &Path,
    ) -> io::Result<Self> {
        let Cases { target, seed, ref numbers } = *cases;
        let mut command = Command::new(program);
        command.args(["worker", target, &seed.to_string()]);
        command.args([numbers.start.to_string(), numbers.end.to_string()]);
        command.args([folder, seeds]).env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let (teller, lines) = channel();
        let from = BufReader::new(child.stdout.take().expect("it is a pipe"));
        thread::spawn(move || {
            // The end of the pipe is that of the worker; a frame that has ended asks for no lines.
            from.lines().map_while(Result::ok).all(|line| teller.send(line).is_ok())
        });
        let (number, until) = (numbers.start, numbers.end);
        let looked = Instant::now();
        Ok(Self { child, lines, number, until, since: None, looked, killed: None })
    }

    /// Waits for the next case to end. `None`: the worker has ended.
    pub(super) fn next(&mut self, folder: &Path, longest: Duration) -> Option<(u64, Finding)> {
        loop {
            match self.lines.recv_timeout(TICK) {
                Ok(line) => {
                    let told = line.split_once(' ').and_then(|(number, outcome)| {
                        Some((number.parse().ok()?, Outcome::read(outcome)?))
                    });
                    // Other lines are what a case itself has printed.
                    let Some((number, outcome)) = told else { continue };
                    (self.number, self.since) = (number + 1, None);
                    self.look(longest);
                    return Some((number, Finding::Done(outcome)));
                }
                Err(RecvTimeoutError::Timeout) => self.look(longest),
                Err(RecvTimeoutError::Disconnected) => return self.ended(folder),
            }
        }
    }

    /// Looks at the worker's time and memory, and kills it if one is above its limit.
    fn look(&mut self, longest: Duration) {
        if self.looked.elapsed() < TICK || self.killed.is_some() {
            return;
        }
        self.looked = Instant::now();
        let Some((cpu, bytes)) = usage(self.child.id()) else { return };
        let (cpu_before, at) = *self.since.get_or_insert((cpu, Instant::now()));
        self.killed = if bytes > crate::MOST_MEMORY {
            Some(Finding::Memory(format!("{} MiB of memory", bytes >> 20)))
        } else if cpu - cpu_before > longest {
            Some(Finding::Hang(format!("not done after {} s of CPU time", longest.as_secs())))
        } else if at.elapsed() > PATIENCE {
            Some(Finding::Hang(format!("not done after {} s", PATIENCE.as_secs())))
        } else {
            None
        };
        if self.killed.is_some() {
            // An error means that it has ended by itself.
            let _ = self.child.kill();
        }
    }

    /// Returns the case in which the worker ended, unless all are done.
    fn ended(&mut self, folder: &Path) -> Option<(u64, Finding)> {
        let status = self.child.wait().ok()?;
        if self.number == self.until {
            return None;
        }
        let number = self.number;
        self.until = number;
        let finding = self.killed.take().unwrap_or_else(|| {
            let said = fs::read(folder.join(crate::STDERR)).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let what = format!("{status}: {}", said.chars().take(400).collect::<String>());
            if said.contains("memory allocation of") || said.contains("out of memory") {
                Finding::Memory(what)
            } else {
                Finding::Ended(what)
            }
        });
        Some((number, finding))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A frame that fails leaves no worker.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time and the memory of a process.
fn usage(pid: u32) -> Option<(Duration, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // The fields 14, 15 and 24 of proc(5); the list begins with the third.
    let ticks = field(11)? + field(12)?;
    let cpu = Duration::from_millis(ticks * 1000 / TICKS_PER_S);
    Some((cpu, field(21)? * PAGE_BYTES))
}
