//! The ends of processes: seen before they are reaped, and tied to the end of the warden.

use std::io::{Error, Result};

/// The exit code of a process in which a program panicked.
pub(crate) const PANICKED: i32 = 101;

/// Returns a child that has ended and is not reaped.
pub(crate) fn ended_child() -> Option<i32> {
    // SAFETY: a zeroed siginfo is valid, and the place is ours.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let asked = libc::waitid(libc::P_ALL, 0, &raw mut info, how);
        (asked == 0 && info.si_pid() != 0).then(|| info.si_pid())
    }
}

/// Waits until a child has ended, without reaping it.
pub(crate) fn await_end(pid: i32) {
    // SAFETY: a zeroed siginfo is valid, and the place is ours.
    while unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, pid as _, &raw mut info, libc::WEXITED | libc::WNOWAIT)
    } == -1
        && Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
}

/// Whether a child has ended. It is not reaped.
pub(crate) fn has_ended(pid: i32) -> bool {
    // SAFETY: a zeroed siginfo is valid, and the place is ours.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let asked = libc::waitid(libc::P_PID, pid as _, &raw mut info, how);
        asked == 0 && info.si_pid() == pid
    }
}

/// Makes the kernel kill a process group when its leader, the warden, ends, even if no other
/// process is left that could.
///
/// It is a pipe with the warden as its only writer. The processes of the run inherit the other end,
/// which has the group as its owner and SIGKILL as its signal (fcntl(2), `F_SETSIG`): the kernel
/// sends that signal when the last writer closes the pipe. PR_SET_PDEATHSIG is not enough: a
/// process of a run may outlive the thread that forked it.
pub(crate) struct GroupEnd {
    read: i32,
    write: i32,
}

impl GroupEnd {
    /// Makes the pipe for the group that the calling process leads.
    pub(crate) fn new() -> Result<Self> {
        const F_SETSIG: i32 = 10;
        let mut ends = [0; 2];
        // SAFETY: the place for two descriptors is ours.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
        let [read, write] = ends;
        // SAFETY: only numbers, of a descriptor of ours.
        unsafe {
            check(libc::fcntl(read, F_SETSIG, libc::SIGKILL))?;
            check(libc::fcntl(read, libc::F_SETOWN, -libc::getpid()))?;
            check(libc::fcntl(read, libc::F_SETFL, libc::O_ASYNC))?;
        }
        Ok(Self { read, write })
    }
    /// Closes the writing end. The calling process is the first of the run, a child of the warden,
    /// so it and all its forks cannot write. The other end stays open even in a program that it
    /// becomes.
    pub(crate) fn follow(&self) {
        // SAFETY: descriptors of ours; the first is not used any more.
        unsafe {
            libc::close(self.write);
            libc::fcntl(self.read, libc::F_SETFD, 0);
        }
    }
}

fn check(result: i32) -> Result<()> {
    if result == -1 { Err(Error::last_os_error()) } else { Ok(()) }
}
