//! The ends of processes: seen before anybody reaps them.

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
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
}
