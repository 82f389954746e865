//! Proof that a process still runs: its number with its start time, because numbers are used again.

use std::fmt;
use std::fs::File;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A process, identified for good: its number, and its start in ticks since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pid: i32,
    start: u64,
}

/// Reads the state and the start of a process from its `stat` file.
fn state_and_start(pid: i32) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character, `)` included. The state follows it, and the start is 19
    // fields further.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

impl Identity {
    /// Returns the calling process.
    pub(crate) fn own() -> Self {
        let pid = std::process::id() as i32;
        Self { pid, start: state_and_start(pid).map_or(0, |(_, start)| start) }
    }
    /// Whether it runs. A process that has ended and is not reaped does not.
    pub(crate) fn runs(self) -> bool {
        state_and_start(self.pid)
            .is_some_and(|(state, start)| start == self.start && !"ZX".contains(state))
    }
    /// Returns its number.
    pub(crate) fn pid(self) -> i32 {
        self.pid
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.start)
    }
}

/// Locks the file or folder of a run whose tool is `owner`. Returns `None` if the tool runs, or a
/// process of the run that has inherited the lock. A process that was killed may take a moment to
/// end.
pub(crate) fn lock_of_dead(owner: Identity, lock: File) -> Option<File> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let since = Instant::now();
    while !owner.runs() {
        if lock.try_lock().is_ok() {
            return Some(lock);
        }
        if since.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

impl FromStr for Identity {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (pid, start) = text.split_once('-').ok_or(())?;
        let numbers = pid.parse().ok().zip(start.parse().ok()).ok_or(())?;
        Ok(Self { pid: numbers.0, start: numbers.1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let own = Identity::own();
        assert!(own.runs());
        assert_eq!(own.to_string().parse(), Ok(own));
        assert!(!Identity { start: own.start + 1, ..own }.runs());
        assert!("12".parse::<Identity>().is_err() && "a-b".parse::<Identity>().is_err());
    }
}
