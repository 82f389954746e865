//! Errors of system calls.

/// Why a call failed. Names and meanings are those of the manual pages. The last three variants are
/// not error numbers but events that end a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Errno {
    /// The mapping does not allow the access.
    Acces,
    /// Pages could not be locked, or a resource is temporarily short.
    Again,
    /// Not a descriptor of the process, or one of the wrong kind.
    Badf,
    /// A page is in use, or a memory group has processes.
    Busy,
    /// No such child process.
    Child,
    /// The address range is already mapped, or the memory group exists.
    Exist,
    /// The address is not mapped.
    Fault,
    /// A signal arrived during the call.
    Intr,
    /// An argument is invalid.
    Inval,
    /// Pages could not be moved or read.
    Io,
    /// Out of memory or address space, or the range is not fully mapped.
    Nomem,
    /// The memory group does not exist.
    Noent,
    /// The object cannot be mapped.
    Nodev,
    /// The end of the range is not representable.
    Overflow,
    /// The operation is not permitted.
    Perm,
    /// No such process.
    Srch,
    /// SIGSEGV: an access to memory that is not mapped, or that the mapping does not allow.
    Segv,
    /// SIGBUS: an access to a page that could not be read from swap, or beyond the end of a file.
    Bus,
    /// SIGKILL, or the run is over: the program must return now. All later calls fail with this
    /// error, too.
    Stopped,
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Acces => "permission denied (EACCES)",
            Self::Again => "try again (EAGAIN)",
            Self::Badf => "bad descriptor (EBADF)",
            Self::Busy => "in use (EBUSY)",
            Self::Child => "no such child (ECHILD)",
            Self::Exist => "exists already (EEXIST)",
            Self::Fault => "bad address (EFAULT)",
            Self::Intr => "interrupted (EINTR)",
            Self::Inval => "invalid argument (EINVAL)",
            Self::Io => "input/output error (EIO)",
            Self::Nomem => "out of memory (ENOMEM)",
            Self::Noent => "no such memory group (ENOENT)",
            Self::Nodev => "cannot be mapped (ENODEV)",
            Self::Overflow => "too large (EOVERFLOW)",
            Self::Perm => "not permitted (EPERM)",
            Self::Srch => "no such process (ESRCH)",
            Self::Segv => "segmentation fault (SIGSEGV)",
            Self::Bus => "bus error (SIGBUS)",
            Self::Stopped => "killed, or the run is over",
        })
    }
}

impl core::error::Error for Errno {}
