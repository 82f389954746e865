//! QEMU as a process. It never outlives this one.

use super::{BootError, host};
use std::fs;
use std::io::{self, Read};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The most bytes of QEMU's messages that are kept.
const MESSAGE_BYTES: u64 = 1 << 16;

/// A running QEMU, which is killed when this value is dropped.
pub(super) struct Emulator {
    child: Child,
    messages: Option<JoinHandle<String>>,
    cpu_time: Duration,
}

impl Emulator {
    /// Starts QEMU, which inherits these descriptors, and which the kernel kills when this thread
    /// ends.
    pub(super) fn start(mut command: Command, inherited: Vec<RawFd>) -> Result<Self, BootError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let parent = rustix::process::getpid();
        let prepare = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // It may have ended before that.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::other("the parent has ended"));
            }
            for fd in &inherited {
                // SAFETY: the caller keeps the descriptors open until QEMU has started.
                let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(*fd) };
                rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec it makes system calls only, and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let mut child = command.spawn().map_err(|why| match why.kind() {
            io::ErrorKind::NotFound => BootError::NoEmulator,
            _ => BootError::Host { what: "run QEMU", why },
        })?;
        let stderr = child.stderr.take().expect("a pipe");
        let mut emulator = Self { child, messages: None, cpu_time: Duration::ZERO };
        let read = move || {
            let mut bytes = Vec::new();
            let mut stderr = stderr;
            // What was read before an error is kept.
            let _ = stderr.by_ref().take(MESSAGE_BYTES).read_to_end(&mut bytes);
            let _ = io::copy(&mut stderr, &mut io::sink());
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let thread = thread::Builder::new().name("messages".to_owned()).spawn(read);
        emulator.messages = Some(thread.map_err(host("start a thread"))?);
        Ok(emulator)
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        self.cpu_time();
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the CPU time that it has used so far.
    pub(super) fn cpu_time(&mut self) -> Duration {
        self.cpu_time = cpu_time_of(self.child.id()).unwrap_or(Duration::ZERO).max(self.cpu_time);
        self.cpu_time
    }

    /// Returns its messages; it has ended.
    pub(super) fn finish(mut self) -> String {
        let _ = self.child.wait();
        self.messages.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPU time of a process, from its line in /proc, whose unit is 10 ms.
fn cpu_time_of(pid: u32) -> Option<Duration> {
    // tidy: opened: a file of /proc
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have blanks; user and system time are 12th and 13th after it.
    let fields: Vec<&str> = line.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_is_read() {
        assert!(cpu_time_of(std::process::id()).is_some());
        assert!(cpu_time_of(u32::MAX).is_none());
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let why = Emulator::start(Command::new("/no/such/program"), vec![]).err().unwrap();
        assert!(matches!(why, BootError::NoEmulator), "{why}");
    }

    #[test]
    fn a_dropped_emulator_ends() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let emulator = Emulator::start(command, vec![]).unwrap();
        let pid = emulator.child.id();
        drop(emulator);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn its_messages_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo wrong >&2; exit 1"]);
        let emulator = Emulator::start(command, vec![]).unwrap();
        assert_eq!(emulator.finish(), "wrong\n");
    }
}
