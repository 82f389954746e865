//! Why a call did not do what was asked.

/// Why a call failed. Names and meanings are those of the manual pages; the last three are not
/// error numbers but what ends a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Errno {
    /// The mapping does not allow it.
    Acces,
    /// Pages could not be locked, or something is short for the moment.
    Again,
    /// It is no descriptor of the process, or not one for this.
    Badf,
    /// A page is in use.
    Busy,
    /// There is no such child.
    Child,
    /// Something is mapped there already.
    Exist,
    /// Nothing is mapped there.
    Fault,
    /// A signal came meanwhile.
    Intr,
    /// An argument makes no sense.
    Inval,
    /// Some pages could not be moved, or could not be read.
    Io,
    /// Out of memory, no room, or pages that are not mapped.
    Nomem,
    /// It cannot be mapped.
    Nodev,
    /// It would end beyond what a number can hold.
    Overflow,
    /// Not allowed.
    Perm,
    /// There is no such process.
    Srch,
    /// SIGSEGV: an access to memory that is not mapped, or not for this.
    Segv,
    /// SIGBUS: an access to a page that could not be read from swap, or beyond the end of a file.
    Bus,
    /// SIGKILL, or the run is over: the program returns now. Every call says so from then on.
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
            Self::Exist => "mapped already (EEXIST)",
            Self::Fault => "bad address (EFAULT)",
            Self::Intr => "interrupted (EINTR)",
            Self::Inval => "invalid argument (EINVAL)",
            Self::Io => "input/output error (EIO)",
            Self::Nomem => "out of memory (ENOMEM)",
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
