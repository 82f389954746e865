//! Error numbers of system calls.

use mmscale_system::Errno;
use std::io;

/// What the last call of this thread failed with.
pub(crate) fn last() -> Errno {
    of(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// The name of an error number. One that [`Errno`] has no name for is a call that makes no sense.
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
        libc::ENODEV => Errno::Nodev,
        libc::EOVERFLOW | libc::EFBIG => Errno::Overflow,
        libc::EPERM => Errno::Perm,
        libc::ESRCH => Errno::Srch,
        _ => Errno::Inval,
    }
}

/// What a call that gives -1 for a failure has given.
pub(crate) fn check(result: impl Into<i64>) -> Result<i64, Errno> {
    match result.into() {
        -1 => Err(last()),
        value => Ok(value),
    }
}
