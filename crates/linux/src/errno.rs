//! Error numbers of system calls.

use mmscale_system::Errno;
use std::io;

/// Returns the error of the last call of this thread.
pub(crate) fn last() -> Errno {
    of(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Converts an error number. A number without a name in [`Errno`] becomes the error of an invalid
/// call.
pub(crate) fn of(number: i32) -> Errno {
    match number {
        libc::EACCES => Errno::Acces,
        libc::EAGAIN => Errno::Again,
        libc::EBADF => Errno::Badf,
        libc::EBUSY => Errno::Busy,
        libc::ECHILD => Errno::Child,
        libc::EEXIST => Errno::Exist,
        libc::EFAULT => Errno::Fault,
        libc::EINTR => Errno::Intr,
        libc::EIO => Errno::Io,
        libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE => Errno::Nomem,
        libc::ENOENT => Errno::Noent,
        libc::ENODEV => Errno::Nodev,
        libc::EOVERFLOW | libc::EFBIG => Errno::Overflow,
        libc::EPERM => Errno::Perm,
        libc::ESRCH => Errno::Srch,
        _ => Errno::Inval,
    }
}

/// Returns the result of a call that returns -1 on failure.
pub(crate) fn check(result: impl Into<i64>) -> Result<i64, Errno> {
    match result.into() {
        -1 => Err(last()),
        value => Ok(value),
    }
}
