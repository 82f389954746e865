//! The ends of processes: seen before they are reaped, and made to follow the warden's.

use std::io::{Error, Result};

/// The exit code of a process in which a program panicked.
pub(crate) const PANICKED: i32 = 101;

/// A child that has ended and is not reaped.
pub(crate) fn ended_child() -> Option<i32> {
    // SAFETY: a zeroed siginfo is one, and the place is ours.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let asked = libc::waitid(libc::P_ALL, 0, &raw mut info, how);
        (asked == 0 && info.si_pid() != 0).then(|| info.si_pid())
    }
}

/// Waits until a child has ended, and leaves it to be reaped.
pub(crate) fn await_end(pid: i32) {
    // SAFETY: a zeroed siginfo is one, and the place is ours.
    while unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, pid as _, &raw mut info, libc::WEXITED | libc::WNOWAIT)
    } == -1
        && Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
}

/// Whether a child has ended; it is left to be reaped.
pub(crate) fn has_ended(pid: i32) -> bool {
    // SAFETY: a zeroed siginfo is one, and the place is ours.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let asked = libc::waitid(libc::P_PID, pid as _, &raw mut info, how);
        asked == 0 && info.si_pid() == pid
    }
}

/// Lets the kernel kill a process group when its leader, the warden, ends, even if no process is
/// left that could do it.
///
/// It is a pipe that only the warden can write to. The processes of the run inherit the other end,
/// which has the group as its owner and SIGKILL as its signal (fcntl(2), `F_SETSIG`): the kernel
/// sends that when the last writer closes the pipe. PR_SET_PDEATHSIG would not do: a process of a
/// run may outlive the thread that forked it.
pub(crate) struct GroupEnd {
    read: i32,
    write: i32,
}

impl GroupEnd {
    /// For the group that the calling process leads.
    pub(crate) fn new() -> Result<Self> {
        const F_SETSIG: i32 = 10;
        let mut ends = [0; 2];
        // SAFETY: the place for two descriptors is ours.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
        let [read, write] = ends;
        // SAFETY: numbers only, of a descriptor of ours.
        unsafe {
            check(libc::fcntl(read, F_SETSIG, libc::SIGKILL))?;
            check(libc::fcntl(read, libc::F_SETOWN, -libc::getpid()))?;
            check(libc::fcntl(read, libc::F_SETFL, libc::O_ASYNC))?;
        }
        Ok(Self { read, write })
    }
    /// The calling process is the first of the run, a child of the warden: it and all that it
    /// forks cannot write. The other end stays open even in a program that it becomes.
    pub(crate) fn follow(&self) {
        // SAFETY: descriptors of ours, of which the first is not used any more.
        unsafe {
            libc::close(self.write);
            libc::fcntl(self.read, libc::F_SETFD, 0);
        }
    }
}

fn check(result: i32) -> Result<()> {
    if result == -1 { Err(Error::last_os_error()) } else { Ok(()) }
}
